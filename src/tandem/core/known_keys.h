// Keys of a settings file that another program defines, and what tandem does with each. A reader
// checks a file against its table, so that no key is ignored without a word.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

enum class KeyUse : std::uint8_t {
  kHonoured,    // has the effect that the other program gives it
  kIrrelevant,  // changes nothing that tandem computes
  kRefused,     // a value that would change a result is an error
};

struct KnownKey {
  std::string_view name;
  std::string_view scope;  // where the key has this meaning, separated by blanks; "": everywhere
  KeyUse use;
  std::string_view reason;
  std::string_view accepted = "";  // refused key: JSON list of its values; null is one of them
};

struct KeyFindings {
  std::string refusal;  // the first refused value: "found X; expected Y: reason"; else empty
  std::vector<std::string> unknown;  // keys that the table does not have in this scope
};

// Compares the keys of `object` with those of `table` that have no scope or this one.
KeyFindings check_keys(const nlohmann::json& object, std::span<const KnownKey> table,
                       std::string_view scope = "");

// "'dir/config.json': unknown keys are ignored: a, b"; empty without unknown keys.
std::string unknown_keys_note(const KeyFindings& findings, std::string_view where);

// The rows of the table in Markdown, one line each, as docs/model_keys.md has them.
std::string key_rows(std::span<const KnownKey> table);

}  // namespace tandem
