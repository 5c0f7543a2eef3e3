#include "tandem/report/tensorboard.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/json.h"

namespace tandem::report {
namespace {

constexpr std::string_view kStepLoss = "train/step_loss";

// A function of the step alone, so that a run that is resumed writes the steps that it would have.
std::int64_t interval_at(std::int64_t step) {
  std::int64_t interval = 1;
  while (step > interval * TensorBoardObserver::kStepsInFull) interval *= 2;
  return interval;
}

}  // namespace

std::string tensorboard_tag(std::string_view key) {
  if (key.starts_with("eval_")) return fmt::format("eval/{}", key.substr(5));
  if (key.starts_with("test_")) return fmt::format("test/{}", key.substr(5));
  return fmt::format("train/{}", key);
}

TensorBoardObserver::TensorBoardObserver(TensorBoardOptions options)
    : options_(std::move(options)) {}

void TensorBoardObserver::train_begin(const trainer::TrainBegin& begin) {
  step_ = begin.first_step;
  if (std::exchange(has_texts_, true)) return;
  write([&](EventFile& file) {
    file.add_text("args", options_.arguments_json, 0);
    file.add_text("model_config", options_.model_config_json, 0);
  });
}

void TensorBoardObserver::step_end(const trainer::StepProgress& progress) {
  step_ = progress.step;
  if (step_ % interval_at(step_) != 0) return;
  write([&](EventFile& file) { file.add_scalar(kStepLoss, progress.mean_loss, step_); });
}

void TensorBoardObserver::log(const nlohmann::ordered_json& entry) {
  write([&](EventFile& file) { add_scalars(file, entry, step_); });
}

void TensorBoardObserver::log_so_far(const trainer::LogSoFar& past) {
  step_ = past.step;
  if (file_ != nullptr) return;  // it has written them
  std::int64_t first = past.step;
  if (!past.entries.empty()) first = std::min(first, past.entries.front().value("step", first));
  if (!past.steps.empty()) first = std::min(first, past.steps.front().step);
  write([&](EventFile& file) {
    file.add_start(first);
    for (const trainer::StepPoint& point : past.steps)
      file.add_scalar(kStepLoss, point.loss, point.step);
    for (const auto& entry : past.entries) add_scalars(file, entry, entry.value("step", past.step));
  });
}

void TensorBoardObserver::add_scalars(EventFile& file, const nlohmann::ordered_json& entry,
                                      std::int64_t step) {
  for (const auto& [key, value] : entry.items()) {
    if (value.is_number() && key != "step")
      file.add_scalar(tensorboard_tag(key), value.get<double>(), step);
  }
}

void TensorBoardObserver::write(const std::function<void(EventFile&)>& events) {
  if (failed_) return;
  try {
    if (file_ == nullptr) file_ = std::make_unique<EventFile>(options_.directory);
    events(*file_);
  } catch (const IoError& error) {
    failed_ = true;
    options_.warn(fmt::format("no more TensorBoard events: {}", error.what()));
  }
}

}  // namespace tandem::report
