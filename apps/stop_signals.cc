#include "apps/stop_signals.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <utility>

namespace tandem::apps {
namespace {

using std::chrono::milliseconds;

// A signal handler reaches nothing but these.
std::atomic<int> g_signal{0};          // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<bool> g_requested{false};  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<bool> g_json{false};       // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
constinit const std::atomic<bool> kNever{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

constexpr milliseconds kLook{20};
// How long a computation may take to notice.
constexpr milliseconds kPatience{600};

void handle(int number) {
  const int earlier = g_signal.exchange(number);
  g_requested.store(true);
  if (earlier == 0) return;
  constexpr std::string_view kText = "tandem: ended by a second signal\n";
  // A handler cannot tell the time.
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
  for (const int number : {SIGTERM, SIGINT}) ::sigaction(number, &action, nullptr);
}

}  // namespace

StopSignals::StopSignals(Voice voice) : voice_(std::move(voice)), interruption_(g_requested) {
  g_json.store(voice_.format == LogFormat::kJson);
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

std::string_view StopSignals::name() { return g_signal.load() == SIGINT ? "SIGINT" : "SIGTERM"; }

int StopSignals::exit_code() { return 128 + (g_signal.load() == SIGINT ? SIGINT : SIGTERM); }

// A job that is already ending has this long, counted from the signal or the end of training.
void StopSignals::watch() {
  using Clock = std::chrono::steady_clock;
  Clock::time_point limit = Clock::time_point::max();
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, kLook, [this] { return end_; })) {
    if (!g_requested.load() || !watching_.load()) {
      limit = Clock::time_point::max();
    } else if (limit == Clock::time_point::max()) {
      limit = Clock::now() + kPatience;  // by the clock: looks are late on a busy machine
    }
    if (Clock::now() < limit) continue;
    say(voice_, fmt::format("stopped by {}", name()), "WARNING");
    std::fflush(nullptr);
    ::_exit(exit_code());
  }
}

StopSignals::Training::Training(StopSignals& signals) : signals_(signals), uninterrupted_(kNever) {
  signals_.watching_.store(false);
}

StopSignals::Training::~Training() { signals_.watching_.store(true); }

}  // namespace tandem::apps
