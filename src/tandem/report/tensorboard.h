// A run for TensorBoard: what transformers' TensorBoardCallback writes, under the same tags.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/report/event_file.h"
#include "tandem/trainer/observer.h"

namespace tandem::report {

struct TensorBoardOptions {
  std::filesystem::path directory;  // logging_dir; made with the first event
  std::string arguments_json;       // text "args"
  std::string model_config_json;    // text "model_config"
  // Gets one message when the file cannot be written; from then on nothing is tried. A full disk
  // under logging_dir must not end a training.
  std::function<void(const std::string&)> warn;
};

// For the main process. Log entries become scalars at the step that has just been done: eval_f1 →
// eval/f1, test_f1 → test/f1, others train/<name>. The loss of a step is train/step_loss whatever
// is logged: of every step up to kStepsInFull, then of every second up to twice as many, and so on.
// The texts are written when training begins. A process that takes over a job writes its whole log
// again: files of processes before it may lack the newest entries, or have some that come once
// more.
class TensorBoardObserver final : public trainer::Observer {
 public:
  static constexpr std::int64_t kStepsInFull = 1000;
  explicit TensorBoardObserver(TensorBoardOptions options);

  void log_so_far(const trainer::LogSoFar& past) override;
  void train_begin(const trainer::TrainBegin& begin) override;
  void step_end(const trainer::StepProgress& progress) override;
  void log(const nlohmann::ordered_json& entry) override;

 private:
  void write(const std::function<void(EventFile&)>& events);
  void add_scalars(EventFile& file, const nlohmann::ordered_json& entry, std::int64_t step);

  TensorBoardOptions options_;
  std::unique_ptr<EventFile> file_;
  std::int64_t step_ = 0;
  bool has_texts_ = false;
  bool failed_ = false;
};

// "eval_f1" → "eval/f1", "loss" → "train/loss".
std::string tensorboard_tag(std::string_view key);

}  // namespace tandem::report
