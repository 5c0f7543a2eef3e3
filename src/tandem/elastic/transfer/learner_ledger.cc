#include "tandem/elastic/transfer/learner_ledger.h"

#include <algorithm>

namespace tandem::elastic {

std::optional<std::size_t> LearnerLedger::next_missing() const {
  if (first_missing_ == steps_.size()) return std::nullopt;
  return first_missing_;
}

void LearnerLedger::put(std::size_t chunk, std::uint64_t step) {
  steps_[chunk] = step;
  while (first_missing_ < steps_.size() && steps_[first_missing_]) ++first_missing_;
}

bool LearnerLedger::takes_gradient(std::size_t chunk, std::uint64_t step) const {
  return steps_[chunk] && *steps_[chunk] + 1 == step;
}

void LearnerLedger::drop(std::size_t chunk) {
  steps_[chunk].reset();
  first_missing_ = std::min(first_missing_, chunk);
}

void LearnerLedger::settled(std::uint64_t step) {
  for (std::size_t chunk = 0; chunk < steps_.size(); ++chunk)
    if (steps_[chunk] && *steps_[chunk] != step) drop(chunk);
}

std::optional<std::uint64_t> LearnerLedger::whole_at() const {
  const bool same = std::all_of(steps_.begin(), steps_.end(),
                                [&](const auto& step) { return step && step == steps_.front(); });
  return same && !steps_.empty() ? steps_.front() : std::nullopt;
}

std::size_t LearnerLedger::present() const {
  return static_cast<std::size_t>(std::count_if(steps_.begin(), steps_.end(),
                                                [](const auto& step) { return step.has_value(); }));
}

bool LearnerLedger::stalls() {
  const std::size_t now = present();
  ++steps_since_most_;
  if (now > most_ || now == steps_.size()) {
    most_ = now;
    steps_since_most_ = 0;
  }
  return steps_since_most_ >= kTimeout;
}

}  // namespace tandem::elastic
