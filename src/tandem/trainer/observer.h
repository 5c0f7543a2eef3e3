// Interface for the progress of a run, implemented by the console, TensorBoard and the report. The
// trainer itself never prints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "tandem/trainer/step_history.h"
#include "tandem/trainer/training_plan.h"

namespace tandem::trainer {

// Facts known about the run before its first step.
struct TrainBegin {
  const TrainingPlan& plan;
  std::size_t num_parameters = 0;
  std::int64_t first_step = 0;  // > 0: resumed
  bool continued = false;       // by other ranks of an elastic job, which have reported all this
};

// The past of a run.
struct LogSoFar {
  const std::vector<nlohmann::ordered_json>& entries;  // entries of the log, with their steps
  const std::vector<StepPoint>& steps;
  std::int64_t step = 0;  // the last one
};

// After every optimizer step.
struct StepProgress {
  std::int64_t step = 0;  // steps done
  std::int64_t max_steps = 0;
  double epoch = 0;
  double loss = 0;       // mean over the shards of this rank
  double mean_loss = 0;  // mean over all shards
  double learning_rate = 0;
  double real_tokens_per_second = 0;  // all ranks, over the last steps
  double flops_per_second = 0;        // speed of this rank, over the last steps
  double seconds_left = 0;
};

// Calls come from the thread that trains, in the order of events. The default of each does nothing.
class Observer {
 public:
  virtual ~Observer() = default;
  // The past of an elastic job that continues with other ranks. This process may have seen all of
  // it, some or none.
  virtual void log_so_far(const LogSoFar&) {}
  virtual void train_begin(const TrainBegin&) {}
  virtual void step_end(const StepProgress&) {}
  // A log entry as trainer_state.json records it, without its step.
  virtual void log(const nlohmann::ordered_json& /*entry*/) {}
  virtual void train_end() {}
  virtual void evaluation_begin(std::string_view /*description*/, std::size_t /*num_features*/,
                                int /*batch_size*/) {}
  virtual void evaluation_progress(std::size_t /*features_done*/, std::size_t /*num_features*/) {}
  virtual void evaluation_end() {}
  virtual void saving(const std::filesystem::path& /*directory*/) {}
  virtual void note(std::string_view /*text*/) {}
  virtual void warning(std::string_view /*text*/) {}
};

}  // namespace tandem::trainer
