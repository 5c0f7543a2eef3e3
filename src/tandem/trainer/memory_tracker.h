// The memory that each stage of a job took, in Hugging Face's terms (--skip_memory_metrics false).
//
// Measured is the resident memory of this process, shared memory counted whole. A stage has two
// numbers: alloc_delta, what is resident at its end beyond what was at its beginning (negative if
// it gave memory back), and peaked_delta, how much more was resident in between, never negative.
// Their sum is what the stage needed. Stages do not nest: an evaluation inside training counts as
// training.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <thread>

namespace tandem::trainer {

class MemoryTracker {
 public:
  enum class Stage { kInit, kTrain, kEval, kPredict };

  // Without `enabled` every function does nothing.
  explicit MemoryTracker(bool enabled) : enabled_(enabled) {}

  // One stage is measured at a time; start() and stop() inside another stage do nothing.
  void start(Stage stage);
  void stop(Stage stage);
  // stop(), and adds <stage>_mem_cpu_alloc_delta and <stage>_mem_cpu_peaked_delta (bytes) to
  // `metrics`; the first time also those of the init stage, and before_init_mem_cpu, what was
  // resident when it began.
  void stop_and_report(Stage stage, nlohmann::ordered_json& metrics);

 private:
  struct Measured {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::int64_t peak = 0;
  };
  static std::string name_of(Stage stage);

  bool enabled_;
  bool init_reported_ = false;
  std::optional<Stage> current_;
  std::int64_t begin_ = 0;
  std::size_t high_water_before_ = 0;  // peak of the process, from its start
  std::map<Stage, Measured> measured_;
  // The thread that looks every millisecond.
  std::atomic<std::int64_t> sampled_peak_{0};
  std::jthread sampler_;
};

}  // namespace tandem::trainer
