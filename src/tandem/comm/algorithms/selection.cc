#include "tandem/comm/algorithms/selection.h"

#include <algorithm>
#include <charconv>
#include <span>

#include "tandem/comm/algorithms/slot_bytes.h"
#include "tandem/core/error.h"

namespace tandem::comm {
namespace {

struct Variable {
  Operation operation;
  std::string_view variable;
  std::string_view name;  // in oneCCL's syntax
};

// The first row of an operation has the printed name. Older versions of oneCCL have only
// CCL_ALLGATHERV.
constexpr Variable kVariables[] = {
    {Operation::kAllReduce, "CCL_ALLREDUCE", "allreduce"},
    {Operation::kReduce, "CCL_REDUCE", "reduce"},
    {Operation::kReduceScatter, "CCL_REDUCE_SCATTER", "reduce_scatter"},
    {Operation::kAllGather, "CCL_ALLGATHER", "allgather"},
    {Operation::kAllGather, "CCL_ALLGATHERV", "allgatherv"},
    {Operation::kAllToAll, "CCL_ALLTOALL", "alltoall"},
    {Operation::kBroadcast, "CCL_BCAST", "bcast"},
    {Operation::kBarrier, "CCL_BARRIER", "barrier"},
};

// The table's choice; in oneCCL, the algorithm for GPUs.
constexpr std::string_view kTable = "topo";

// A name that users request and the algorithm that runs for it.
struct Name {
  std::string_view name;
  std::string_view runs;
};

// Names of this library; each means the same as in oneCCL, if oneCCL has the name.
constexpr Name kSums[] = {{kTable, kTable},
                          {"exchange", "exchange"},
                          {"tree", "tree"},
                          {"recursive_doubling", "recursive_doubling"},
                          {"rabenseifner", "rabenseifner"},
                          {"ring", "ring"}};

// oneCCL's other names (from its page of environment variables; starlike, ring_rma and
// scatter_barrier belong to older versions), and the nearest algorithm here. nreduce and starlike:
// every rank adds up one slice and sends it to all, which is the exchange. 2d: sums inside groups,
// then between them, as all sums here work. direct: the choice of MPI.
std::vector<Name> names_in_ccl(Operation operation) {
  switch (operation) {
    case Operation::kAllReduce:
      return {{"direct", kTable},   {"nreduce", "exchange"}, {"starlike", "exchange"},
              {"ring_rma", "ring"}, {"double_tree", "tree"}, {"2d", kTable}};
    case Operation::kReduce:
      return {{"direct", kTable}, {"double_tree", "tree"}};
    case Operation::kReduceScatter:
      return {{"direct", kTable}, {"naive", "exchange"}};
    case Operation::kAllGather:
      return {{"direct", kTable},
              {"naive", kTable},
              {"ring", kTable},
              {"flat", kTable},
              {"multi_bcast", kTable}};
    case Operation::kAllToAll:
      return {
          {"direct", kTable}, {"naive", kTable}, {"scatter", kTable}, {"scatter_barrier", kTable}};
    case Operation::kBroadcast:
      return {{"direct", kTable}, {"naive", kTable}, {"ring", kTable}, {"double_tree", kTable}};
    case Operation::kBarrier:
      return {{"direct", kTable}, {"ring", kTable}};
    default:
      return {};
  }
}

bool has_choice(Operation operation) {
  return operation == Operation::kAllReduce || operation == Operation::kReduce ||
         operation == Operation::kReduceScatter;
}

std::string_view name_in_ccl(Operation operation) {
  for (const Variable& row : kVariables) {
    if (row.operation == operation) return row.name;
  }
  return name_of(operation);
}

const Name* find_name(std::span<const Name> names, std::string_view name) {
  const auto found = std::find_if(names.begin(), names.end(),
                                  [&](const Name& known) { return known.name == name; });
  return found == names.end() ? nullptr : &*found;
}

// The algorithm that runs for `name`; `note` explains a difference from the request.
std::string_view what_runs_for(Operation operation, std::string_view name, std::string_view source,
                               std::string& note) {
  const std::span<const Name> own = has_choice(operation) ? std::span(kSums) : std::span(kSums, 1);
  const std::vector<Name> in_ccl = names_in_ccl(operation);
  if (const Name* const known = find_name(own, name)) return known->runs;
  if (const Name* const known = find_name(in_ccl, name)) {
    note = !has_choice(operation)
               ? fmt::format("{}: {} has one algorithm here, '{}' changes nothing", source,
                             name_in_ccl(operation), name)
           : known->runs == kTable
               ? fmt::format("{}: there is no '{}' here, the table's choice is used instead",
                             source, name)
               : fmt::format("{}: there is no '{}' here, '{}' is used instead", source, name,
                             known->runs);
    return known->runs;
  }
  std::vector<std::string_view> names;
  for (const Name& one : own) names.push_back(one.name);
  for (const Name& one : in_ccl) names.push_back(one.name);
  raise<ConfigError>("{}: unknown algorithm '{}' for {}; there are {}", source, name,
                     name_in_ccl(operation), fmt::join(names, ", "));
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

AlgorithmRange read_range(Operation operation, std::string_view part, std::string_view source,
                          std::string& note) {
  AlgorithmRange range;
  const std::size_t colon = part.find(':');
  range.algorithm = what_runs_for(operation, part.substr(0, colon), source, note);
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
  // The operation may precede the name: "allreduce:ring".
  for (const Variable& row : kVariables) {
    const std::string prefix = std::string(row.name) + ":";
    if (row.operation == operation && text.starts_with(prefix)) text.remove_prefix(prefix.size());
  }
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(';'), text.size());
    std::string note;
    if (end > 0) ranges.push_back(read_range(operation, text.substr(0, end), source, note));
    if (!note.empty() && std::find(notes.begin(), notes.end(), note) == notes.end())
      notes.push_back(note);
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

std::string_view name_of(NodeAlgorithm algorithm) {
  switch (algorithm) {
    case NodeAlgorithm::kLine:
      return "flag line";
    case NodeAlgorithm::kSlot:
      return "slots";
    case NodeAlgorithm::kStaged:
      return "staging ring, or in place in communicator memory";
  }
  return "unknown";
}

Limits Limits::fixed(int ranks_of_node, int nodes) {
  Limits limits;
  // In the slots every rank reads the data of all others: with many ranks that is faster only for
  // less data.
  limits.slot_bytes =
      std::min(kSlotBytes, 2 * kSlotBytes / static_cast<std::size_t>(std::max(2, ranks_of_node)));
  // A tree over few nodes whose number is not a power of two has more rounds than the exchange.
  limits.short_bytes = is_canonical(Algorithm::kDoubling, nodes) || nodes > 8 ? 8192 : 0;
  return limits;
}

NodeAlgorithm select_node_algorithm(Operation operation, std::size_t bytes_in,
                                    const Limits& limits) {
  if (operation == Operation::kBarrier || bytes_in <= kTinyBytes) return NodeAlgorithm::kLine;
  return bytes_in <= limits.slot_bytes ? NodeAlgorithm::kSlot : NodeAlgorithm::kStaged;
}

Algorithm select_between_nodes(const Selection& selection, const Limits& limits,
                               Operation operation, std::size_t bytes, int nodes, bool aligned) {
  if (!aligned) return Algorithm::kExchange;
  if (const auto name = selection.find(operation, bytes)) {
    if (const auto asked = algorithm_named(*name)) return *asked;
  }
  // Short: few rounds. Long: few bytes. Both along the tree.
  if (bytes <= limits.short_bytes)
    return is_canonical(Algorithm::kDoubling, nodes) ? Algorithm::kDoubling : Algorithm::kTree;
  if (nodes > 8 && is_canonical(Algorithm::kHalving, nodes)) return Algorithm::kHalving;
  return Algorithm::kExchange;
}

int select_rails(std::size_t bytes, int rails) {
  constexpr std::size_t kPerRail = 8192;
  return static_cast<int>(
      std::clamp<std::size_t>(bytes / kPerRail, 1, static_cast<std::size_t>(rails)));
}

namespace {

// The sizes at which the algorithm of `operation` may change, ascending, starting at one byte.
std::vector<std::size_t> boundaries(const Selection& selection, const Limits& limits,
                                    Operation operation) {
  std::vector<std::size_t> first = {1};
  const auto add_after = [&](std::size_t last) {
    if (last != SIZE_MAX) first.push_back(last + 1);
  };
  add_after(limits.short_bytes);
  const auto asked = selection.asked.find(operation);
  if (asked != selection.asked.end()) {
    for (const AlgorithmRange& range : asked->second) {
      first.push_back(std::max(range.first, std::size_t{1}));
      add_after(range.last);
    }
  }
  std::sort(first.begin(), first.end());
  first.erase(std::unique(first.begin(), first.end()), first.end());
  return first;
}

// "    1-8192               tree\n    8193-max …".
std::string describe_operation(const Selection& selection, const Limits& limits,
                               Operation operation, int nodes, bool aligned) {
  std::string text;
  std::string line;
  std::size_t begin = 1;
  const auto finish = [&](const std::string& last) {
    if (!line.empty())
      text += fmt::format("    {:<20} {}\n", fmt::format("{}-{}", begin, last), line);
  };
  for (const std::size_t bytes : boundaries(selection, limits, operation)) {
    const Algorithm algorithm =
        select_between_nodes(selection, limits, operation, bytes, nodes, aligned);
    const bool ignored = !aligned && selection.find(operation, bytes).value_or(kTable) != kTable;
    const std::string next =
        fmt::format("{}{}{}", name_of(algorithm),
                    is_canonical(algorithm, nodes) ? "" : " (asked for; sums not canonical)",
                    ignored ? " (what was asked for needs nodes whose ranks are one subtree)" : "");
    if (next == line) continue;
    finish(std::to_string(bytes - 1));
    line = next;
    begin = bytes;
  }
  finish("max");
  return text;
}

}  // namespace

std::string describe_selection(const Selection& selection, const Limits& limits, int ranks_of_node,
                               int nodes, bool aligned) {
  std::string text;
  if (ranks_of_node > 1) {
    text += fmt::format(
        "within a node of {} ranks, all operations, by bytes that a rank gives:\n"
        "    0-{:<18} {}\n    {}-{:<17} {}\n    {}-{:<14} {}\n",
        ranks_of_node, kTinyBytes, name_of(NodeAlgorithm::kLine), kTinyBytes + 1, limits.slot_bytes,
        name_of(NodeAlgorithm::kSlot), limits.slot_bytes + 1, "max",
        name_of(NodeAlgorithm::kStaged));
  }
  if (nodes > 1) {
    text += fmt::format("between {} nodes, by bytes of one rank's numbers:\n", nodes);
    for (const auto& [operation, title] :
         {std::pair{Operation::kAllReduce, "all_reduce"}, std::pair{Operation::kReduce, "reduce"},
          std::pair{Operation::kReduceScatter,
                    "reduce_scatter, where nodes differ in their number of ranks; else exchange"}})
      text += fmt::format("  {}\n{}", title,
                          describe_operation(selection, limits, operation, nodes, aligned));
    text += "  the others have one algorithm each\n";
  }
  if (!selection.asked.empty()) text += "asked for: " + selection.describe() + "\n";
  for (const std::string& note : selection.notes) text += note + "\n";
  return text;
}

}  // namespace tandem::comm
