// The other end of state_source.h: a node that holds nothing takes a job's state while the job
// trains, and applies the updates that follow with the job's own optimizer. Its copy is used only
// after GradientEngine::synchronize_state() has found it right in the node's first view
// (docs/design/0024): until then the state is being replaced (ModelState::begin_replacing).
//
// Thread-safety: one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/dist/model_state.h"
#include "tandem/dist/state_observer.h"
#include "tandem/elastic/transfer/learner_ledger.h"
#include "tandem/elastic/transfer/transfer_messages.h"
#include "tandem/kernels/context.h"
#include "tandem/optim/optimizer.h"

namespace tandem::elastic {

class StateLearner final : public dist::LearnedState {
 public:
  // `connection`: the sender is rank 1. `model`: nothing of it is needed any more, and no other
  // code writes to it; it, the optimizer and the context must outlive the object.
  StateLearner(std::unique_ptr<comm::Communicator> connection, const kernels::Context& context,
               dist::ModelState& model, optim::Optimizer& optimizer);

  // Takes what comes, for about so long or until all of a step is here; returns whether anything
  // has come. Throws CommError when the sender is gone, has another model, or sends an invalid
  // message.
  bool take(std::chrono::milliseconds timeout);
  // The steps are faster than the connection: there is no hope of becoming level.
  bool too_slow() const { return too_slow_; }
  // All of the state is here, after this step.
  std::optional<std::uint64_t> level_at() const { return ledger_.whole_at(); }
  // In the view: takes what is left until the state is that of `step`. False: it will not be, for
  // nothing has come for a while, or the sender is gone.
  bool reach(std::uint64_t step) override;
  // After reach(): checksum_of_chunk() of all chunks, each as it was when reach() was through with
  // it. Those that the last step has changed were summed up then, while they were in the cache.
  std::vector<std::uint64_t> checksums() const override;

 private:
  bool wait_for_notice(std::chrono::milliseconds timeout);
  void obey_notice();
  void check_handshake() const;
  void take_chunk();
  void take_gradient();
  void sum_up(std::size_t chunk);
  std::size_t checked_chunk() const;

  std::unique_ptr<comm::Communicator> connection_;
  const kernels::Context& context_;
  dist::ModelState& model_;
  optim::Optimizer& optimizer_;
  LearnerLedger ledger_;
  Notice notice_;
  std::optional<comm::Request> next_;  // notice
  std::vector<float> values_;
  std::vector<std::optional<std::uint64_t>> checksums_;  // by chunk, within reach()
  bool greeted_ = false;
  bool too_slow_ = false;
};

}  // namespace tandem::elastic
