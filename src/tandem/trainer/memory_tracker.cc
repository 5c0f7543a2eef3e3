#include "tandem/trainer/memory_tracker.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "tandem/core/json.h"
#include "tandem/core/memory_usage.h"

namespace tandem::trainer {

std::string MemoryTracker::name_of(Stage stage) {
  switch (stage) {
    case Stage::kInit:
      return "init";
    case Stage::kTrain:
      return "train";
    case Stage::kEval:
      return "eval";
    case Stage::kPredict:
      return "test";
  }
  return "";
}

void MemoryTracker::start(Stage stage) {
  if (!enabled_ || current_) return;
  current_ = stage;
  high_water_before_ = memory_usage().peak;
  begin_ = static_cast<std::int64_t>(resident_bytes());
  sampled_peak_ = begin_;
  sampler_ = std::jthread([this](const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any wake;
    std::unique_lock lock(mutex);
    while (!stop.stop_requested()) {
      const auto now = static_cast<std::int64_t>(resident_bytes());
      if (now > sampled_peak_) sampled_peak_ = now;
      wake.wait_for(lock, stop, std::chrono::milliseconds(1), [] { return false; });
    }
  });
}

void MemoryTracker::stop(Stage stage) {
  if (!enabled_ || current_ != stage) return;
  sampler_ = {};  // stops and joins
  const auto end = static_cast<std::int64_t>(resident_bytes());
  std::int64_t peak = std::max<std::int64_t>(sampled_peak_, end);
  // The kernel keeps the highest value of the whole process: where this stage raised it, it misses
  // nothing.
  const std::size_t high_water = memory_usage().peak;
  if (high_water > high_water_before_) peak = std::max(peak, static_cast<std::int64_t>(high_water));
  measured_[stage] = {.begin = begin_, .end = end, .peak = peak};
  current_.reset();
}

void MemoryTracker::stop_and_report(Stage stage, nlohmann::ordered_json& metrics) {
  if (!enabled_ || current_ != stage) return;
  stop(stage);
  const auto report = [&](Stage which) {
    const auto found = measured_.find(which);
    if (found == measured_.end()) return;
    const Measured& one = found->second;
    const std::string prefix = name_of(which) + "_mem_cpu_";
    metrics[prefix + "alloc_delta"] = one.end - one.begin;
    metrics[prefix + "peaked_delta"] = std::max<std::int64_t>(0, one.peak - one.end);
  };
  const bool first = !std::exchange(init_reported_, true);
  if (first) report(Stage::kInit);
  report(stage);
  if (first && measured_.contains(Stage::kInit))
    metrics["before_init_mem_cpu"] = measured_[Stage::kInit].begin;
}

}  // namespace tandem::trainer
