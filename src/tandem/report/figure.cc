#include "tandem/report/figure.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <string_view>

namespace tandem::report {
namespace {

// Three digits and the prefix of the decimal system.
std::string with_prefix(double value, std::string_view unit) {
  constexpr std::string_view kPrefixes[] = {"", "k", "M", "G", "T", "P", "E", "Z"};
  std::size_t prefix = 0;
  while (std::abs(value) >= 999.5 && prefix + 1 < std::size(kPrefixes)) {
    value /= 1000;
    ++prefix;
  }
  return fmt::format("{:.3g} {}{}", value, kPrefixes[prefix], unit);
}

// Large numbers without an exponent.
std::string rate(double value, std::string_view unit) {
  if (value >= 99.95 && value < 1e15) return fmt::format("{:.0f} {}", value, unit);
  return fmt::format("{:.3g} {}", value, unit);
}

struct Ending {
  std::string_view text, unit;
};
constexpr Ending kRates[] = {{"samples_per_second", "samples/s"},
                             {"steps_per_second", "steps/s"},
                             {"tokens_per_second", "tokens/s"}};

}  // namespace

std::string duration_text(double seconds) {
  if (!(seconds < 1e15)) return fmt::format("{} s", seconds);  // infinite or not a number
  if (seconds < 59.5) return fmt::format("{:.{}g} s", seconds, seconds < 10 ? 2 : 3);
  const std::int64_t whole = std::llround(seconds);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
}

std::string figure_text(std::string_view name, double value) {
  if (name.ends_with("_runtime")) return duration_text(value);
  if (name == "total_flos") return with_prefix(value, "FLOP");
  if (name.ends_with("num_input_tokens_seen")) return fmt::format("{:.0f} tokens", value);
  if (name.find("_mem_cpu_") != std::string_view::npos ||
      name.find("_mem_gpu_") != std::string_view::npos) {
    return fmt::format("{:.1f} MiB", value / (1 << 20));
  }
  for (const auto& [ending, unit] : kRates) {
    if (name.ends_with(ending)) return rate(value, unit);
  }
  return fmt::format("{:.6g}", value);
}

}  // namespace tandem::report
