// How operations advance, and how waits end: with the awaited event, at a deadline, or with the
// failure of a rank.
#include <algorithm>
#include <thread>

#include "tandem/comm/collectives/communicator_state.h"
#include "tandem/comm/texts.h"
#include "tandem/core/cores.h"
#include "tandem/core/error.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tandem::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// Most answers arrive while the waiting rank still spins; a longer spin would take a core from
// another rank.
constexpr microseconds kSpin{50};
// Sleeps are limited so that failures, goodbyes and deadlines are checked.
constexpr microseconds kProgressPoll{20000};
// One system call per rank of another host.
constexpr milliseconds kBetweenLooksForStalls{200};
// While sends are in flight that only this rank can advance.
constexpr microseconds kShortPollTimeout{200};
// The data connection of a dying rank may close before the monitor has read the reason on the
// control connection.
constexpr milliseconds kVerdict{500};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void cpu_relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// A message as a task.
class MessageWait final : public CommTask {
 public:
  MessageWait(Transport& transport, const Message& message)
      : transport_(transport), message_(message) {}
  Progress advance() override {
    if (message_.done) return Progress::kDone;
    const bool moved = transport_.progress({});
    if (message_.done) return Progress::kDone;
    return moved ? Progress::kMoved : Progress::kWaiting;
  }
  int waiting_for() const override { return message_.peer; }
  bool waits_for_messages() const override { return true; }

 private:
  Transport& transport_;
  const Message& message_;
};

// A started collective as a task: earlier ones come first.
class PendingWait final : public CommTask {
 public:
  PendingWait(std::deque<std::shared_ptr<PendingCall>>& queue, const PendingCall& call,
              FunctionRef<Progress()> advance_all)
      : queue_(queue), call_(call), advance_all_(advance_all) {}
  Progress advance() override {
    const Progress progress = advance_all_();
    if (call_.done) return Progress::kDone;
    return progress == Progress::kDone ? Progress::kMoved : progress;
  }
  int waiting_for() const override {
    return queue_.empty() ? -1 : queue_.front()->task->waiting_for();
  }
  bool waits_for_messages() const override {
    return !queue_.empty() && queue_.front()->task->waits_for_messages();
  }

 private:
  std::deque<std::shared_ptr<PendingCall>>& queue_;
  const PendingCall& call_;
  FunctionRef<Progress()> advance_all_;
};

}  // namespace

bool Request::done() const {
  return (message_ == nullptr || message_->done) && (call_ == nullptr || call_->done);
}

Progress Communicator::State::advance_pending() {
  bool moved = false;
  while (!pending.empty()) {
    const Progress progress = pending.front()->task->advance();
    if (progress != Progress::kDone) return moved ? Progress::kMoved : progress;
    const std::shared_ptr<PendingCall> ended = std::move(pending.front());
    pending.pop_front();
    comm_context->recorder.end(ended->begun.ticket);
    ended->task.reset();
    ended->done.store(true, std::memory_order_release);
    moved = true;
  }
  return moved ? Progress::kMoved : Progress::kDone;
}

bool Communicator::State::has_outgoing() {
  if (outgoing.empty()) return false;
  std::erase_if(outgoing, [](const auto& message) { return message->done.load(); });
  return !outgoing.empty();
}

void Communicator::State::drive(CommTask& task, FunctionRef<std::string()> describe,
                                milliseconds limit) {
  drive_for(task, describe, {Clock::now(), limit, limit});
}

bool Communicator::State::drive_for(CommTask& task, FunctionRef<std::string()> describe,
                                    const Turn& turn) {
  if (task.advance() == Progress::kDone) return true;
  const Monitor::Waiting note(*comm_context->monitor);
  const Clock::time_point begin = Clock::now();
  Clock::time_point idle_since = begin;
  // A wait that has spun once does not spin again in its next part.
  const microseconds spin = may_spin && begin - turn.since < kSpin ? kSpin : microseconds(0);
  while (true) {
    Progress progress = Progress::kWaiting;
    for (int i = 0; i < 64 && progress == Progress::kWaiting; ++i) {
      cpu_relax();
      progress = task.advance();
    }
    const bool pump = has_outgoing();
    if (pump && progress == Progress::kWaiting) comm_context->transport->progress({});
    if (progress == Progress::kDone) return true;
    const Clock::time_point now = Clock::now();
    if (progress == Progress::kMoved) idle_since = now;
    if (now - idle_since < spin) continue;
    const bool last = now - begin >= turn.max_wait && turn.max_wait < turn.limit;
    // Checks failures, deadlines and goodbyes, then sleeps.
    const bool messages = task.waits_for_messages();
    if (!messages && channel) channel->prepare_sleep();
    progress = task.advance();
    if (progress != Progress::kWaiting) {
      if (channel) channel->stay_awake();
      if (progress == Progress::kDone) return true;
      if (last) return false;
      idle_since = Clock::now();
      continue;
    }
    progress = check_wait(turn.since, task, describe, turn.limit);
    if (last || progress != Progress::kWaiting) {
      if (channel) channel->stay_awake();
      if (progress == Progress::kDone) return true;
      if (last) return false;
      continue;
    }
    const auto left = std::chrono::duration_cast<microseconds>(
        std::min<Clock::duration>(turn.limit - (now - turn.since), turn.max_wait - (now - begin)));
    poll_timeout(std::clamp(left, microseconds(50),
                            pump || !pending.empty() ? kShortPollTimeout : kProgressPoll),
                 messages);
  }
}

void Communicator::State::poll_timeout(microseconds longest, bool for_messages) {
  if (for_messages || !channel) {
    comm_context->transport->progress(longest);
  } else {
    channel->sleep(longest.count());
  }
}

// The loss of a host is detected sooner, by its silence.
std::string Communicator::State::find_stall() {
  if (options.stall_timeout.count() <= 0) return "";
  const Clock::time_point now = Clock::now();
  if (now - last_look_for_stalls < kBetweenLooksForStalls) return "";
  last_look_for_stalls = now;
  return comm_context->transport->describe_stall(
      std::max(options.stall_timeout, 2 * options.host_timeout));
}

namespace {

// One check of a wait: the awaited rank and its state.
class WaitCheck {
 public:
  WaitCheck(Communicator::State& state, Clock::time_point since, CommTask& task,
            FunctionRef<std::string()> describe)
      : state_(state), since_(since), task_(task), describe_(describe) {
    const int waiting_for = task.waiting_for();
    awaited_ = waiting_for < 0 || task.waits_for_messages()
                   ? waiting_for
                   : state.world(state.node_members()[static_cast<std::size_t>(waiting_for)]);
  }

  Progress run(milliseconds limit) {
    const CommContext& comm_context = *state_.comm_context;
    if (comm_context.failure.is_set()) return after_failure();
    if (Clock::now() - since_ >= limit) {
      fail(
          fmt::format("{} {}, as long as the timeout allows; that rank is stalled or busy with "
                      "something else{}",
                      self(), wait_text(), comm_context.monitor->describe_laggard()));
    }
    if (const std::string stall = state_.find_stall(); !stall.empty()) {
      fail(fmt::format("{} {} (TANDEM_STALL_TIMEOUT sets the limit)", self(), stall));
    }
    if (awaited_ < 0) return Progress::kWaiting;
    if (comm_context.monitor->left(awaited_)) return after_goodbye();
    return is_closed() ? after_close() : Progress::kWaiting;
  }

 private:
  std::string self() const { return state_.self().describe(); }
  std::string peer_name() const {
    return awaited_ < 0 ? std::string("the other ranks")
                        : state_.comm_context->peers[static_cast<std::size_t>(awaited_)].describe();
  }
  std::string wait_text() const {
    return fmt::format("waited {:.1f} s for {} in {}", seconds_since(since_), peer_name(),
                       describe_());
  }
  std::string context() const { return fmt::format("; {} {}", self(), wait_text()); }
  [[noreturn]] void fail(const std::string& message) const { state_.fail(message, context()); }
  // No more messages arrive from this rank.
  bool is_closed() const {
    return task_.waits_for_messages() && state_.comm_context->transport->closed(awaited_);
  }

  // Work of a rank before it gave up counts: the operation may be complete.
  Progress after_failure() {
    if (task_.advance() == Progress::kDone) return Progress::kDone;
    state_.comm_context->failure.raise_failure(context());
  }
  // Work of a rank before its goodbye is visible once its messages have ended.
  Progress after_goodbye() {
    if (task_.waits_for_messages() && !is_closed()) return Progress::kWaiting;
    const Progress progress = task_.advance();
    if (progress == Progress::kWaiting) {
      fail(fmt::format("{} {}, but that rank has ended (in order, with a goodbye)", self(),
                       wait_text()));
    }
    return progress;
  }
  // The monitor may have the reason in a moment.
  Progress after_close() const {
    CommContext& comm_context = *state_.comm_context;
    const Clock::time_point closed_since = Clock::now();
    while (Clock::now() - closed_since < kVerdict) {
      if (comm_context.failure.is_set()) comm_context.failure.raise_failure(context());
      if (comm_context.monitor->left(awaited_)) return Progress::kWaiting;
      std::this_thread::sleep_for(milliseconds(1));
    }
    fail(fmt::format("{} died: its data connection closed", peer_name()));
  }

  Communicator::State& state_;
  Clock::time_point since_;
  CommTask& task_;
  FunctionRef<std::string()> describe_;
  int awaited_ = -1;  // world rank; -1: no particular rank
};

}  // namespace

Progress Communicator::State::check_wait(Clock::time_point since, CommTask& task,
                                         FunctionRef<std::string()> describe, milliseconds limit) {
  return WaitCheck(*this, since, task, describe).run(limit);
}

// ---- the progress thread ----

void Communicator::State::start_worker(Communicator& communicator) {
  if (!worker_asked) return;
  RankCores own;
  own.asks = options.worker.count > 0;
  own.compute_threads = options.worker.compute_threads;
  own.usable = available_cores();
  own.cores = allowed_cores();
  const std::vector<std::string> texts = all_gather_texts(communicator, own.write());
  if (options.transport.is_plugin()) {
    return comm_context->progress_thread.start(
        -1, fmt::format("no progress thread: {} is called by one thread only",
                        comm_context->transport->describe()));
  }
  std::vector<RankCores> ranks;
  for (const int member : node_members())
    ranks.push_back(RankCores::read(texts[static_cast<std::size_t>(member)]));
  const WorkerPlan plan = plan_worker(ranks, local_rank, options.worker);
  comm_context->progress_thread.start(plan.core, plan.text);
}

// ---- the callers' waits ----

void Communicator::wait(const Request& request) { wait(request, state_->options.timeout); }

void Communicator::wait(const Request& request, milliseconds limit) {
  wait_a_turn(request, {Clock::now(), limit, limit});
}

bool Communicator::wait_a_turn(const Request& request, const Turn& turn) {
  if (request.done()) return true;
  State& s = *state_;
  const auto inside = s.comm_context->progress_thread.enter();
  if (request.message_ != nullptr) {
    const Message& message = *request.message_;
    MessageWait task(*s.comm_context->transport, message);
    return s.drive_for(
        task, [&] { return comm::describe(message.header); }, turn);
  }
  if (s.group_depth > 0 && request.call_->task == nullptr) {
    raise<InvalidArgument>("wait: the operation belongs to a group that has not ended");
  }
  const auto advance_all = [&] { return s.advance_pending(); };
  PendingWait task(s.pending, *request.call_, advance_all);
  return s.drive_for(
      task, [&] { return comm::describe(request.call_->call, request.call_->begun.sequence); },
      turn);
}

bool Communicator::wait_for(const Request& request, microseconds max_wait) {
  const Clock::time_point start = Clock::now();
  while (!request.done()) {
    progress();
    if (request.done()) break;
    const auto left = std::chrono::duration_cast<microseconds>(max_wait - (Clock::now() - start));
    if (left.count() <= 0) return false;
    progress(std::min(left, kShortPollTimeout));
  }
  return true;
}

void Communicator::progress(microseconds max_wait) {
  State& s = *state_;
  const auto inside = s.comm_context->progress_thread.enter();
  life().throw_if_failed();
  // One turn of the transport moves only a limited piece per link. The caller may be away for a
  // while: all that can be sent now is sent, within bounds.
  constexpr int kTurns = 64;
  bool moved = s.advance_pending() == Progress::kMoved;
  if (!moved) moved = s.comm_context->transport->progress(max_wait);
  for (int turn = 1; moved && turn < kTurns; ++turn) {
    moved = s.advance_pending() == Progress::kMoved;
    if (!moved) moved = s.comm_context->transport->progress({});
  }
  life().throw_if_failed();
}

// ---- waits of other code ----

void Communicator::check_wait(Clock::time_point since, int peer, std::string_view what) {
  if (life().among_others()) state_->check_wait_for_rank(since, peer, what);
}

void Communicator::State::check_wait_for_rank(Clock::time_point since, int awaited,
                                              std::string_view what) {
  const auto describe_wait = [&] {
    return fmt::format("waited {:.1f} s for {}{}", seconds_since(since), what,
                       awaited >= 0 ? " of " + peer(awaited).describe() : "");
  };
  if (comm_context->failure.is_set()) {
    comm_context->failure.raise_failure(fmt::format("; {} {}", self().describe(), describe_wait()));
  }
  if (Clock::now() - since >= options.timeout) {
    fail(fmt::format("{} {}, as long as the timeout allows; that rank is stalled or busy with "
                     "something else{}",
                     self().describe(), describe_wait(), comm_context->monitor->describe_laggard()),
         "");
  }
}

void Communicator::wait_for_flag(FlagLine& flag, std::uint32_t target, int writer,
                                 std::string_view what) {
  const Clock::time_point start = Clock::now();
  const microseconds spin = state_->may_spin ? kSpin : microseconds(0);
  while (true) {
    for (int i = 0; i < 64; ++i) {
      if (flag_reached(flag, target)) return;
      cpu_relax();
    }
    if (Clock::now() - start > spin) break;
  }
  const Monitor::Waiting note(*state_->comm_context->monitor);
  FlightRecorder::Entry entry;
  entry.what = FlightRecorder::Kind::kFlag;
  entry.sequence = target;
  entry.root = writer;
  const std::uint64_t ticket = flight_record().begin(entry);
  while (true) {
    // A rank raises its flags before it sends its goodbye: check in the opposite order.
    const bool gone =
        writer != state_->rank && state_->comm_context->monitor->left(state_->world(writer));
    const std::uint32_t seen = flag.value.load(std::memory_order_acquire);
    if (flag_reached(flag, target)) return flight_record().end(ticket);
    if (gone) {
      state_->fail(
          fmt::format(
              "{} waited {:.1f} s for {} of {}, but that rank has ended (in order, with a goodbye)",
              state_->self().describe(), seconds_since(start), what, describe_rank(writer)),
          "");
    }
    check_wait(start, writer, what);
    sleep_on_flag(flag, seen, kProgressPoll.count());
  }
}

}  // namespace tandem::comm
