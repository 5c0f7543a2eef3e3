// Going on where others of an elastic job have been.

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"
#include "tandem/core/whole_number.h"
#include "tandem/trainer/trainer.h"

namespace tandem::trainer {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

std::string Trainer::progress() const {
  ResumeState resume = resume_;
  resume.metric_schedule = learning_rate_->state();
  resume.shard_loss_since_log = counts_.losses;
  ordered_json json;
  json["state"] = state_.to_json();
  json["resume"] = resume.to_json();
  json["uncounted_tokens"] = counts_.uncounted_tokens;
  json["uncounted_computed_tokens"] = counts_.uncounted_computed_tokens;
  json["computed_tokens"] = counts_.computed_tokens;
  json["seconds"] = seconds_of_training();
  json["first_step"] = session_.first_step;
  if (!session_.final_metrics.is_null()) json["final_metrics"] = session_.final_metrics;
  return python_json(json);
}

void Trainer::keep_progress() {
  if (parts_.callbacks.is_elastic()) parts_.callbacks.progress(progress());
}

void Trainer::adopt(const std::string& progress) {
  constexpr std::string_view kWhere = "the progress of the job";
  try {
    const ordered_json json = parse_python_json(progress);
    state_ = TrainerState::parse(json.at("state").get<std::string>(), kWhere);
    resume_ = ResumeState::parse(json.at("resume").get<std::string>(), kWhere);
    counts_.uncounted_tokens = whole_number<std::int64_t>(json.at("uncounted_tokens"));
    counts_.uncounted_computed_tokens =
        whole_number<std::int64_t>(json.at("uncounted_computed_tokens"));
    counts_.computed_tokens = json.at("computed_tokens").get<double>();
    session_.seconds_before = json.at("seconds").get<double>();
    session_.first_step = whole_number<std::int64_t>(json.at("first_step"));
    session_.final_metrics = json.value("final_metrics", ordered_json());
  } catch (const ordered_json::exception& error) {
    raise<DataError>("{} cannot be read: {}", kWhere, error.what());
  }
  counts_.losses = resume_.shard_loss_since_log;
  learning_rate_->restore(resume_.metric_schedule);
}

bool Trainer::has_checkpoint() const {
  return fs::exists(fs::path(parts_.arguments.output_dir) /
                    fmt::format("checkpoint-{}", state_.global_step));
}

void Trainer::save_and_wait() {
  if (state_.global_step > 0 && !has_checkpoint()) save();
  parts_.communicator.barrier();
  raise<ViewChanges>("the job waits for more nodes");
}

void Trainer::continue_from(const Continuation& from) {
  make_plan();
  adopt(from.progress);
  session_.continued = true;
  parts_.observer.log_so_far({.entries = state_.log_history,
                              .steps = resume_.history.points(),
                              .step = state_.global_step});
  if (session_.final_metrics.is_null()) log_start();  // a log entry may be due
  keep_progress();
  std::vector<std::vector<double>> records = from.records;
  const auto counted = static_cast<std::uint64_t>(state_.global_step) + records.size();
  // The survivors finished one more step, or the rank that would have recorded it is dead.
  if (parts_.model.step() == counted + 1) records.push_back(parts_.model.record());
  TANDEM_CHECK(
      static_cast<std::uint64_t>(state_.global_step) + records.size() == parts_.model.step(),
      "the ranks have the weights of step {} and the records of step {}", parts_.model.step(),
      counted);
  double learning_rate = 0;
  for (const std::vector<double>& record : records) {
    learning_rate = learning_rate_->at(state_.global_step);
    count_step(StepRecord(record), learning_rate);
    parts_.callbacks.step_applied(static_cast<std::uint64_t>(state_.global_step), record);
  }
  // Work after the newest step that may not have been done yet.
  if (!records.empty()) return after_step(StepRecord(records.back()).grad_norm(), learning_rate);
  if (resume_.evaluation_due) return evaluate_and_save(due());
  if (state_.global_step > 0 && due().checkpoint && !has_checkpoint()) save();
}

}  // namespace tandem::trainer
