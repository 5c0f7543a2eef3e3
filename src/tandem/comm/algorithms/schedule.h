// Message algorithms as pure functions: sender, receiver and content of each message in each round.
// Nothing here communicates, so a test can run every algorithm for every number of ranks without a
// network.
//
// A schedule is the program of one participant. It works on arrays of elements. The first arrays
// are the participant's own numbers (one array, or several partial sums, all `count` long); the
// others are scratch. A round starts all of its messages at once, waits for them, then does its
// arithmetic in the order listed.
//
// Sums of 16-bit floats stay in f32 until they are complete (kFinish), and are rounded once. Two
// kinds of data can therefore travel in 16 bits without changing a bit: the input of one rank
// before any addition (a leaf), and complete sums (final). `result` holds the complete sums: an
// array of the data's type, in addition to the participant's own arrays. Every element of it is
// finished or received once.
//
//   name       rounds         elements sent per participant     bits
//   exchange   2              2 (N−1)/N · count                 canonical tree
//   tree       2 log2 N       up to 2 log2 N · count            canonical tree
//   doubling   log2 N         log2 N · count                    canonical for N = 2^k
//   halving    2 log2 N       2 (N−1)/N · count                 canonical for N = 2^k
//   ring       2 (N−1)        2 (N−1)/N · count                 a different order for each slice
// (doubling and halving first fold the ranks beyond a power of two into others: two more rounds.)
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
// Returns true if the algorithm adds along the canonical tree, for participants whose partial sums
// are whole subtrees.
bool is_canonical(Algorithm algorithm, int participants);

struct Step {
  enum class Kind { kSend, kReceive, kAccumulate, kTree, kFinish };
  Kind kind = Kind::kSend;
  int round = 0;
  int peer = 0;   // kSend, kReceive
  int array = 0;  // [begin, end) of it is sent, received into, added to, the result or complete
  std::size_t begin = 0;  // elements
  std::size_t end = 0;
  int from = 0;        // kAccumulate: the array that is added, starting at its element 0
  bool final = false;  // kSend, kReceive: part of `result`
  bool leaf = false;   // kSend, kReceive: numbers of one rank
};

struct Schedule {
  std::vector<std::size_t> scratch;  // elements of the arrays after the own ones
  std::vector<Step> steps;           // rounds in ascending order
  // kTree: the program and its operands.
  struct Operand {
    int array = 0;
    bool whole = false;  // indexed like the result; otherwise starting at its element 0
  };
  SumProgram program;
  std::vector<Operand> operands;
};

// all_reduce of `count` elements among `participants`, one array each, in place in array 0.
Schedule schedule_all_reduce(Algorithm algorithm, int participants, int me, std::size_t count);
// The same by exchange, for participants that hold partial sums. Partial i of `tree` belongs to
// participant partials[i].owner; the own arrays of a participant are its partials in this order.
Schedule schedule_exchange(int participants, int me, std::size_t count,
                           std::span<const Subtree> partials, const SumProgram& tree);
// Sends array 0 of `root` to all participants: binomial tree.
Schedule schedule_broadcast(int participants, int me, int root, std::size_t count);
// Barrier by dissemination (Hensgen, Finkel, Manber 1988): each participant has a message from
// every other one, directly or indirectly. Messages without elements.
Schedule schedule_barrier(int participants, int me);

}  // namespace tandem::comm
