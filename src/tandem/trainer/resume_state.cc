#include "tandem/trainer/resume_state.h"

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"

namespace tandem::trainer {
namespace {

using nlohmann::ordered_json;

// Where another number than a run can have stands, the library would take some bits of it.
template <class T>
T whole(const ordered_json& json, const char* name, T least) {
  const ordered_json& value = json.at(name);
  const auto number = value.is_number_integer() ? value.get<std::int64_t>() : 0;
  if (!value.is_number_integer() || number < static_cast<std::int64_t>(least) ||
      static_cast<std::int64_t>(static_cast<T>(number)) != number) {
    raise<DataError>("{} is {}, expected a whole number from {}", name, value.dump(), least);
  }
  return static_cast<T>(number);
}

template <class T>
T whole_or(const ordered_json& json, const char* name, T least, T otherwise) {
  return json.contains(name) ? whole<T>(json, name, least) : otherwise;
}

optim::MetricSchedule::State schedule_of(const ordered_json& saved) {
  optim::MetricSchedule::State state;
  saved.at("learning_rate").get_to(state.learning_rate);
  if (!saved.at("best").is_null()) state.best = saved.at("best").get<double>();
  state.num_bad = whole<std::uint64_t>(saved, "num_bad", 0);
  state.cooldown_left = whole<std::uint64_t>(saved, "cooldown_left", 0);
  state.num_good = whole_or<std::uint64_t>(saved, "num_good", 0, state.num_good);
  state.warmup_left = whole_or<std::uint64_t>(saved, "warmup_left", 0, state.warmup_left);
  state.reset_left = whole_or<std::int64_t>(saved, "reset_left", 0, state.reset_left);
  state.window = saved.value("window", state.window);
  state.window_sum = saved.value("window_sum", state.window_sum);
  return state;
}

ResumeState resume_state_of(const ordered_json& json) {
  ResumeState resume;
  json.at("data_fingerprint").get_to(resume.data_fingerprint);
  resume.gradient_accumulation_steps = whole<int>(json, "gradient_accumulation_steps", 1);
  resume.last_log_step = whole<std::int64_t>(json, "last_log_step", 0);
  resume.logical_shards = whole<int>(json, "logical_shards", 1);
  resume.num_features = whole<std::int64_t>(json, "num_features", 0);
  resume.per_device_train_batch_size = whole<int>(json, "per_device_train_batch_size", 1);
  json.at("shard_loss_since_log").get_to(resume.shard_loss_since_log);
  json.at("total_loss").get_to(resume.total_loss);
  resume.optimizer = json.value("optimizer", resume.optimizer);
  resume.repeated_updates =
      whole_or<std::int64_t>(json, "repeated_updates", 0, resume.repeated_updates);
  resume.evaluation_due = json.value("evaluation_due", resume.evaluation_due);
  if (json.contains("history")) {
    const auto text = json.at("history").get<std::string>();
    resume.history = StepHistory::from_json(parse_ordered_json(text));
  }
  // Under the name of the only schedule of its kind in checkpoints from before greedy.
  for (const char* key : {"metric_schedule", "reduce_lr_on_plateau"}) {
    if (json.contains(key)) resume.metric_schedule = schedule_of(json.at(key));
  }
  if (resume.shard_loss_since_log.size() != static_cast<std::size_t>(resume.logical_shards)) {
    raise<DataError>("shard_loss_since_log has {} values for {} shards",
                     resume.shard_loss_since_log.size(), resume.logical_shards);
  }
  return resume;
}

}  // namespace

std::string ResumeState::to_json() const {
  ordered_json json;
  json["data_fingerprint"] = data_fingerprint;
  json["gradient_accumulation_steps"] = gradient_accumulation_steps;
  json["last_log_step"] = last_log_step;
  json["logical_shards"] = logical_shards;
  json["num_features"] = num_features;
  json["optimizer"] = optimizer;
  json["per_device_train_batch_size"] = per_device_train_batch_size;
  json["shard_loss_since_log"] = shard_loss_since_log;
  json["total_loss"] = total_loss;
  if (evaluation_due) json["evaluation_due"] = true;
  json["history"] = history.to_json().dump();  // as a text: one line instead of one per number
  if (repeated_updates > 0) json["repeated_updates"] = repeated_updates;
  if (metric_schedule) {
    const optim::MetricSchedule::State& state = *metric_schedule;
    json["metric_schedule"] = {{"learning_rate", state.learning_rate},
                               {"best", state.best ? ordered_json(*state.best) : ordered_json()},
                               {"num_bad", state.num_bad},
                               {"cooldown_left", state.cooldown_left},
                               {"num_good", state.num_good},
                               {"warmup_left", state.warmup_left},
                               {"reset_left", state.reset_left},
                               {"window", state.window},
                               {"window_sum", state.window_sum}};
  }
  return python_json(json, {.indent = 2, .sort_keys = true}) + "\n";
}

ResumeState ResumeState::parse(std::string_view text, std::string_view where) {
  std::string reason;
  try {
    return resume_state_of(parse_python_json(text));
  } catch (const nlohmann::json::exception& error) {
    reason = json_reason(error.what());
  } catch (const DataError& error) {
    reason = error.what();
  }
  raise<DataError>("'{}' is damaged: {}; choose another checkpoint", where, reason);
}

}  // namespace tandem::trainer
