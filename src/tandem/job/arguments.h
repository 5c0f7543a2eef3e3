// The settings that a command line gives a job of any task.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tandem/core/json.h"
#include "tandem/hub/model_arguments.h"
#include "tandem/job/lora_arguments.h"
#include "tandem/models/encoder/family.h"
#include "tandem/quant/quantization_arguments.h"
#include "tandem/tasks/job_task.h"
#include "tandem/trainer/training_arguments.h"

namespace tandem::job {

struct Arguments {
  hub::ModelArguments model;
  trainer::TrainingArguments training;
  quant::QuantizationArguments quantization;
  LoraArguments lora;

  // Returns true if --do_train changes weights: with --apply_quantization it only provides the data
  // for calibration, unless training was requested by name.
  bool trains() const {
    return training.do_train &&
           (!quantization.apply_quantization || quantization.train_before_quantization);
  }
  // --do_train reads its data even if it trains nothing.
  tasks::Stages stages() const {
    return {training.do_train, training.do_eval, training.do_predict};
  }
};

// A job as it was asked for.
struct Request {
  std::string command;  // for users to read and repeat: quoted for a shell, without secrets
  // The command with which a user starts this program, for the commands that a job prints; empty:
  // it prints none.
  std::string program;
  std::span<const models::Family* const> families;  // model families that the command accepts
  Arguments arguments;
  // Every argument with a field, including the task's, by flag name, sorted; secrets that are set
  // as "<TOKEN>".
  nlohmann::json values;
  // One line each for the main process to print: flags without effect, defaults that were filled
  // in.
  std::vector<std::string> notes;
  // The command line's, while the job writes to that of an earlier start or of rank 0.
  std::optional<std::string> asked_output_dir = std::nullopt;

  // "name=value" lines of the values.
  std::string lines() const;
  // The content of training_args.json: the values, 2-space indent, newline at the end.
  std::string training_args_json() const { return values.dump(2) + "\n"; }
};

}  // namespace tandem::job
