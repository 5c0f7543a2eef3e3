#include "tandem/report/tensorboard.h"

#include <fmt/format.h>

#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/json.h"

namespace tandem::report {

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

void TensorBoardObserver::step_end(const trainer::StepProgress& progress) { step_ = progress.step; }

void TensorBoardObserver::log(const nlohmann::ordered_json& entry) {
  write([&](EventFile& file) { add_scalars(file, entry, step_); });
}

void TensorBoardObserver::log_so_far(const std::vector<nlohmann::ordered_json>& entries,
                                     std::int64_t step) {
  step_ = step;
  if (file_ != nullptr) return;  // it has written them
  write([&](EventFile& file) {
    file.add_start(entries.empty() ? step : entries.front().value("step", step));
    for (const auto& entry : entries) add_scalars(file, entry, entry.value("step", step));
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
