#include "tandem/comm/algorithms/tuning.h"

#include <algorithm>
#include <limits>

namespace tandem::comm {

namespace {

constexpr int kDefaultMilliseconds = 50;
// Relative gain per size below which the limit is kept.
constexpr double kLeastGain = 0.02;

double loss_of(std::span<const Measured> measured, std::size_t limit) {
  double loss = 0;
  for (const Measured& one : measured)
    loss += (one.bytes <= limit ? one.few : one.many) / std::min(one.few, one.many);
  return loss;
}

}  // namespace

std::size_t choose_limit(std::span<const Measured> measured, std::size_t otherwise) {
  const double unchanged = loss_of(measured, otherwise);
  std::size_t best = otherwise;
  double least = unchanged - kLeastGain * static_cast<double>(measured.size());
  const auto consider = [&](std::size_t limit) {
    const double loss = loss_of(measured, limit);
    if (loss >= least) return;
    best = limit;
    least = loss;
  };
  if (!measured.empty()) consider(measured.front().bytes / 2);
  for (const Measured& one : measured) consider(one.bytes);
  return best;
}

std::chrono::milliseconds tuning_from_environment(const Environment& environment) {
  return std::chrono::milliseconds(
      environment.get_int("TANDEM_COMM_TUNING", 0, 10000).value_or(kDefaultMilliseconds));
}

}  // namespace tandem::comm
