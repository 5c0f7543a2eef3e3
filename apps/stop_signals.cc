#include "apps/stop_signals.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <utility>

namespace tandem::apps {
namespace {

using std::chrono::milliseconds;

constexpr int kNumbers[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
constexpr std::int64_t kOneRequestNs = 250'000'000;

// A signal handler reaches nothing but these.
std::atomic<int> g_signal{0};  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<std::int64_t> g_first_ns{
    0};                                // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<bool> g_requested{false};  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<bool> g_json{false};       // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
constinit const std::atomic<bool> kNever{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

constexpr milliseconds kLook{20};
// How long a computation may take to notice.
constexpr milliseconds kTimeout{600};

// Safe in a handler.
std::int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void handle(int number) {
  int earlier = 0;
  if (g_signal.compare_exchange_strong(earlier, number)) {
    g_first_ns.store(now_ns());
    g_requested.store(true);
    return;
  }
  if (now_ns() - g_first_ns.load() < kOneRequestNs) return;
  constexpr std::string_view kText = "tandem: ended by a second signal\n";
  // A handler cannot read the time.
  constexpr std::string_view kJson =
      "{\"severity\":\"WARNING\",\"logger\":\"tandem\","
      "\"message\":\"ended by a second signal\"}\n";
  const std::string_view line = g_json.load() ? kJson : kText;
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  ::_exit(128 + number);
}

void install(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  for (const int number : kNumbers) {
    struct sigaction before {};
    const bool ignored = ::sigaction(number, nullptr, &before) == 0 && before.sa_handler == SIG_IGN;
    if (number != SIGHUP || !ignored) ::sigaction(number, &action, nullptr);
  }
}

}  // namespace

StopSignals::StopSignals(LogPrefix log_prefix)
    : log_prefix_(std::move(log_prefix)), interruption_(g_requested) {
  g_json.store(log_prefix_.format == LogFormat::kJson);
  install(handle);
  thread_ = std::thread([this] { watch(); });
}

StopSignals::~StopSignals() {
  install(SIG_DFL);
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

const std::atomic<bool>& StopSignals::requested() const { return g_requested; }

std::string_view StopSignals::name() {
  switch (g_signal.load()) {
    case SIGINT:
      return "SIGINT";
    case SIGHUP:
      return "SIGHUP";
    case SIGQUIT:
      return "SIGQUIT";
    default:
      return "SIGTERM";
  }
}

int StopSignals::exit_code() {
  const int number = g_signal.load();
  return 128 + (number == 0 ? SIGTERM : number);
}

// A job that is already ending has this long, counted from the signal or the end of training.
void StopSignals::watch() {
  using Clock = std::chrono::steady_clock;
  Clock::time_point limit = Clock::time_point::max();
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, kLook, [this] { return end_; })) {
    if (!g_requested.load() || !watching_.load()) {
      limit = Clock::time_point::max();
    } else if (limit == Clock::time_point::max()) {
      limit = Clock::now() + kTimeout;  // by the clock: looks are late on a busy machine
    }
    if (Clock::now() < limit) continue;
    write_log(log_prefix_, fmt::format("stopped by {}", name()), "WARNING");
    std::fflush(nullptr);
    ::_exit(exit_code());
  }
}

StopSignals::Training::Training(StopSignals& signals) : signals_(signals), uninterrupted_(kNever) {
  signals_.watching_.store(false);
}

StopSignals::Training::~Training() { signals_.watching_.store(true); }

}  // namespace tandem::apps
