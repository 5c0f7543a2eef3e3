#include "tandem/elastic/transfer/state_source.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <deque>
#include <thread>
#include <utility>

#include "tandem/comm/failure/block_signals.h"
#include "tandem/core/error.h"
#include "tandem/core/thread_pool.h"
#include "tandem/dist/state_chunks.h"
#include "tandem/elastic/transfer/learner_ledger.h"
#include "tandem/elastic/transfer/transfer_messages.h"

namespace tandem::elastic {
namespace {

using Clock = std::chrono::steady_clock;
// A learner whose chunks get no more for so long, and for some steps, is notified.
constexpr std::chrono::seconds kSlowAfter{3};
// How often it is looked whether a learner that needs nothing is still there.
constexpr std::chrono::milliseconds kLook{500};
// Gradients that may wait for the network, in parts of a whole one.
constexpr std::size_t kMostKeptGradients = 2;

}  // namespace

bool can_be_learned(const dist::ModelState& model) {
  const dist::ModelStateOptions& options = model.options();
  return options.pieces.count > 0 && options.pieces.largest_whole == 0 &&
         options.optimizer_state_elements % options.elements == 0;
}

struct StateSource::GradientOfChunk {
  Notice notice;
  std::vector<float> values;  // empty: they are in the model yet
};

struct StateSource::Session {
  Session(std::size_t chunks, ConnectLearner how) : ledger(chunks), connect(std::move(how)) {}

  void send(Notice notice) {
    communicator->send(std::span<const std::uint64_t>(words_of(notice)), kLearnerRank);
  }
  void end() {
    over = true;
    if (communicator) communicator->life().abort("the learner is not served any more");
  }

  LearnerLedger ledger;
  ConnectLearner connect;
  std::unique_ptr<comm::Communicator> communicator;
  std::deque<GradientOfChunk> waiting;
  std::vector<float> chunk_values;
  bool stalls = false;
  bool sent_slow = false;
  std::optional<std::uint64_t> sent_nothing;  // after this step
  Clock::time_point grew = Clock::now();      // a chunk was sent
  std::atomic<bool> over{false};
  std::atomic<bool> ended{false};
  std::thread thread;
};

StateSource::StateSource(dist::ModelState& model) : model_(model) {}

StateSource::~StateSource() {
  end_all();
  for (const auto& session : sessions_) session->thread.join();
}

void StateSource::serve_state(ConnectLearner connect) {
  const std::lock_guard lock(mutex_);
  remove_ended();
  if (!can_be_learned(model_) || sessions_.size() >= kMostLearners) return;
  sessions_.push_back(std::make_unique<Session>(
      num_chunks(model_.elements(), dist::ModelState::kChunk), std::move(connect)));
  Session& added = *sessions_.back();
  const comm::BlockSignals blocked;
  added.thread = std::thread([this, &added] { run(added); });
}

std::size_t StateSource::learners() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(std::count_if(
      sessions_.begin(), sessions_.end(), [](const auto& session) { return !session->ended; }));
}

std::size_t StateSource::waiting_gradients() const {
  const std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (const auto& session : sessions_) count += session->waiting.size();
  return count;
}

void StateSource::end_all() {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& session : sessions_) session->end();
  }
  changed_.notify_all();
}

void StateSource::remove_ended() {
  std::erase_if(sessions_, [](const auto& session) {
    if (session->ended) session->thread.join();
    return session->ended.load();
  });
}

// ---- the engine ----

void StateSource::hold() {
  const std::lock_guard lock(mutex_);
  held_ = true;
  if (!sessions_.empty()) changed_.notify_all();
}

void StateSource::give_up() {
  hold();
  end_all();
}

std::span<const float> StateSource::gradient_of(std::size_t chunk) const {
  const dist::Range range = dist::range_of_chunk(chunk, model_.elements());
  return std::span<const float>(model_.gradient()).subspan(range.begin, range.size());
}

// Which chunks' gradients this learner gets.
void StateSource::note_gradients(Session& session, const optim::OptimizerStep& update) {
  const std::size_t most = kMostKeptGradients * session.ledger.size();
  for (std::size_t chunk = 0; chunk < session.ledger.size(); ++chunk) {
    if (session.over || !session.ledger.takes_gradient(chunk, update.step)) continue;
    if (session.waiting.size() >= most) {
      session.ledger.drop(chunk);
      continue;
    }
    session.ledger.put_gradient(chunk, update.step);
    const Notice notice = {.kind = TransferMessage::kGradient,
                           .chunk = chunk,
                           .step = update.step,
                           .learning_rate = std::bit_cast<std::uint64_t>(update.learning_rate),
                           .gradient_scale = std::bit_cast<std::uint64_t>(update.gradient_scale)};
    session.waiting.push_back({notice, {}});
  }
  session.stalls = session.ledger.stalls() && Clock::now() > session.grew + kSlowAfter;
}

void StateSource::reduced(const optim::OptimizerStep& update) {
  const std::lock_guard lock(mutex_);
  if (sessions_.empty()) return;
  for (const auto& session : sessions_) note_gradients(*session, update);
  changed_.notify_all();
}

// Waiting gradients are not read before they are copied.
void StateSource::keep_gradient(ThreadPool& threads) {
  const std::lock_guard lock(mutex_);
  std::vector<GradientOfChunk*> left;
  for (const auto& session : sessions_) {
    for (GradientOfChunk& one : session->waiting) {
      if (!one.values.empty()) continue;
      if (!spare_.empty()) {
        one.values = std::move(spare_.back());
        spare_.pop_back();
      }
      left.push_back(&one);
    }
  }
  if (left.empty()) return;
  threads.parallel_for(left.size(), [&](std::size_t i, int) {
    const auto from = gradient_of(left[i]->notice.chunk);
    left[i]->values.assign(from.begin(), from.end());
  });
}

void StateSource::settled(std::uint64_t step) {
  const std::lock_guard lock(mutex_);
  held_ = false;
  step_ = step;
  if (sessions_.empty()) return;
  remove_ended();
  for (const auto& session : sessions_) session->ledger.settled(step);
  if (sessions_.empty()) spare_.clear();
  changed_.notify_all();
}

// ---- a learner ----

void StateSource::run(Session& session) {
  try {
    std::unique_ptr<comm::Communicator> communicator =
        session.connect([&session] { return session.over.load(); });
    {
      const std::lock_guard lock(mutex_);
      session.communicator = std::move(communicator);
      session.grew = Clock::now();
    }
    session.send({.kind = TransferMessage::kHandshake,
                  .chunk = model_.elements(),
                  .step = model_.optimizer_state().size()});
    while (next(session)) {
    }
  } catch (const Error&) {  // the learner logs the reason, or is gone
  }
  const std::lock_guard lock(mutex_);
  session.over = true;
  session.communicator.reset();
  session.waiting.clear();
  session.ended = true;
}

// Sends one message, or waits until there is one. False: the learner is not served any more.
bool StateSource::next(Session& session) {
  std::unique_lock lock(mutex_);
  if (session.over) return false;
  session.communicator->life().throw_if_failed();
  if (!session.waiting.empty()) {
    send_gradient(session, lock);
    return true;
  }
  const std::optional<std::size_t> missing = session.ledger.next_missing();
  if (missing && session.stalls && !session.sent_slow) {
    session.sent_slow = true;
    lock.unlock();
    session.send({.kind = TransferMessage::kSlow});
    return true;
  }
  if (missing && held_ && session.sent_nothing != step_) {
    session.sent_nothing = step_;
    const Notice nothing = {.kind = TransferMessage::kNothing, .step = step_};
    lock.unlock();
    session.send(nothing);
    return true;
  }
  if (missing && !held_ && !session.sent_slow) {
    send_chunk(session, *missing, lock);
  } else {
    changed_.wait_for(lock, kLook);
  }
  return true;
}

void StateSource::send_gradient(Session& session, std::unique_lock<std::mutex>& lock) {
  GradientOfChunk one = std::move(session.waiting.front());
  session.waiting.pop_front();
  if (one.values.empty()) {
    const auto from = gradient_of(one.notice.chunk);
    if (!spare_.empty()) {
      one.values = std::move(spare_.back());
      spare_.pop_back();
    }
    one.values.assign(from.begin(), from.end());
  }
  lock.unlock();
  session.send(one.notice);
  session.communicator->send(std::span<const float>(one.values), kLearnerRank);
  lock.lock();
  one.values.clear();
  spare_.push_back(std::move(one.values));
}

void StateSource::send_chunk(Session& session, std::size_t chunk,
                             std::unique_lock<std::mutex>& lock) {
  std::vector<float>& values = session.chunk_values;
  values.clear();
  dist::for_each_part(model_, chunk, [&](std::span<const float> part) {
    values.insert(values.end(), part.begin(), part.end());
  });
  const Notice notice = {.kind = TransferMessage::kChunk, .chunk = chunk, .step = step_};
  session.ledger.put(chunk, notice.step);
  session.grew = Clock::now();
  lock.unlock();
  session.send(notice);
  session.communicator->send(std::span<const float>(values), kLearnerRank);
}

}  // namespace tandem::elastic
