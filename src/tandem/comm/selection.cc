#include "tandem/comm/selection.h"

#include <algorithm>
#include <charconv>

#include "tandem/comm/node_channel.h"
#include "tandem/core/error.h"

namespace tandem::comm {
namespace {

struct Variable {
  Operation operation;
  std::string_view variable;
  std::string_view name;  // in oneCCL's texts
};

constexpr Variable kVariables[] = {
    {Operation::kAllReduce, "CCL_ALLREDUCE", "allreduce"},
    {Operation::kReduce, "CCL_REDUCE", "reduce"},
    {Operation::kReduceScatter, "CCL_REDUCE_SCATTER", "reduce_scatter"},
    {Operation::kAllGather, "CCL_ALLGATHER", "allgather"},
    {Operation::kAllToAll, "CCL_ALLTOALL", "alltoall"},
    {Operation::kBroadcast, "CCL_BCAST", "bcast"},
    {Operation::kBarrier, "CCL_BARRIER", "barrier"},
};

// Between nodes each operation but those with sums has one algorithm; its names are accepted so that scripts run.
std::vector<std::string_view> names_for(Operation operation) {
  switch (operation) {
    case Operation::kAllReduce:
    case Operation::kReduce:
    case Operation::kReduceScatter:
      return {"topo", "exchange", "tree", "recursive_doubling", "rabenseifner", "ring"};
    default:
      return {"topo", "direct", "naive"};
  }
}

std::string_view name_in_ccl(Operation operation) {
  for (const Variable& row : kVariables) {
    if (row.operation == operation) return row.name;
  }
  return name_of(operation);
}

std::size_t read_bytes(std::string_view text, std::string_view part, std::string_view source) {
  if (text == "max") return SIZE_MAX;
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    raise<ConfigError>(
        "{}: '{}' has the size '{}', expected a number of bytes or 'max', as in "
        "'recursive_doubling:0-8192;ring:8193-max'",
        source, part, text);
  }
  return value;
}

AlgorithmRange read_range(Operation operation, std::string_view part, std::string_view source) {
  AlgorithmRange range;
  const std::size_t colon = part.find(':');
  range.algorithm = part.substr(0, colon);
  const auto names = names_for(operation);
  if (std::find(names.begin(), names.end(), range.algorithm) == names.end()) {
    raise<ConfigError>("{}: unknown algorithm '{}' for {}; there are {}", source, range.algorithm,
                       name_in_ccl(operation), fmt::join(names, ", "));
  }
  if (colon == std::string_view::npos) return range;
  const std::string_view sizes = part.substr(colon + 1);
  const std::size_t dash = sizes.find('-');
  if (dash == std::string_view::npos) {
    raise<ConfigError>("{}: '{}' lacks the range of sizes, as in 'ring:8193-max'", source, part);
  }
  range.first = read_bytes(sizes.substr(0, dash), part, source);
  range.last = read_bytes(sizes.substr(dash + 1), part, source);
  if (range.first > range.last) {
    raise<ConfigError>("{}: '{}' begins at {} and ends before it, at {}", source, part, range.first,
                       range.last);
  }
  return range;
}

std::optional<Algorithm> algorithm_named(std::string_view name) {
  for (const Algorithm one : {Algorithm::kExchange, Algorithm::kTree, Algorithm::kDoubling,
                              Algorithm::kHalving, Algorithm::kRing}) {
    if (name_of(one) == name) return one;
  }
  return std::nullopt;  // "topo": the table's choice
}

}  // namespace

Selection Selection::from_environment(const Environment& environment) {
  Selection selection;
  for (const Variable& row : kVariables) {
    if (const auto text = environment.get(row.variable))
      selection.set(row.operation, *text, row.variable);
  }
  return selection;
}

void Selection::set(Operation operation, std::string_view text, std::string_view source) {
  std::vector<AlgorithmRange> ranges;
  // oneCCL's documentation also writes the operation in front: "allreduce:ring".
  const std::string prefix = std::string(name_in_ccl(operation)) + ":";
  if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(';'), text.size());
    if (end > 0) ranges.push_back(read_range(operation, text.substr(0, end), source));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  asked[operation] = std::move(ranges);
}

std::optional<std::string_view> Selection::find(Operation operation, std::size_t bytes) const {
  const auto found = asked.find(operation);
  if (found == asked.end()) return std::nullopt;
  for (const AlgorithmRange& range : found->second) {
    if (range.first <= bytes && bytes <= range.last) return range.algorithm;
  }
  return std::nullopt;
}

std::string Selection::describe() const {
  std::string text;
  for (const auto& [operation, ranges] : asked) {
    text += fmt::format("{}{}:", text.empty() ? "" : " ", name_in_ccl(operation));
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      const std::string last = ranges[i].last == SIZE_MAX ? "max" : std::to_string(ranges[i].last);
      text +=
          fmt::format("{}{}:{}-{}", i == 0 ? "" : ";", ranges[i].algorithm, ranges[i].first, last);
    }
  }
  return text;
}

std::string_view name_of(NodeWay way) {
  switch (way) {
    case NodeWay::kLine:
      return "flag line";
    case NodeWay::kSlot:
      return "slots";
    case NodeWay::kStaged:
      return "staging ring, or in place in communicator memory";
  }
  return "unknown";
}

Limits Limits::fixed(int ranks_of_node, int nodes) {
  Limits limits;
  // In the slots everybody reads everything: with many ranks that pays only for less.
  limits.slot_bytes =
      std::min(NodeChannel::kSlotBytes,
               2 * NodeChannel::kSlotBytes / static_cast<std::size_t>(std::max(2, ranks_of_node)));
  // A tree over few nodes that are no power of two has more rounds than the exchange.
  limits.short_bytes = is_canonical(Algorithm::kDoubling, nodes) || nodes > 8 ? 8192 : 0;
  return limits;
}

NodeWay select_node_way(Operation operation, std::size_t bytes_in, const Limits& limits) {
  if (operation == Operation::kBarrier || bytes_in <= NodeChannel::kTinyBytes)
    return NodeWay::kLine;
  return bytes_in <= limits.slot_bytes ? NodeWay::kSlot : NodeWay::kStaged;
}

Algorithm select_between_nodes(const Selection& selection, const Limits& limits,
                               Operation operation, std::size_t bytes, int nodes, bool aligned) {
  if (!aligned) return Algorithm::kExchange;
  if (const auto name = selection.find(operation, bytes)) {
    if (const auto asked = algorithm_named(*name)) return *asked;
  }
  // Short: few rounds. Long: little to send. Both along the tree.
  if (bytes <= limits.short_bytes)
    return is_canonical(Algorithm::kDoubling, nodes) ? Algorithm::kDoubling : Algorithm::kTree;
  if (nodes > 8 && is_canonical(Algorithm::kHalving, nodes)) return Algorithm::kHalving;
  return Algorithm::kExchange;
}

int select_lanes(std::size_t bytes, int lanes) {
  constexpr std::size_t kPerLane = 8192;
  return static_cast<int>(
      std::clamp<std::size_t>(bytes / kPerLane, 1, static_cast<std::size_t>(lanes)));
}

std::string describe_selection(const Selection& selection, const Limits& limits, int ranks_of_node,
                               int nodes, bool aligned) {
  std::string text;
  if (ranks_of_node > 1) {
    text += fmt::format(
        "within a node of {} ranks, by bytes that a rank gives:\n"
        "  0-{:<11} {}\n  {}-{:<10} {}\n  {}-{:<7} {}\n",
        ranks_of_node, NodeChannel::kTinyBytes, name_of(NodeWay::kLine),
        NodeChannel::kTinyBytes + 1, limits.slot_bytes, name_of(NodeWay::kSlot),
        limits.slot_bytes + 1, "max", name_of(NodeWay::kStaged));
  }
  if (nodes > 1) {
    text += fmt::format("between {} nodes, all_reduce by bytes:\n", nodes);
    std::string last;
    for (std::size_t bytes = 1; bytes <= std::size_t{1} << 32; bytes *= 2) {
      const auto algorithm =
          select_between_nodes(selection, limits, Operation::kAllReduce, bytes, nodes, aligned);
      const std::string line =
          fmt::format("{}{}", name_of(algorithm),
                      is_canonical(algorithm, nodes) ? "" : " (asked for; sums not canonical)");
      if (line != last) text += fmt::format("  from {:<8} {}\n", bytes, line);
      last = line;
    }
  }
  if (!selection.asked.empty()) text += "asked for: " + selection.describe() + "\n";
  return text;
}

}  // namespace tandem::comm
