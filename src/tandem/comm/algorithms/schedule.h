// Message algorithms as pure functions: who sends what to whom in which round. Nothing here
// communicates, so a test can run every algorithm for every number of ranks without a network.
//
// A schedule is the program of one participant. It works on arrays of elements: the first ones are
// the participant's own numbers (one array, or several partial sums, all `count` long), the others
// scratch. A round starts all of its messages at once, waits for them, then does its arithmetic in
// the order listed.
//
// Sums of 16-bit floats are f32 until they are complete (kFinish), and rounded once. So two things
// may travel in 16 bits without changing a bit: what one rank brought, before anything was added (a
// leaf), and complete sums (final). `result` is where these lie: an array of the type of the data
// beside the participant's own ones. Every element of it is finished or received once.
//
//   name       rounds         elements sent per participant     bits
//   exchange   2              2 (N−1)/N · count                 canonical tree
//   tree       2 log2 N       up to 2 log2 N · count            canonical tree
//   doubling   log2 N         log2 N · count                    canonical for N = 2^k
//   halving    2 log2 N       2 (N−1)/N · count                 canonical for N = 2^k
//   ring       2 (N−1)        2 (N−1)/N · count                 an order of its own for each slice
// (doubling and halving fold the ranks beyond a power of two into others first: two more rounds.)
// Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH",
// 2005.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "tandem/comm/algorithms/summation_tree.h"

namespace tandem::comm {

enum class Algorithm { kExchange, kTree, kDoubling, kHalving, kRing };
std::string_view name_of(Algorithm algorithm);
// Whether it adds along the canonical tree, for participants whose partial sums are whole subtrees.
bool is_canonical(Algorithm algorithm, int participants);

struct Step {
  enum class Kind { kSend, kReceive, kAccumulate, kTree, kFinish };
  Kind kind = Kind::kSend;
  int round = 0;
  int peer = 0;   // kSend, kReceive
  int array = 0;  // [begin, end) of it is sent, received into, added to, the result or complete
  std::size_t begin = 0;  // elements
  std::size_t end = 0;
  int from = 0;        // kAccumulate: the array that is added, from its element 0
  bool final = false;  // kSend, kReceive: of `result`
  bool leaf = false;   // kSend, kReceive: numbers of one rank
};

struct Schedule {
  std::vector<std::size_t> scratch;  // elements of the arrays after the own ones
  std::vector<Step> steps;           // rounds in ascending order
  // kTree: the program and its operands.
  struct Operand {
    int array = 0;
    bool whole = false;  // indexed like the result; otherwise from its element 0
  };
  SumProgram program;
  std::vector<Operand> operands;
};

// all_reduce of `count` elements among `participants`, one array each, in place in array 0.
Schedule schedule_all_reduce(Algorithm algorithm, int participants, int me, std::size_t count);
// The same by exchange where the participants hold partial sums: partial i of `tree` belongs to
// participant partials[i].owner, and each one's own arrays are its partials in this order.
Schedule schedule_exchange(int participants, int me, std::size_t count,
                           std::span<const Subtree> partials, const SumProgram& tree);
// Array 0 of `root` to all: binomial tree.
Schedule schedule_broadcast(int participants, int me, int root, std::size_t count);
// Everybody has heard of everybody (dissemination; Hensgen, Finkel, Manber 1988). Messages without
// elements.
Schedule schedule_barrier(int participants, int me);

}  // namespace tandem::comm
