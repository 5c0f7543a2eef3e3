// Which algorithm runs: a table by operation, bytes, ranks per node and nodes, and what people ask
// for by name.
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

// "recursive_doubling:0-8192;ring:8193-max" as oneCCL writes it: the bytes of one rank's buffer,
// both ends included.
struct AlgorithmRange {
  std::string algorithm;
  std::size_t first = 0;
  std::size_t last = SIZE_MAX;
};

// What was asked for, by operation. Empty: the table of this library, whose sums are canonical.
struct Selection {
  std::map<Operation, std::vector<AlgorithmRange>> asked;
  // To be printed: where oneCCL has an algorithm of a name and this library uses another one,
  // which.
  std::vector<std::string> notes;

  // Reads CCL_ALLREDUCE, CCL_REDUCE, CCL_REDUCE_SCATTER, CCL_ALLGATHER, CCL_ALLGATHERV,
  // CCL_ALLTOALL, CCL_BCAST, CCL_BARRIER. Throws ConfigError that names the variable, the part that
  // was not understood, and the names that exist.
  static Selection from_environment(const Environment& environment);
  // One operation's text, in this library's names or oneCCL's: "ring", "ring:0-max",
  // "recursive_doubling:0-8192;ring:8193-max". `source` names it in errors.
  void set(Operation operation, std::string_view text, std::string_view source);
  // What was asked for an operation of `bytes`; nothing: the default.
  std::optional<std::string_view> find(Operation operation, std::size_t bytes) const;
  // "allreduce:recursive_doubling:0-8192;ring:8193-max", operations separated by blanks; empty when
  // nothing was asked for.
  std::string describe() const;
};

// Where the table passes from one way to the next. On both sides of each limit the sums are
// canonical, so limits change no bits: they may be measured (tuning.h).
struct Limits {
  // Inside a node: up to here through slots, then through the staging ring.
  std::size_t slot_bytes = 0;
  std::size_t short_bytes = 0;  // between nodes: up to here few rounds, then few bytes

  // Without measuring.
  static Limits fixed(int ranks_of_node, int nodes);
};

// How a node's ranks move an operation of `bytes` per rank.
enum class NodeWay { kLine, kSlot, kStaged };
std::string_view name_of(NodeWay way);
NodeWay select_node_way(Operation operation, std::size_t bytes_in, const Limits& limits);

// How the nodes' partial sums of an all_reduce (reduce, reduce_scatter) meet. `aligned`: each
// node's ranks are one subtree of the canonical tree; if not, only the exchange keeps it.
Algorithm select_between_nodes(const Selection& selection, const Limits& limits,
                               Operation operation, std::size_t bytes, int nodes, bool aligned);

// Ranks per node that use the network for an operation of `bytes`: all, unless there is too little
// for each.
int select_lanes(std::size_t bytes, int lanes);

// The table for this job, to print: every operation that has a choice, every size at which it
// changes; what was asked for; the notes.
std::string describe_selection(const Selection& selection, const Limits& limits, int ranks_of_node,
                               int nodes, bool aligned);

}  // namespace tandem::comm
