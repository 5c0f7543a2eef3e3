#include "tandem/elastic/agent/worker_channels.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "tandem/core/error.h"
#include "tandem/net/event_loop.h"

namespace tandem::elastic {

WorkerChannels::WorkerChannels(int workers)
    : memory_(::memfd_create("tandem-node", MFD_CLOEXEC)),
      channels_(static_cast<std::size_t>(workers)) {
  if (!memory_) throw io_error("cannot create a memory file", "memfd", errno);
}

std::size_t WorkerChannels::count(State state) const {
  return static_cast<std::size_t>(
      std::count_if(channels_.begin(), channels_.end(),
                    [&](const WorkerChannel& channel) { return channel.state == state; }));
}

std::chrono::milliseconds WorkerChannels::now() const {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - started_);
}

WorkerTicket WorkerChannels::open(int worker, int shards, bool prints) {
  auto [own, other] = socket_pair();
  WorkerChannel& channel = at(worker);
  channel = WorkerChannel();
  std::erase(stuck_, worker);  // its process has ended; the next one must not be killed
  channel.state = State::kStarting;
  channel.line = PacketSocket(std::move(own));
  channel.workers_end = std::move(other);
  const WorkerInfo info{.line = channel.workers_end.get(),
                        .memory = memory_.get(),
                        .worker = worker,
                        .workers = size(),
                        .shards = shards,
                        .prints = prints ? 1 : 0};
  return {to_text(info), {info.line, info.memory}};
}

bool WorkerChannels::note_ready(int worker) {
  WorkerChannel& channel = at(worker);
  if (channel.state != State::kRunning)
    channel.state = State::kReady;  // or a view has started first
  if (std::exchange(channel.was_ready, true)) return false;
  channel.since = ++arrivals_;
  if (!first_ready_at_) first_ready_at_ = Clock::now();
  return true;
}

void WorkerChannels::note_help() {
  for (WorkerChannel& channel : channels_)
    channel.has_helped = channel.has_helped || channel.state == State::kRunning;
}

std::vector<int> WorkerChannels::choose(std::size_t most) const {
  std::vector<int> chosen;
  for (int worker = 0; worker < size(); ++worker) {
    const State state = at(worker).state;
    if (state == State::kReady || state == State::kLeft) chosen.push_back(worker);
  }
  std::sort(chosen.begin(), chosen.end(), [&](int a, int b) { return at(a).since < at(b).since; });
  if (chosen.size() > most) chosen.resize(most);
  return chosen;
}

void WorkerChannels::send(int worker, const Packet& packet) const {
  try {
    at(worker).line.send(packet);
  } catch (const CommError&) {  // its end is handled in ElasticAgent::worker_ended()
  }
}

void WorkerChannels::send_to_running(const Packet& packet, int except) const {
  for (int worker = 0; worker < size(); ++worker) {
    if (worker != except && at(worker).state == State::kRunning) send(worker, packet);
  }
}

void WorkerChannels::kill(int worker, std::string as) {
  stuck_.push_back(worker);
  at(worker).killed_as = std::move(as);
}

bool WorkerChannels::is_any_awaited() const {
  return std::any_of(channels_.begin(), channels_.end(), [](const WorkerChannel& channel) {
    return channel.state == State::kStarting && !channel.late;
  });
}

std::optional<WorkerChannels::Clock::time_point> WorkerChannels::late_at(
    std::chrono::milliseconds limit) const {
  if (!first_ready_at_ || !is_any_awaited()) return std::nullopt;
  const auto taken = *first_ready_at_ - started_;
  return *first_ready_at_ + std::max<Clock::duration>(limit, 2 * taken);
}

std::vector<int> WorkerChannels::take_late() {
  std::vector<int> late;
  for (int worker = 0; worker < size(); ++worker) {
    WorkerChannel& channel = at(worker);
    if (channel.state == State::kStarting && !std::exchange(channel.late, true))
      late.push_back(worker);
  }
  return late;
}

WorkerChannels::Clock::duration WorkerChannels::since_first_ready() const {
  return first_ready_at_ ? Clock::now() - *first_ready_at_ : Clock::duration::zero();
}

void WorkerChannels::add_to(net::EventLoop& loop) const {
  for (const WorkerChannel& channel : channels_) {
    if (channel.state != State::kGone) loop.read(channel.line.descriptor());
    loop.until(channel.vacate_at);
  }
}

std::vector<int> WorkerChannels::take_cut_off() {
  std::vector<int> cut_off;
  for (int worker = 0; worker < size(); ++worker) {
    WorkerChannel& channel = at(worker);
    if (Clock::now() < channel.vacate_at) continue;
    channel.vacate_at = Clock::time_point::max();
    if (channel.state != State::kDone) cut_off.push_back(worker);
  }
  return cut_off;
}

}  // namespace tandem::elastic
