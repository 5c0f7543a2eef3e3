#include "tandem/elastic/transfer/state_transfer.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/rendezvous/bootstrap.h"

namespace tandem::elastic {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kTransferBootstrap{10};
constexpr seconds kTransfer{20};  // one message; the other end may be stopped for a while
// A learner without the newest step receives nothing for so long: then the sender is busy with
// other work than steps.
constexpr seconds kSilence{60};
constexpr milliseconds kTurn{20};  // between checks for the view

// Connects the two ends of a transfer: the learner is rank 0 and has opened the port.
std::unique_ptr<comm::Communicator> meet(rendezvous::RendezvousAddress address, int rank,
                                         const ViewNetwork& network,
                                         const std::function<bool()>& over) {
  rendezvous::BootstrapOptions bootstrap_options;
  bootstrap_options.timeout = kTransferBootstrap;
  bootstrap_options.check = [&over] {
    if (over()) raise<CommError>("the transfer of a state was given up before it began");
  };
  const auto bootstrap = [&](const std::string& info) {
    return rendezvous::exchange_peer_info_at(std::move(address), rank, 2, info, bootstrap_options);
  };
  comm::Options options = network.options;
  options.timeout = kTransfer;
  options.transport = {};  // not an MPI's: the two are in no world of ranks
  options.worker = {};
  return comm::Communicator::create(rank, 2, bootstrap, /*loopback_only=*/false, options,
                                    network.interface);
}

}  // namespace

StateTransfer::StateTransfer(AgentChannel& channel, ViewNetwork network, TransferredState state)
    : channel_(channel),
      network_(std::move(network)),
      state_(std::move(state)),
      source_(state_.model) {
  channel_.on_learner([this](const std::string& address) {
    source_.serve_state([this, address](const std::function<bool()>& over) {
      return meet({.listener = {}, .text = address}, kSourceRank, network_, over);
    });
  });
}

StateTransfer::~StateTransfer() { channel_.on_learner({}); }

void StateTransfer::learn() {
  learner_.reset();
  if (!can_be_learned(state_.model)) {
    const bool trains = state_.optimizer.pieces().count > 0;
    return channel_.learned(
        Learned::kNever, 0,
        trains ? "this optimizer's state is not learned chunk by chunk" : "nothing is trained");
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
// is computed here, and the memory of the view's messages is touched.
void StateTransfer::rehearse() {
  state_.rehearse();
  messages_.touch(state_.model.elements());
}

void StateTransfer::begin() {
  rendezvous::RendezvousAddress address =
      rendezvous::open_rendezvous_address(network_.interface, kMostAddress);
  channel_.learns_at(address.text);
  learner_.emplace(meet(std::move(address), kLearnerRank, network_,
                        [this] { return channel_.transfer_is_over(); }),
                   state_.context, state_.model, state_.optimizer);
}

// Until the view begins, or another sender is chosen. The rest of the state then arrives in
// GradientEngine::synchronize_state().
void StateTransfer::follow() {
  bool is_level = false;
  auto last_received = Clock::now();
  while (!channel_.transfer_is_over()) {
    const auto now = Clock::now();
    if (learner_->take(kTurn)) last_received = now;
    if (is_level) continue;
    if (learner_->too_slow()) {
      learner_.reset();
      return channel_.learned(Learned::kNever, 0,
                              "the steps of the job are faster than the connection to it");
    }
    if (const auto step = learner_->level_at()) {
      is_level = true;
      channel_.learned(Learned::kLevel, *step, "");
    }
    if (!is_level && now > last_received + kSilence)
      raise<CommError>("nothing of the state has come for {} s", kSilence.count());
  }
}

}  // namespace tandem::elastic
