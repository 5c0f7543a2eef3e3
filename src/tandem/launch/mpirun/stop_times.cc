#include "tandem/launch/mpirun/stop_times.h"

#include <utility>

namespace tandem::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto kGrace = 5s;         // from SIGTERM to SIGKILL
constexpr auto kGiveUp = 10s;       // from SIGKILL to the end of the wait for a host's answer
constexpr auto kAfterSignal = 30s;  // from the first end after a user's signal to SIGKILL

}  // namespace

bool StopTimes::begin_stop() {
  if (std::exchange(stopping_, true)) return false;
  kill_at_ = Clock::now() + kGrace;
  return true;
}

StopRequests::Kind StopTimes::request(int signal) {
  const StopRequests::Kind request = requests_.add();
  if (request == StopRequests::Kind::kFirst) user_signal_ = signal;
  if (request == StopRequests::Kind::kAgain) kill_at_ = Clock::now();
  return request;
}

void StopTimes::note_end() {
  if (requested() && !kill_at_) kill_at_ = Clock::now() + kAfterSignal;
}

bool StopTimes::kill_is_due() {
  const auto now = Clock::now();
  if (!kill_at_ || now < *kill_at_) return false;
  kill_at_ = now + 1s;
  if (!give_up_at_) give_up_at_ = now + kGiveUp;
  return true;
}

}  // namespace tandem::launch
