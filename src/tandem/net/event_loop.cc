#include "tandem/net/event_loop.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace tandem::net {
namespace {

bool wait_for(int descriptor, short events, const Deadline& deadline) {
  pollfd wait{descriptor, events, 0};
  while (true) {
    const int ready = ::poll(&wait, 1, deadline.remaining_ms());
    if (ready > 0) return true;
    if ((ready == 0 && deadline.passed()) || (ready < 0 && errno != EINTR)) return false;
  }
}

}  // namespace

void EventLoop::add(int descriptor, short events, Handler on_ready) {
  if (descriptor < 0) return;
  waits_.push_back({descriptor, events, 0});
  handlers_.push_back(std::move(on_ready));
}

void EventLoop::until(Clock::time_point time) { until_ = std::min(until_, time); }

bool EventLoop::run_once(std::chrono::milliseconds limit) {
  const auto now = Clock::now();
  const Clock::duration left = until_ > now + limit ? limit : until_ - now;
  const auto timeout = std::chrono::ceil<std::chrono::milliseconds>(left);
  std::vector<pollfd> waits = std::exchange(waits_, {});
  const std::vector<Handler> handlers = std::exchange(handlers_, {});
  until_ = Clock::time_point::max();
  const int ready = ::poll(waits.data(), waits.size(),
                           static_cast<int>(std::max<std::int64_t>(0, timeout.count())));
  for (std::size_t i = 0; ready > 0 && i < waits.size(); ++i) {
    if (waits[i].revents != 0 && handlers[i]) handlers[i]();
  }
  return ready > 0;
}

bool wait_readable(int descriptor, const Deadline& deadline) {
  return wait_for(descriptor, POLLIN, deadline);
}

bool wait_writable(int descriptor, const Deadline& deadline) {
  return wait_for(descriptor, POLLOUT, deadline);
}

}  // namespace tandem::net
