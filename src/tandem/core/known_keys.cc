#include "tandem/core/known_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tandem/core/json.h"

namespace tandem {
namespace {

bool has_word(std::string_view words, std::string_view word) {
  for (std::size_t at = 0; at <= words.size();) {
    const std::size_t end = std::min(words.find(' ', at), words.size());
    if (words.substr(at, end - at) == word) return true;
    at = end + 1;
  }
  return false;
}

bool is_accepted(const KnownKey& key, const nlohmann::json& value) {
  if (value.is_null() || key.accepted.empty()) return value.is_null();
  const nlohmann::json accepted = parse_json(key.accepted);
  return std::find(accepted.begin(), accepted.end(), value) != accepted.end();
}

std::string refusal_of(const KnownKey& key, const nlohmann::json& value) {
  std::string expected;
  if (!key.accepted.empty()) {
    for (const nlohmann::json& accepted : parse_json(key.accepted))
      expected += fmt::format("{}{}", expected.empty() ? "" : " or ", accepted.dump());
  }
  return fmt::format("{} is {}; expected {}: {}", key.name,
                     value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                     expected.empty() ? "null" : expected, key.reason);
}

std::string_view name_of(KeyUse use) {
  switch (use) {
    case KeyUse::kHonoured:
      return "honoured";
    case KeyUse::kIrrelevant:
      return "irrelevant";
    case KeyUse::kRefused:
      break;
  }
  return "refused";
}

}  // namespace

KeyFindings check_keys(const nlohmann::json& object, std::span<const KnownKey> table,
                       std::string_view scope) {
  KeyFindings findings;
  for (const auto& [name, value] : object.items()) {
    const auto found = std::find_if(table.begin(), table.end(), [&, &name = name](const auto& key) {
      return key.name == name && (key.scope.empty() || has_word(key.scope, scope));
    });
    if (found == table.end()) {
      findings.unknown.push_back(name);
    } else if (found->use == KeyUse::kRefused && findings.refusal.empty() &&
               !is_accepted(*found, value)) {
      findings.refusal = refusal_of(*found, value);
    }
  }
  return findings;
}

std::string unknown_keys_note(const KeyFindings& findings, std::string_view where) {
  if (findings.unknown.empty()) return {};
  constexpr std::size_t kMostShown = 20;
  const auto& unknown = findings.unknown;
  const auto shown = std::span(unknown).first(std::min(unknown.size(), kMostShown));
  return fmt::format("'{}': unknown keys are ignored: {}{}", where, fmt::join(shown, ", "),
                     unknown.size() > kMostShown ? ", …" : "");
}

std::string key_rows(std::span<const KnownKey> table) {
  std::string rows;
  for (const KnownKey& key : table) {
    const std::string values = key.use != KeyUse::kRefused ? ""
                               : key.accepted.empty()
                                   ? " unless null"
                                   : fmt::format(" unless one of `{}`", key.accepted);
    rows +=
        fmt::format("| `{}` | {} | {}{} | {} |\n", key.name, key.scope.empty() ? "any" : key.scope,
                    name_of(key.use), values, key.reason);
  }
  return rows;
}

}  // namespace tandem
