#include "tandem/job/state_transfer.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/rendezvous/bootstrap.h"
#include "tandem/trainer/training_plan.h"

namespace tandem::job {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kBootstrapTimeout{10};
constexpr seconds kTransfer{20};  // one message; the other end may be stopped for a while
// A learner without the newest step receives nothing for so long: then the sender is busy with
// other work than steps.
constexpr seconds kSilence{60};
constexpr milliseconds kTurn{20};  // between checks for the view
constexpr std::size_t kMostAddress = 4096;

// Connects the two ends of a transfer: the learner is rank 0 and has opened the port.
std::unique_ptr<comm::Communicator> meet(rendezvous::RendezvousAddress address, int rank,
                                         const World& alone, const std::function<bool()>& over) {
  rendezvous::BootstrapOptions bootstrap_options;
  bootstrap_options.timeout = kBootstrapTimeout;
  bootstrap_options.check = [&over] {
    if (over()) raise<CommError>("the transfer of a state was given up before it began");
  };
  const auto bootstrap = [&](const std::string& info) {
    return rendezvous::exchange_peer_info_at(std::move(address), rank, 2, info, bootstrap_options);
  };
  comm::Options options = alone.view_options;
  options.timeout = kTransfer;
  options.transport = {};  // not an MPI's: the two are in no world of ranks
  options.worker = {};
  return comm::Communicator::create(rank, 2, bootstrap, /*loopback_only=*/false, options,
                                    alone.identity.interface);
}

}  // namespace

StateTransfer::StateTransfer(const World& alone, const kernels::Context& context,
                             const Weights& weights, tasks::Task& task,
                             const trainer::TrainingArguments& training)
    : channel_(*alone.channel),
      alone_(alone),
      context_(context),
      weights_(weights),
      task_(task),
      training_(training),
      source_(*weights.state) {
  if (!weights.optimizer) return;
  channel_.on_learner([this](const std::string& address) {
    source_.serve_state([this, address](const std::function<bool()>& over) {
      return meet({.listener = {}, .text = address}, elastic::kSourceRank, alone_, over);
    });
  });
}

StateTransfer::~StateTransfer() { channel_.on_learner({}); }

void StateTransfer::learn() {
  using elastic::Learned;
  learner_.reset();
  if (!weights_.optimizer || !elastic::can_be_learned(*weights_.state)) {
    const char* const why = "this optimizer's state is not learned chunk by chunk";
    return channel_.learned(Learned::kNever, 0, weights_.optimizer ? why : "nothing is trained");
  }
  try {
    if (!std::exchange(rehearsed_, true)) rehearse();
    begin();
    follow();
  } catch (const CommError& error) {
    learner_.reset();
    channel_.learned(Learned::kNothing, 0, error.what());
  }
}

// The first pass of a process takes longer than others: memory is touched for the first time, and
// products select their kernels. In a view all others would wait for that. So the job's first batch
// is computed here, with placeholder weights; the gradient uses the memory of the first real one.
// The memory of the view's messages is touched as well.
void StateTransfer::rehearse() {
  const trainer::TrainingPlan plan = trainer::make_training_plan(
      training_, static_cast<std::int64_t>(task_.num_train_features()), *training_.logical_shards);
  const data::EpochBatches order = trainer::epoch_batches(training_, plan, task_, 0);
  const dist::ModelState& state = *weights_.state;
  const nn::Weights weights{state.weights(), state.bf16_weights()};
  const nn::DropoutStream dropout{.enabled = true};
  task_.load_train_batch(order.batch(0, 0), 0);
  task_.forward(context_, weights, dropout);
  task_.backward(context_, weights, dropout, 1.0, state.gradient(), /*accumulate=*/false,
                 [](std::size_t) {});
  messages_.touch(state.elements());
}

void StateTransfer::begin() {
  rendezvous::RendezvousAddress address =
      rendezvous::open_rendezvous_address(alone_.identity.interface, kMostAddress);
  channel_.learns_at(address.text);
  learner_.emplace(meet(std::move(address), elastic::kLearnerRank, alone_,
                        [this] { return channel_.transfer_is_over(); }),
                   context_, *weights_.state, *weights_.optimizer);
}

// Until the view begins, or another sender is chosen. The rest of the state then arrives in
// GradientEngine::synchronize_state().
void StateTransfer::follow() {
  bool told = false;
  auto heard = Clock::now();
  while (!channel_.transfer_is_over()) {
    const auto now = Clock::now();
    if (learner_->take(kTurn)) heard = now;
    if (told) continue;
    if (learner_->too_slow()) {
      learner_.reset();
      return channel_.learned(elastic::Learned::kNever, 0,
                              "the steps of the job are faster than the connection to it");
    }
    if (const auto step = learner_->level_at()) {
      told = true;
      channel_.learned(elastic::Learned::kLevel, *step, "");
    }
    if (!told && now > heard + kSilence)
      raise<CommError>("nothing of the state has come for {} s", kSilence.count());
  }
}

}  // namespace tandem::job
