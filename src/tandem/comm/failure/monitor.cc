#include "tandem/comm/failure/monitor.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "tandem/comm/algorithms/call.h"
#include "tandem/comm/failure/block_signals.h"
#include "tandem/comm/failure/flight_recorder.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/net/event_loop.h"

namespace tandem::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A process that has ended closes its connections at once; its goodbye may arrive later by at most
// this time.
constexpr milliseconds kLastWords{100};
constexpr milliseconds kBeat{250};
// Interval between two probes of a silent host, or its round-trip time if that is longer; the
// answer is checked twice per interval.
constexpr milliseconds kBetweenProbes{100};
// Up to this many ranks every rank sends heartbeats to all; beyond, each to this many neighbours on
// either side of the ring.
constexpr std::size_t kAllToAllRanks = 16;
constexpr std::size_t kNeighbours = 4;
constexpr int kKernelMaxWait = 4;

net::FileDescriptor open_process(pid_t pid) {
#ifdef SYS_pidfd_open
  return net::FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
#else
  return {};
#endif
}

// "T (stopped)": the state of a process of this host, as ps shows it; empty if it cannot be read.
std::string process_state(pid_t pid) {
  const auto status = read_file_if_exists(fmt::format("/proc/{}/status", pid));
  const std::size_t at = status ? status->find("State:\t") : std::string::npos;
  if (at == std::string::npos) return "";
  return status->substr(at + 7, status->find('\n', at) - at - 7);
}

// Allowed silence of a host in round trips, however long those are.
constexpr int kRoundTrips = 8;
constexpr milliseconds kLongestSilence{60000};
// A host without any answer for so long may be lost.
constexpr milliseconds kSilent = 3 * kBeat;

double seconds(milliseconds time) { return static_cast<double>(time.count()) / 1000; }

// Returns true if ranks a and b of `size` send each other heartbeats.
bool reach_each_other(std::size_t a, std::size_t b, std::size_t size) {
  const std::size_t distance = a > b ? a - b : b - a;
  return size <= kAllToAllRanks || distance <= kNeighbours || size - distance <= kNeighbours;
}

}  // namespace

Monitor::Monitor(const std::vector<Peer>& peers, std::vector<net::FileDescriptor> control,
                 Failure& failure, Options options)
    : peers_(peers),
      failure_(failure),
      options_(std::move(options)),
      watched_(peers.size()),
      departed_{std::make_unique<std::atomic<bool>[]>(peers.size()),
                std::make_unique<std::atomic<bool>[]>(peers.size())} {
  for (std::size_t i = 0; i < peers.size(); ++i) {
    if (!control[i]) continue;
    // Only control connections: on a data connection the same limit would also end a rank that
    // computes and does not read. The kernel's own limit is the last resort; it does not take round
    // trips and data connections into account.
    net::watch_host(control[i], kKernelMaxWait * options_.host_timeout);
    net::retransmit_steadily(control[i]);
    watched_[i].control = std::move(control[i]);
    watched_[i].control_open = true;
    watched_[i].sends_heartbeats =
        reach_each_other(static_cast<std::size_t>(options_.rank), i, peers.size());
    watched_[i].activity_since = watched_[i].last_received = Clock::now();
    if (peers[i].pid_is_visible) watched_[i].process = open_process(peers[i].pid);
  }
  beats_.last = beats_.awake_since = Clock::now();
  record_requests_ = flight_record_requests();
  const auto connected = [](const Watched& watched) { return watched.control_open; };
  if (std::none_of(watched_.begin(), watched_.end(), connected)) return;
  shutdown_.event = net::FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const BlockSignals block;
  thread_ = std::thread([this] { run(); });
}

Monitor::~Monitor() { stop(); }

void Monitor::stop() noexcept {
  if (!thread_.joinable()) return;
  shutdown_.stop.store(true, std::memory_order_release);
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(shutdown_.event.get(), &one, sizeof one);
  thread_.join();
  const std::lock_guard lock(send_mutex_);
  for (Watched& watched : watched_) {
    watched.control_open = false;
    watched.control.reset();
    watched.process.reset();
  }
}

void Monitor::run() {
  while (!shutdown_.stop.load(std::memory_order_acquire)) {
    poll_once();
    judge_ended_processes();
    beat();
    if (beats_.probing) judge_silence();
    if (options_.on_record_request && flight_record_requests() != record_requests_) {
      record_requests_ = flight_record_requests();
      options_.on_record_request();
    }
    call_on_failure_when_due();
  }
}

void Monitor::poll_once() {
  net::EventLoop loop;
  loop.read(shutdown_.event);
  if (!reported_.seen) loop.add(failure_.event(), POLLIN);
  bool somebody_ended = false;
  for (std::size_t rank = 0; rank < watched_.size(); ++rank) {
    const Watched& watched = watched_[rank];
    somebody_ended = somebody_ended || (watched.process_has_ended && watched.control_open);
    if (watched.control_open) loop.read(watched.control, [this, rank] { read_control(rank); });
  }
  for (Watched& watched : watched_) {
    if (watched.process_has_ended) continue;
    loop.read(watched.process, [&watched] {
      watched.process_has_ended = true;
      watched.process_ended = Clock::now();
    });
  }
  const bool soon = somebody_ended || (reported_.seen && !reported_.callback_done);
  loop.run_once(soon ? milliseconds(10) : (beats_.probing ? kBetweenProbes / 2 : kBeat));
}

void Monitor::control_ended(std::size_t rank, const std::string& how) {
  Watched& watched = watched_[rank];
  if (!watched.control_open) return;
  watched.control_open = false;
  {
    const std::lock_guard lock(send_mutex_);
    watched.control.reset();
  }
  mark_gone(rank, how);
  if (left(static_cast<int>(rank)) || shutdown_.leaving.load(std::memory_order_acquire)) return;
  report(fmt::format("{} died: {}", peers_[rank].describe(), how), static_cast<int>(rank));
}

void Monitor::mark_gone(std::size_t rank, const std::string& why) {
  if (static_cast<int>(rank) == options_.rank) {
    const std::lock_guard lock(expulsion_.mutex);
    if (expulsion_.reason.empty()) expulsion_.reason = why;
  }
  departed_.gone[rank].store(true, std::memory_order_release);
}

std::string Monitor::why_expelled() const {
  const std::lock_guard lock(expulsion_.mutex);
  return expulsion_.reason;
}

void Monitor::expel(int rank, const std::string& why) noexcept {
  try {
    mark_gone(static_cast<std::size_t>(rank), why);
    send_to_all(ControlKind::kExpelled, why, rank);
  } catch (...) {  // no memory: that rank learns of it at its deadline
  }
}

void Monitor::judge_ended_processes() {
  for (std::size_t rank = 0; rank < watched_.size(); ++rank) {
    const Watched& watched = watched_[rank];
    if (!watched.process_has_ended || !watched.control_open) continue;
    if (Clock::now() - watched.process_ended < kLastWords) continue;
    control_ended(rank, "its process ended without a goodbye");
  }
}

void Monitor::beat() {
  const auto now = Clock::now();
  if (now - beats_.last < kBeat) return;
  // If this process itself did not run (a suspended job, a machine without a free core), silence in
  // that time is not evidence against the others.
  if (now - beats_.last > 2 * kBeat) {
    for (Watched& watched : watched_) watched.last_received += now - beats_.last - kBeat;
    beats_.awake_since = now;
  }
  beats_.last = now;
  if (shutdown_.leaving.load(std::memory_order_acquire)) return;
  judge_silence();
  Activity activity{operations_.load(std::memory_order_relaxed),
                    waiting_.load(std::memory_order_relaxed) ? 1u : 0u,
                    {}};
  if (activity.waiting != 0 && options_.recorder != nullptr) {
    activity.call = options_.recorder->newest_collective().value_or(FlightRecorder::Entry());
  }
  send_to_all(ControlKind::kHeartbeat,
              std::string(reinterpret_cast<const char*>(&activity), sizeof activity));
}

milliseconds Monitor::since_answer_of(std::size_t rank) const {
  const auto on_control = path_state(watched_[rank].control.get()).since_answer;
  if (!options_.data_paths) return on_control;
  return std::min(on_control, options_.data_paths->since_answer(rank));
}

// Returns true if the host of a rank that has been silent for so long answers new connections. A
// probe from before that silence is not evidence.
bool Monitor::answers_probes(std::size_t rank, milliseconds silent, milliseconds round_trip) {
  if (peers_[rank].port == 0) return false;
  Watched& watched = watched_[rank];
  const auto since_probe = Clock::now() - watched.probed_at;
  const bool of_this_silence = since_probe < silent;
  if (of_this_silence && watched.probe.answered()) return true;
  beats_.probing = true;
  if (of_this_silence && since_probe < std::max(kBetweenProbes, round_trip)) return false;
  watched.probed_at = Clock::now();
  watched.probe.ask(watched.control, peers_[rank].port);
  return false;
}

// A host is silent if none of its ranks' connections has an answer: traffic of one of them fills
// the queue in which the others wait. Its last answer may precede the first unanswered message by
// up to one heartbeat interval.
Monitor::Silence Monitor::silence_of(std::size_t rank) {
  const PathState path = path_state(watched_[rank].control.get());
  const auto max_wait = std::min<milliseconds>(kRoundTrips * path.round_trip, kLongestSilence);
  Silence silence{since_answer_of(rank), std::max(options_.host_timeout + kBeat, max_wait), false};
  for (std::size_t other = 0; other < watched_.size(); ++other) {
    const bool beside = watched_[other].control_open && other != rank &&
                        peers_[other].node_key == peers_[rank].node_key;
    if (beside) silence.so_far = std::min(silence.so_far, since_answer_of(other));
  }
  silence.answers_probes =
      silence.so_far >= kSilent && answers_probes(rank, silence.so_far, path.round_trip);
  if (silence.answers_probes) silence.limit *= 2;
  return silence;
}

void Monitor::judge_silence() {
  beats_.probing = false;
  if (shutdown_.leaving.load(std::memory_order_acquire)) return;
  for (std::size_t rank = 0; rank < watched_.size(); ++rank) {
    const Watched& watched = watched_[rank];
    if (!watched.sends_heartbeats || !watched.control_open || gone(static_cast<int>(rank)) ||
        left(static_cast<int>(rank))) {
      continue;
    }
    if (Clock::now() - watched.last_received >= 4 * kBeat) judge_silence_of(rank);
  }
}

void Monitor::judge_silence_of(std::size_t rank) {
  const Silence silence = silence_of(rank);
  if (silence.so_far >= silence.limit && Clock::now() - beats_.awake_since >= silence.limit) {
    return control_ended(
        rank,
        fmt::format("its host has answered nothing for {:.1f} s{} "
                    "(TANDEM_HOST_TIMEOUT sets the limit)",
                    seconds(silence.so_far),
                    silence.answers_probes ? ", though new connections to it are answered" : ""));
  }
  if (silence.so_far < kSilent) judge_stall(rank);
}

// The host answers, but its process may not.
void Monitor::judge_stall(std::size_t rank) {
  const bool limited = options_.stall_timeout.count() > 0;
  if (!limited || Clock::now() - watched_[rank].last_received < options_.stall_timeout) return;
  const std::string state =
      peers_[rank].pid_is_visible ? process_state(peers_[rank].pid) : std::string();
  const std::string message = fmt::format(
      "{} stalled: its host answers, but the process has sent nothing for {:.1f} s{}; send it "
      "SIGCONT or detach the debugger (TANDEM_STALL_TIMEOUT sets the limit)",
      peers_[rank].describe(), seconds(options_.stall_timeout),
      state.empty() ? "" : fmt::format(" (state {})", state));
  mark_gone(rank, message);
  // In a large job only the neighbours detect a silence, and after a failure nothing more is
  // reported.
  if (failure_.is_set()) return expel(static_cast<int>(rank), message);
  report(message, static_cast<int>(rank));
}

std::string Monitor::describe_laggard() const {
  const std::uint64_t own = operations_.load(std::memory_order_relaxed);
  const std::lock_guard lock(activity_mutex_);
  const Watched* last = nullptr;
  for (const Watched& watched : watched_) {
    if (!watched.sends_heartbeats || watched.activity.waiting != 0) continue;
    if (last == nullptr || watched.activity.operations < last->activity.operations) last = &watched;
  }
  if (last == nullptr) return "";
  const double seconds = std::chrono::duration<double>(Clock::now() - last->activity_since).count();
  return fmt::format(
      "; {} holds up the others: it has begun {} operations, this rank {}, and has "
      "waited for no rank for {:.1f} s",
      peers_[static_cast<std::size_t>(last - watched_.data())].describe(),
      last->activity.operations, own, seconds);
}

void Monitor::call_on_failure_when_due() {
  if (reported_.callback_done || !failure_.is_set()) return;
  if (!reported_.seen) {
    reported_.seen = true;
    reported_.time = Clock::now();
  }
  if (failure_.delivered() || !options_.on_failure || options_.failure_grace.count() == 0) {
    reported_.callback_done = true;
  } else if (Clock::now() - reported_.time >= options_.failure_grace) {
    reported_.callback_done = true;
    options_.on_failure(failure_.message() + failure_.postscript());
  }
}

void Monitor::report(const std::string& message, int dead) noexcept {
  spread(message, message, {.dead = dead});
}

// `message` is for this rank, `text` for the others.
void Monitor::spread(const std::string& message, const std::string& text,
                     const Cause& cause) noexcept {
  if (!failure_.claim(message, cause.damaged)) return;
  if (cause.damaged) {
    send_to_all(ControlKind::kDamage, text, cause.damaged->from, cause.damaged->to);
  } else {
    send_to_all(ControlKind::kFailure, text, cause.dead);
  }
  // A launcher that has seen the same death may kill this process within the millisecond: no detour
  // through a sleeping thread.
  if (options_.on_failure && options_.failure_grace.count() == 0) {
    options_.on_failure(message + failure_.postscript());
  }
  failure_.publish();
}

void Monitor::send_goodbye() noexcept {
  shutdown_.leaving.store(true, std::memory_order_release);
  send_to_all(ControlKind::kGoodbye, "");
}

}  // namespace tandem::comm
