#include "tandem/trainer/trainer_state.h"

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"
#include "tandem/core/whole_number.h"

namespace tandem::trainer {
namespace {

using nlohmann::ordered_json;

template <class T>
ordered_json or_null(const std::optional<T>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

// Absent or null: 0, as the Trainer writes what it does not know.
std::int64_t number_or_zero(const ordered_json& json, const char* key) {
  const auto found = json.find(key);
  return found == json.end() || found->is_null() ? 0 : whole_number<std::int64_t>(*found);
}

// Checkpoints of older versions of transformers have no such values.
void read_control(const ordered_json& json, TrainerState& state) {
  const ordered_json::json_pointer values("/stateful_callbacks/TrainerControl/args");
  if (!json.contains(values)) return;
  const ordered_json& control = json.at(values);
  state.should_save = control.value("should_save", false);
  state.should_training_stop = control.value("should_training_stop", false);
}

}  // namespace

ordered_json whole_zero(double value) { return value == 0 ? ordered_json(0) : ordered_json(value); }

std::string TrainerState::to_json() const {
  ordered_json json;
  json["best_global_step"] = best_metric ? ordered_json(best_global_step) : ordered_json(nullptr);
  json["best_metric"] = or_null(best_metric);
  json["best_model_checkpoint"] = or_null(best_model_checkpoint);
  json["epoch"] = whole_zero(epoch);
  json["eval_steps"] = eval_steps;
  json["global_step"] = global_step;
  json["is_hyper_param_search"] = false;
  json["is_local_process_zero"] = true;
  json["is_world_process_zero"] = true;
  json["log_history"] = log_history;
  json["logging_steps"] = logging_steps;
  json["max_steps"] = max_steps;
  json["num_input_tokens_seen"] = num_input_tokens_seen;
  json["num_train_epochs"] = num_train_epochs;
  json["save_steps"] = save_steps;
  json["stateful_callbacks"]["TrainerControl"] = {
      {"args",
       {{"should_epoch_stop", false},
        {"should_evaluate", false},
        {"should_log", false},
        {"should_save", should_save},
        {"should_training_stop", should_training_stop}}},
      {"attributes", ordered_json::object()}};
  json["total_flos"] = whole_zero(total_flos);
  json["train_batch_size"] = train_batch_size;
  json["trial_name"] = nullptr;
  json["trial_params"] = nullptr;
  return python_json(json, {.indent = 2, .sort_keys = true}) + "\n";
}

TrainerState TrainerState::parse(std::string_view text, std::string_view where) {
  try {
    const auto json = parse_python_json(text);
    TrainerState state;
    state.epoch = json.at("epoch").is_null() ? 0.0 : json.at("epoch").get<double>();
    state.global_step = whole_number<std::int64_t>(json.at("global_step"));
    state.max_steps = whole_number<std::int64_t>(json.at("max_steps"));
    state.num_train_epochs = whole_number<std::int64_t>(json.at("num_train_epochs"));
    state.train_batch_size = number_or_zero(json, "train_batch_size");
    state.logging_steps = number_or_zero(json, "logging_steps");
    state.eval_steps = number_or_zero(json, "eval_steps");
    state.save_steps = number_or_zero(json, "save_steps");
    state.total_flos =
        json.value("total_flos", ordered_json()).is_null() ? 0.0 : json["total_flos"].get<double>();
    state.num_input_tokens_seen = number_or_zero(json, "num_input_tokens_seen");
    state.best_global_step = number_or_zero(json, "best_global_step");
    if (json.contains("best_metric") && !json["best_metric"].is_null())
      state.best_metric = json["best_metric"].get<double>();
    if (json.contains("best_model_checkpoint") && !json["best_model_checkpoint"].is_null()) {
      state.best_model_checkpoint = json["best_model_checkpoint"].get<std::string>();
    }
    read_control(json, state);
    for (const auto& entry : json.at("log_history")) state.log_history.push_back(entry);
    return state;
  } catch (const nlohmann::json::exception& error) {
    raise<DataError>("{} is not a trainer_state.json: {}; choose another checkpoint", where,
                     json_reason(error.what()));
  }
}

}  // namespace tandem::trainer
