#include "tandem/comm/collectives/worker.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "tandem/comm/failure/block_signals.h"
#include "tandem/core/error.h"

namespace tandem::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

// As in the caller's waits (progress.cc): most answers arrive during the spin.
constexpr microseconds kWorkerSpin{50};
// After that the thread polls at this interval: no wake-up announces data from other ranks.
constexpr microseconds kIdlePoll{50};
// An idle thread is woken; this interval covers a lost wake-up.
constexpr microseconds kLongPollTimeout{100000};

void poll_timeout(int event, microseconds max_wait) {
  pollfd wait{event, POLLIN, 0};
  const timespec timeout{0, static_cast<long>(max_wait.count() * 1000)};
  ::ppoll(&wait, 1, &timeout, nullptr);
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(event, &count, sizeof count);
}

}  // namespace

Worker::Worker(std::function<Progress()> pass, std::function<bool()> has_work, int core)
    : pass_(std::move(pass)),
      has_work_(std::move(has_work)),
      event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!event_) throw io_error("cannot create", "eventfd", errno);
  {
    const BlockSignals block;
    thread_ = std::thread([this] { run(); });
  }
  if (core < 0) return;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  CPU_SET(static_cast<std::size_t>(core), &mask);
  const int error_number = ::pthread_setaffinity_np(thread_.native_handle(), sizeof mask, &mask);
  if (error_number == 0) return;
  stop();
  raise<ConfigError>(
      "the progress thread of this rank cannot run on core {}: {}; look at CCL_WORKER_AFFINITY and "
      "at "
      "the cores that the process may use (taskset -p)",
      core, std::strerror(error_number));
}

Worker::~Worker() { stop(); }

void Worker::stop() {
  stop_.store(true, std::memory_order_seq_cst);
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event_.get(), &one, sizeof one);
  thread_.join();
}

void Worker::enter() {
  callers_.fetch_add(1, std::memory_order_seq_cst);
  inside_.lock();
  ++depth_;
}

void Worker::leave() {
  const bool wake = --depth_ == 0 && has_work_();
  inside_.unlock();
  callers_.fetch_sub(1, std::memory_order_seq_cst);
  if (!wake || !asleep_.load(std::memory_order_seq_cst)) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event_.get(), &one, sizeof one);
}

Progress Worker::try_pass() {
  if (callers_.load(std::memory_order_seq_cst) != 0) return Progress::kDone;
  const std::unique_lock lock(inside_, std::try_to_lock);
  return lock.owns_lock() ? pass_() : Progress::kDone;
}

void Worker::run() {
  Clock::time_point idle_since = Clock::now();
  while (!stop_.load(std::memory_order_seq_cst)) {
    const Progress progress = try_pass();
    if (progress == Progress::kDone) {
      sleep_until_work();
      idle_since = Clock::now();
    } else if (progress == Progress::kMoved) {
      idle_since = Clock::now();
    } else if (Clock::now() - idle_since > kWorkerSpin) {
      poll_timeout(event_.get(), kIdlePoll);
    }
  }
}

// No work, or the caller is inside and does it. The caller checks `asleep_` after it left; this
// thread checks the caller after it has set `asleep_`: at least one of them sees the other.
void Worker::sleep_until_work() {
  asleep_.store(true, std::memory_order_seq_cst);
  const bool busy = try_pass() != Progress::kDone;
  if (!busy && !stop_.load(std::memory_order_seq_cst)) poll_timeout(event_.get(), kLongPollTimeout);
  asleep_.store(false, std::memory_order_relaxed);
}

}  // namespace tandem::comm
