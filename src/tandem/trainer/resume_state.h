// tandem_state.json of a checkpoint: what only tandem needs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/optim/schedule.h"
#include "tandem/trainer/step_history.h"

namespace tandem::trainer {

// State that makes a continuation exact, in addition to weights, moments and TrainerState.
struct ResumeState {
  int logical_shards = 1;
  int per_device_train_batch_size = 1;
  int gradient_accumulation_steps = 1;
  std::int64_t num_features = 0;  // features of the training set, to notice another one
  std::string data_fingerprint;   // fingerprint of the training set's features and labels
  std::int64_t last_log_step = 0;
  std::vector<double> shard_loss_since_log;  // [logical_shards]
  double total_loss = 0;                     // sum over the logged steps, for train_loss
  std::string optimizer = "adamw_torch";     // whose state optimizer.pt is
  // State of reduce_lr_on_plateau and greedy; unset for other schedules.
  std::optional<optim::MetricSchedule::State> metric_schedule;
  // Written by Hugging Face's Trainer (python_checkpoint.h): accumulation, data and optimizer are
  // not recorded.
  bool from_python = false;
  // Updates that runs with --ignore_data_skip did not skip: epochs begin this much later.
  std::int64_t repeated_updates = 0;
  // The evaluation that follows this step was stopped before its end.
  bool evaluation_due = false;
  StepHistory history;  // history of the steps so far; empty in checkpoints of versions without it

  std::string to_json() const;
  // Parses tandem_state.json. Throws DataError, with `where` in its text, if it is damaged: a value
  // is missing, of another type or impossible.
  static ResumeState parse(std::string_view text, std::string_view where);
};

}  // namespace tandem::trainer
