// A worker's two parts when a node joins (docs/design/0024): before its first view it receives the
// state of a running job, and later it sends its own state to joining nodes.
#pragma once

#include <functional>
#include <optional>

#include "tandem/dist/gradient_engine.h"
#include "tandem/elastic/transfer/state_learner.h"
#include "tandem/elastic/transfer/state_source.h"
#include "tandem/elastic/worker/agent_channel.h"
#include "tandem/elastic/worker/view_loop.h"
#include "tandem/kernels/context.h"
#include "tandem/optim/optimizer.h"

namespace tandem::elastic {

// The state to transfer, and the objects that compute with it. All must outlive the StateTransfer.
struct TransferredState {
  dist::ModelState& model;
  optim::Optimizer& optimizer;
  const kernels::Context& context;
  // Computes the job's first batch once, with any weights, before this worker learns.
  std::function<void()> rehearse;
};

class StateTransfer {
 public:
  // From now on serves the learners that the agent names. `channel` must outlive the object.
  StateTransfer(AgentChannel& channel, ViewNetwork network, TransferredState state);
  ~StateTransfer();
  StateTransfer(const StateTransfer&) = delete;
  StateTransfer& operator=(const StateTransfer&) = delete;

  // The callbacks for AgentChannel::next_view().
  void learn();
  // The learned state for the view that begins, or null.
  StateLearner* learner() { return learner_ ? &*learner_ : nullptr; }
  void forget() { learner_.reset(); }
  StateSource& source() { return source_; }
  // Called with the engine of each view.
  void take_part_in(dist::GradientEngineOptions& engine) {
    engine.source = source_;
    engine.messages = messages_;
  }

 private:
  void rehearse();
  void begin();
  void follow();

  AgentChannel& channel_;
  const ViewNetwork network_;
  const TransferredState state_;
  bool rehearsed_ = false;
  StateSource source_;
  dist::MessageMemory messages_;
  std::optional<StateLearner> learner_;
};

}  // namespace tandem::elastic
