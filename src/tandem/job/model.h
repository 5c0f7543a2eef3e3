// The model of a job with its data, and the memory that its weights lie in.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "tandem/comm/api/communicator.h"
#include "tandem/core/env.h"
#include "tandem/dist/gradient_engine.h"
#include "tandem/dist/model_state.h"
#include "tandem/hub/download_observer.h"
#include "tandem/hub/model_files.h"
#include "tandem/job/arguments.h"
#include "tandem/job/console.h"
#include "tandem/job/machine.h"
#include "tandem/job/world.h"
#include "tandem/optim/optimizer.h"
#include "tandem/quant/load_model.h"
#include "tandem/tasks/job_task.h"
#include "tandem/tasks/task.h"
#include "tandem/text/tokenizer.h"
#include "tandem/trainer/training_arguments.h"

namespace tandem::job {

inline nn::Precision precision_of(const trainer::TrainingArguments& training) {
  return training.bf16 ? nn::Precision::kBfloat16 : nn::Precision::kFloat32;
}

// A model without weights, and the data it is for.
struct Model {
  std::filesystem::path directory;
  std::unique_ptr<text::Tokenizer> tokenizer;
  tasks::Task& task;
  std::string fingerprint;  // of the training data; empty without any
};

// Finds model (of one of the `families`) and data, downloads them where they are named only, and
// reads all but the weights. `training` loses bf16 for a model in int8. Collective: the ranks agree
// on what they read. Throws ConfigError, DataError, IoError; SharedError where all ranks have the
// same to say.
Model open_model(const Arguments& arguments, const Environment& environment, Machine& machine,
                 comm::Communicator& communicator, hub::DownloadObserver& downloads,
                 Console& console, tasks::JobTask& task,
                 std::span<const models::Family* const> families,
                 trainer::TrainingArguments& training);

// Weights, gradients and the optimizer's state, filled.
struct Weights {
  std::unique_ptr<optim::Optimizer> optimizer;  // null: nothing is trained
  std::unique_ptr<dist::ModelState> state;
  std::unique_ptr<dist::GradientEngine> gradients;
  quant::LoadedModel loaded;
};

// Reads the weights where the node's memory is, and shares them. Collective. In an elastic job the
// memory is the agent's, and nothing is read: fill_weights(). Throws ConfigError, DataError,
// IoError.
Weights load_weights(const Arguments& arguments, const trainer::TrainingArguments& training,
                     const Model& model, const tasks::JobTask& task, const Machine& machine,
                     const World& world, Console& console);

// The weights with which an elastic job begins, into the memory of every node that has none: its
// leader reads them. Collective; no host may begin with others. Throws what load_weights() throws,
// and CommError.
void fill_weights(const Arguments& arguments, const trainer::TrainingArguments& training,
                  const Model& model, const tasks::JobTask& task, const Machine& machine,
                  comm::Communicator& communicator, bool node_leader, Weights& weights,
                  Console& console);

dist::GradientEngineOptions engine_options(const trainer::TrainingArguments& training,
                                           int world_size);

}  // namespace tandem::job
