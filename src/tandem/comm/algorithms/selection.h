// Selection of the algorithm: a table by operation, bytes, ranks per node and nodes, and the names
// that users request.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/comm/algorithms/schedule.h"
#include "tandem/comm/algorithms/types.h"
#include "tandem/core/env.h"

namespace tandem::comm {

// "recursive_doubling:0-8192;ring:8193-max" in oneCCL's syntax: the bytes of one rank's buffer,
// both ends included.
struct AlgorithmRange {
  std::string algorithm;
  std::size_t first = 0;
  std::size_t last = SIZE_MAX;
};

// Requested algorithms by operation. Empty: the table of this library, whose sums are canonical.
struct Selection {
  std::map<Operation, std::vector<AlgorithmRange>> asked;
  // Notes for the user: oneCCL algorithms that this library replaces by another one, and the
  // replacement.
  std::vector<std::string> notes;

  // Reads CCL_ALLREDUCE, CCL_REDUCE, CCL_REDUCE_SCATTER, CCL_ALLGATHER, CCL_ALLGATHERV,
  // CCL_ALLTOALL, CCL_BCAST, CCL_BARRIER. Throws ConfigError that names the variable, the part that
  // could not be parsed, and the valid names.
  static Selection from_environment(const Environment& environment);
  // One operation's text, in this library's names or oneCCL's: "ring", "ring:0-max",
  // "recursive_doubling:0-8192;ring:8193-max". `source` names it in errors.
  void set(Operation operation, std::string_view text, std::string_view source);
  // The algorithm requested for an operation of `bytes`; empty: the default.
  std::optional<std::string_view> find(Operation operation, std::size_t bytes) const;
  // "allreduce:recursive_doubling:0-8192;ring:8193-max", operations separated by blanks; empty
  // without a request.
  std::string describe() const;
};

// Sizes at which the table changes from one algorithm to the next. On both sides of each limit the
// sums are canonical, so limits change no bits: they may be measured (tuning.h).
struct Limits {
  // Inside a node: up to this size through slots, above it through the staging ring.
  std::size_t slot_bytes = 0;
  std::size_t short_bytes = 0;  // between nodes: up to this size few rounds, above it few bytes

  // Limits without a measurement.
  static Limits fixed(int ranks_of_node, int nodes);
};

// How the ranks of a node move an operation of `bytes` per rank.
enum class NodeAlgorithm { kLine, kSlot, kStaged };
std::string_view name_of(NodeAlgorithm algorithm);
NodeAlgorithm select_node_algorithm(Operation operation, std::size_t bytes_in,
                                    const Limits& limits);

// How the nodes' partial sums of an all_reduce (reduce, reduce_scatter) are combined. `aligned`:
// the ranks of each node are one subtree of the canonical tree. Otherwise only the exchange keeps
// the tree.
Algorithm select_between_nodes(const Selection& selection, const Limits& limits,
                               Operation operation, std::size_t bytes, int nodes, bool aligned);

// Ranks per node that use the network for an operation of `bytes`: all, unless the share of each
// would be too small.
int select_rails(std::size_t bytes, int rails);

// The table for this job as text: every operation with a choice, every size at which the choice
// changes, the requests, and the notes.
std::string describe_selection(const Selection& selection, const Limits& limits, int ranks_of_node,
                               int nodes, bool aligned);

}  // namespace tandem::comm
