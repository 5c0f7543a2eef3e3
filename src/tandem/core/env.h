// The one place where the process environment is read. Every variable tandem looks at is in
// `registry()` with its meaning; a test compares the registry with docs/environment_variables.md.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tandem {

struct EnvironmentVariable {
  std::string_view name;
  std::string_view meaning;  // one sentence, as in docs/environment_variables.md
};

// A snapshot of the registered variables, taken once by apps/ and passed down. Tests make their
// own. Immutable, thread-safe.
class Environment {
 public:
  Environment() = default;
  explicit Environment(std::map<std::string, std::string, std::less<>> values);

  // Reads the variables of registry() from the process environment.
  static Environment from_process();
  static std::span<const EnvironmentVariable> registry();

  // The value, or nothing when unset or empty. TANDEM_CHECKs that `name` is in the registry.
  std::optional<std::string> get(std::string_view name) const;
  // The value as an integer in [min, max]; throws ConfigError that names the variable, its value
  // and the range.
  std::optional<long> get_int(std::string_view name, long min, long max) const;
  // HF's truth values: 1, ON, YES, TRUE in any case.
  bool get_flag(std::string_view name) const;

  const std::map<std::string, std::string, std::less<>>& values() const { return values_; }

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

// Every variable of this process, registered or not: what programs that it starts inherit.
std::map<std::string, std::string, std::less<>> inherited_environment();

}  // namespace tandem
