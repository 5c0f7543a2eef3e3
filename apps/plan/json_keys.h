// JSON objects of numbers, in the units that people use, as structs in SI units.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string_view>

namespace tandem::apps::plan {

// A number of a struct.
struct NumberKey {
  const char* name;
  double* value;
  double unit;
  double most;
  bool required;
};

// For messages: "m.json: the profile has no 'peak_gflops'; ADVICE".
struct NumbersOrigin {
  std::string_view where;        // a file
  std::string_view what;         // "profile"
  std::string_view advice = {};  // for a missing key
};

// Writes the values; those of keys that are absent and not required stay. Throws ConfigError for
// broken JSON and for a key that is missing, unknown or out of range.
void parse_numbers(std::string_view json, std::span<const NumberKey> keys,
                   const NumbersOrigin& origin);
nlohmann::ordered_json numbers_json(std::span<const NumberKey> keys);

}  // namespace tandem::apps::plan
