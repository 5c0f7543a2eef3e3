// The model of a job with its data, and the memory of its weights.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "tandem/comm/communicator.h"
#include "tandem/core/env.h"
#include "tandem/dist/gradient_engine.h"
#include "tandem/dist/model_state.h"
#include "tandem/hub/model_files.h"
#include "tandem/job/arguments.h"
#include "tandem/job/console.h"
#include "tandem/job/job.h"
#include "tandem/job/machine.h"
#include "tandem/job/world.h"
#include "tandem/optim/optimizer.h"
#include "tandem/quant/load_model.h"
#include "tandem/tasks/job_task.h"
#include "tandem/tasks/task.h"
#include "tandem/text/tokenizer.h"
#include "tandem/trainer/training_arguments.h"

namespace tandem::job {

struct TrainingRun;  // training_run.h

inline nn::Precision precision_of(const trainer::TrainingArguments& training) {
  return training.bf16 ? nn::Precision::kBfloat16 : nn::Precision::kFloat32;
}

// A model without weights, and its data.
struct Model {
  quant::ModelFiles files;
  std::filesystem::path adapter;  // directory of an adapter for it; empty: none
  std::unique_ptr<text::Tokenizer> tokenizer;
  tasks::Task& task;
  std::string fingerprint;  // fingerprint of the training data; empty without any
};

// Finds model (of one of the request's families) and data, downloads them if they are only named,
// and reads all but the weights. `resume`: the checkpoint that the job resumes from. Collective:
// the ranks agree on the inputs. Throws ConfigError, DataError, IoError; SharedError if all ranks
// have the same error.
Model open_model(const Request& request, const trainer::TrainingArguments& training,
                 const std::optional<std::filesystem::path>& resume, tasks::JobTask& task,
                 const Environment& environment, const Observers& observers, Machine& machine,
                 comm::Communicator& communicator);

// Weights and the optimizer's state. The pointers are never null.
struct Weights {
  std::unique_ptr<optim::Optimizer> optimizer;  // a NoOptimizer if nothing is trained
  std::unique_ptr<dist::ModelState> state;
  quant::LoadedModel loaded;
};

// The memory of the weights, on every node. In an elastic job it belongs to the agent. Collective.
// Throws ConfigError, IoError.
Weights make_weights(const trainer::TrainingArguments& training, const nn::ParameterLayout& layout,
                     const Machine& machine, const World& world);

// Reads the weights into the node's memory, and shares them. Collective. In an elastic job nothing
// is read: see fill_weights(). Throws ConfigError, DataError, IoError.
void load_weights(const TrainingRun& run, const World& world, dist::GradientEngine& gradients);

// Reads the initial weights of an elastic job into the memory of every node without weights; the
// node's leader reads them. Collective; all hosts must begin with the same weights. Throws the
// errors of load_weights(), and CommError.
void fill_weights(const TrainingRun& run, comm::Communicator& communicator, bool node_leader);

dist::GradientEngineOptions engine_options(const trainer::TrainingArguments& training,
                                           int world_size);

}  // namespace tandem::job
