#include "tandem/core/disagreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem {
namespace {

constexpr std::size_t kMaxLines = 12;
constexpr std::size_t kMaxRanks = 4;  // named for one value

using Lines = std::map<std::string, std::string, std::less<>>;  // value by name

Lines lines_of(const std::string& text) {
  Lines lines;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const std::size_t equals = line.find('=');
    const bool named = equals != std::string_view::npos;
    lines.emplace(named ? line.substr(0, equals) : "", named ? line.substr(equals + 1) : line);
  }
  return lines;
}

// The values of one name, each with the ranks that have it, in the order of their lowest ranks.
using Values = std::vector<std::pair<std::string, std::vector<int>>>;

Values values_of(const std::string& name, const std::vector<Lines>& ranks) {
  Values values;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto found = ranks[rank].find(name);
    const std::string value = found == ranks[rank].end() ? "nothing" : found->second;
    auto entry = std::find_if(values.begin(), values.end(),
                              [&](const auto& one) { return one.first == value; });
    if (entry == values.end()) entry = values.insert(values.end(), {value, {}});
    entry->second.push_back(static_cast<int>(rank));
  }
  return values;
}

std::string names_of(const std::vector<int>& ranks, FunctionRef<std::string(int)> describe_rank) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(ranks.size(), kMaxRanks); ++i)
    names.push_back(describe_rank(ranks[i]));
  if (ranks.size() > kMaxRanks) names.push_back(fmt::format("{} more", ranks.size() - kMaxRanks));
  return fmt::format("{}", fmt::join(names, " and "));
}

}  // namespace

std::string describe_disagreement(std::span<const std::string> texts,
                                  FunctionRef<std::string(int)> describe_rank) {
  std::vector<Lines> ranks;
  std::map<std::string, Values> differing;
  for (const std::string& text : texts) ranks.push_back(lines_of(text));
  for (const Lines& lines : ranks) {
    for (const auto& [name, value] : lines) {
      if (differing.contains(name)) continue;
      Values values = values_of(name, ranks);
      if (values.size() > 1) differing.emplace(name, std::move(values));
    }
  }
  std::vector<std::string> shown_lines;
  for (const auto& [name, values] : differing) {
    if (shown_lines.size() == kMaxLines) break;
    std::vector<std::string> parts;
    for (const auto& [value, who] : values) {
      parts.push_back(
          fmt::format("{} on {}", value.empty() ? "(empty)" : value, names_of(who, describe_rank)));
    }
    shown_lines.push_back(
        fmt::format("{}{}{}", name, name.empty() ? "" : ": ", fmt::join(parts, ", ")));
  }
  if (differing.size() > kMaxLines)
    shown_lines.push_back(fmt::format("and {} more", differing.size() - kMaxLines));
  return fmt::format("{}", fmt::join(shown_lines, "\n  "));
}

std::string lines_of_list(std::string list) {
  for (std::size_t i = 0; i < list.size(); ++i)
    if (list[i] == ',' && !list.substr(i + 1, 1).starts_with(' ')) list[i] = '\n';
  return list;
}

}  // namespace tandem
