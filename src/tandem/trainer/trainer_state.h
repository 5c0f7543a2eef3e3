// trainer_state.json: what the Hugging Face Trainer records of a run, in its format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/json.h"

namespace tandem::trainer {

struct TrainerState {
  double epoch = 0;  // fraction of epochs done
  std::int64_t global_step = 0;
  std::int64_t max_steps = 0;
  std::int64_t num_train_epochs = 0;
  std::int64_t train_batch_size = 0;
  std::int64_t logging_steps = 500;
  std::int64_t eval_steps = 500;  // stays where the arguments have none
  std::int64_t save_steps = 500;
  double total_flos = 0;
  std::int64_t num_input_tokens_seen = 0;  // by all ranks, when asked for
  std::optional<double> best_metric;
  std::optional<std::string> best_model_checkpoint;
  std::int64_t best_global_step = 0;
  // Two values of the Trainer's TrainerControl, as at the last checkpoint.
  bool should_save = false;
  bool should_training_stop = false;
  // In the order of events; keys are sorted when written.
  std::vector<nlohmann::ordered_json> log_history;

  // The file's text: 2-space indent, sorted keys, newline at the end.
  std::string to_json() const;
  // Reads such a text (ours or Hugging Face's); `where` names it in messages. Throws DataError.
  static TrainerState parse(std::string_view text, std::string_view where);
};

// `value` for a file. The Trainer's counters are the whole number 0 until they are counted.
nlohmann::ordered_json whole_zero(double value);

}  // namespace tandem::trainer
