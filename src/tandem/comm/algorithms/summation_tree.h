// The fixed binary tree along which values are summed over shards or ranks, as pure functions.
//
// The tree over leaves [begin, end) with count = end − begin:
//   count = 1: the leaf;
//   otherwise: tree(left) + tree(right), where left holds the first 2^k leaves, 2^k the largest
//   power of two below count.
// So 4 leaves give (0+1)+(2+3), 6 give ((0+1)+(2+3))+(4+5), and L = 2^k is the balanced tree. The
// tree depends only on the number of leaves. For any distribution of the leaves over owners the
// same additions happen, and f32 addition is commutative, so the bits agree.
#pragma once

#include <bit>
#include <cstddef>
#include <span>
#include <vector>

#include "tandem/core/thread_pool.h"

namespace tandem::comm {

// Leaves of the left subtree of a tree with `count` >= 2 leaves.
constexpr int left_leaves(int count) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(count - 1)));
}

// A subtree, given by its leaves, which all belong to one owner.
struct Subtree {
  int begin = 0;
  int end = 0;
  int owner = 0;
  int leaves() const { return end - begin; }
  friend bool operator==(const Subtree&, const Subtree&) = default;
};

// The largest subtrees of the tree over `leaves` leaves whose leaves have one owner, from left to
// right. An owner can sum each of them alone.
std::vector<Subtree> owned_subtrees(int leaves, FunctionRef<int(int leaf)> owner);

// A sum as a postfix program: an entry >= 0 pushes that operand, kAdd replaces the two topmost
// values with their sum.
inline constexpr int kAdd = -1;
using SumProgram = std::vector<int>;

// The program that sums tree(begin, end) from `operands`, subtrees that tile it. Operand i of the
// result is operands[i].
SumProgram sum_program(int begin, int end, std::span<const Subtree> operands);

}  // namespace tandem::comm
