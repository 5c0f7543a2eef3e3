// A worker's two parts when a node joins (docs/design/0024): before its first view it receives the
// state of a running job, and later it sends its own state to joining nodes.
#pragma once

#include <memory>
#include <optional>

#include "tandem/dist/gradient_engine.h"
#include "tandem/elastic/transfer/state_learner.h"
#include "tandem/elastic/transfer/state_source.h"
#include "tandem/elastic/worker/agent_channel.h"
#include "tandem/job/model.h"
#include "tandem/job/world.h"
#include "tandem/kernels/context.h"
#include "tandem/tasks/task.h"
#include "tandem/trainer/training_arguments.h"

namespace tandem::job {

class StateTransfer {
 public:
  // From now on serves the learners that the agent names. All arguments must outlive the object.
  // `alone`: the worker's world, with its agent channel. `task` is the trained task, with
  // `training`.
  StateTransfer(const World& alone, const kernels::Context& context, const Weights& weights,
                tasks::Task& task, const trainer::TrainingArguments& training);
  ~StateTransfer();
  StateTransfer(const StateTransfer&) = delete;
  StateTransfer& operator=(const StateTransfer&) = delete;

  // The callbacks for elastic::Seat::next_view().
  void learn();
  // The learned state for the view that begins, or null.
  elastic::StateLearner* learner() { return learner_ ? &*learner_ : nullptr; }
  void forget() { learner_.reset(); }
  elastic::StateSource& source() { return source_; }
  // Called with the engine of each view.
  void take_part_in(dist::GradientEngineOptions& engine) {
    engine.source = &source_;
    engine.messages = &messages_;
  }

 private:
  void rehearse();
  void begin();
  void follow();

  elastic::AgentChannel& channel_;
  const World& alone_;
  const kernels::Context& context_;
  const Weights& weights_;
  tasks::Task& task_;
  const trainer::TrainingArguments& training_;
  bool rehearsed_ = false;
  elastic::StateSource source_;
  dist::MessageMemory messages_;
  std::optional<elastic::StateLearner> learner_;
};

}  // namespace tandem::job
