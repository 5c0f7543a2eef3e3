#include "tandem/elastic/transfer/state_learner.h"

#include <algorithm>
#include <bit>
#include <span>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/dist/state_chunks.h"

namespace tandem::elastic {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// In a view, where the others wait: a sender with anything to send sends it within this time.
constexpr milliseconds kSourceSilence{2000};

}  // namespace

StateLearner::StateLearner(std::unique_ptr<comm::Communicator> connection,
                           const kernels::Context& context, dist::ModelState& model,
                           optim::Optimizer& optimizer)
    : connection_(std::move(connection)),
      context_(context),
      model_(model),
      optimizer_(optimizer),
      ledger_(num_chunks(model.elements(), dist::ModelState::kChunk)) {
  model_.begin_replacing();
}

bool StateLearner::wait_for_notice(milliseconds timeout) {
  if (!next_) next_ = connection_->start_receive(words_of(notice_), kSourceRank);
  if (!connection_->wait_for(*next_, timeout)) return false;
  next_.reset();
  return true;
}

bool StateLearner::take(milliseconds timeout) {
  const auto until = Clock::now() + timeout;
  bool any = false;
  while (wait_for_notice(std::chrono::ceil<milliseconds>(
      std::max<Clock::duration>(until - Clock::now(), milliseconds(0))))) {
    obey_notice();
    any = true;
    if (level_at() || Clock::now() >= until) break;
  }
  connection_->life().throw_if_failed();
  return any;
}

bool StateLearner::reach(std::uint64_t step) {
  checksums_.assign(ledger_.size(), std::nullopt);
  try {
    while (level_at() != step) {
      if (!wait_for_notice(kSourceSilence)) return false;
      if (notice_.kind == TransferMessage::kNothing && notice_.step >= step) return false;
      obey_notice();
    }
    return true;
  } catch (const CommError&) {
    return false;
  }
}

void StateLearner::obey_notice() {
  if (!std::exchange(greeted_, true)) return check_handshake();
  switch (notice_.kind) {
    case TransferMessage::kChunk:
      return take_chunk();
    case TransferMessage::kGradient:
      return take_gradient();
    case TransferMessage::kNothing:
      return;
    case TransferMessage::kSlow:
      too_slow_ = true;
      return;
    case TransferMessage::kHandshake:
      break;
  }
  raise<CommError>("the sender of a state sent an invalid message ({})",
                   static_cast<std::uint64_t>(notice_.kind));
}

void StateLearner::check_handshake() const {
  const std::size_t state = model_.optimizer_state().size();
  if (notice_.kind == TransferMessage::kHandshake && notice_.chunk == model_.elements() &&
      notice_.step == state)
    return;
  raise<CommError>("the sender has {} weights and {} values of the optimizer, expected {} and {}",
                   notice_.chunk, notice_.step, model_.elements(), state);
}

std::size_t StateLearner::checked_chunk() const {
  if (notice_.chunk < ledger_.size()) return static_cast<std::size_t>(notice_.chunk);
  raise<CommError>("chunk {} of a state of {} was announced", notice_.chunk, ledger_.size());
}

void StateLearner::take_chunk() {
  const std::size_t chunk = checked_chunk();
  const std::size_t arenas = 1 + model_.optimizer_state().size() / model_.elements();
  values_.resize(arenas * dist::range_of_chunk(chunk, model_.elements()).size());
  connection_->receive(std::span(values_), kSourceRank);
  auto from = values_.cbegin();
  dist::for_each_part(model_, chunk, [&](std::span<float> part) {
    const auto end = from + static_cast<std::ptrdiff_t>(part.size());
    std::copy(from, end, part.begin());
    from = end;
  });
  ledger_.put(chunk, notice_.step);
  sum_up(chunk);
}

void StateLearner::take_gradient() {
  const std::size_t chunk = checked_chunk();
  if (!ledger_.takes_gradient(chunk, notice_.step))
    raise<CommError>("the gradient of step {} came for a chunk of another", notice_.step);
  const dist::Range range = dist::range_of_chunk(chunk, model_.elements());
  const std::span<float> gradient = model_.gradient().subspan(range.begin, range.size());
  connection_->receive(gradient, kSourceRank);
  optim::ParameterArenas arenas = model_.arenas();
  arenas.weights_bf16 = {};  // all at once, when the state counts
  const optim::OptimizerStep step{.step = notice_.step,
                                  .learning_rate = std::bit_cast<double>(notice_.learning_rate),
                                  .gradient_scale = std::bit_cast<double>(notice_.gradient_scale)};
  optimizer_.step(context_, step, arenas, range.begin, range.end);
  ledger_.put_gradient(chunk, notice_.step);
  sum_up(chunk);
}

void StateLearner::sum_up(std::size_t chunk) {
  if (!checksums_.empty()) checksums_[chunk] = dist::checksum_of_chunk(model_, chunk);
}

std::vector<std::uint64_t> StateLearner::checksums() const {
  std::vector<std::uint64_t> sums(ledger_.size());
  context_.threads.parallel_for(sums.size(), [&](std::size_t chunk, int) {
    const bool known = chunk < checksums_.size() && checksums_[chunk];
    sums[chunk] = known ? *checksums_[chunk] : dist::checksum_of_chunk(model_, chunk);
  });
  return sums;
}

}  // namespace tandem::elastic
