// The workers of an agent as seen over their channels: which are there, what they do, and in which
// order they became ready. It keeps the file of the node's memory, which outlives them.
//
// Thread-safety: one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/elastic/worker/agent_channel.h"
#include "tandem/elastic/worker/packet.h"
#include "tandem/net/event_loop.h"
#include "tandem/net/socket.h"

namespace tandem::elastic {

struct WorkerChannel {
  using Clock = std::chrono::steady_clock;
  enum class State { kGone, kStarting, kReady, kRunning, kLeft, kDone };

  State state = State::kGone;
  PacketSocket line;                // without a descriptor after its end
  net::FileDescriptor workers_end;  // until the process has been started
  bool was_ready = false;
  bool has_computed = false;
  bool has_helped = false;
  bool late = false;        // not ready in time
  std::uint64_t since = 0;  // time of readiness: the earlier, the lower its rank
  int rank = -1;
  // Its channel has ended, so its process is about to end: until then the node waits for the exit
  // status.
  Clock::time_point vacate_at = Clock::time_point::max();
  std::string killed_as;  // "was stopped or stuck", if this node ordered the kill
};

// The environment and descriptors for a worker's process.
struct WorkerTicket {
  std::string variable;        // the value of TANDEM_AGENT
  std::vector<int> inherited;  // descriptors
};

class WorkerChannels {
 public:
  using Clock = WorkerChannel::Clock;
  using State = WorkerChannel::State;

  // Throws IoError.
  explicit WorkerChannels(int workers);

  int size() const { return static_cast<int>(channels_.size()); }
  WorkerChannel& at(int worker) { return channels_[static_cast<std::size_t>(worker)]; }
  const WorkerChannel& at(int worker) const { return channels_[static_cast<std::size_t>(worker)]; }
  std::size_t count(State state) const;
  bool any_running() const { return count(State::kRunning) > 0; }
  std::size_t num_present() const {
    return count(State::kReady) + count(State::kRunning) + count(State::kLeft);
  }
  // Time since the start of the agent.
  std::chrono::milliseconds now() const;
  Clock::time_point started() const { return started_; }

  WorkerTicket open(int worker, int shards, bool prints);
  void taken(int worker) { at(worker).workers_end = net::FileDescriptor(); }
  // Returns true if it is ready for the first time.
  bool note_ready(int worker);
  // The running workers have contributed to a step.
  void note_help();
  // Workers that can compute; those that have been ready longest first.
  std::vector<int> choose(std::size_t most) const;

  void send(int worker, const Packet& packet) const;
  void send_to_running(const Packet& packet, int except = -1) const;

  // ElasticAgent::worker_ended() follows.
  void kill(int worker, std::string as);
  std::vector<int> take_stuck() { return std::exchange(stuck_, {}); }

  // ---- workers that are not ready ----
  bool is_any_awaited() const;
  // When the others stop waiting for them, once one is ready: after `limit`, or twice as long as
  // that one took.
  std::optional<Clock::time_point> late_at(std::chrono::milliseconds limit) const;
  // Those that have just become late.
  std::vector<int> take_late();
  Clock::duration since_first_ready() const;

  // ---- the loop ----
  // Also waits until a worker is to be taken for cut off.
  void add_to(net::EventLoop& loop) const;
  // Workers whose channel has ended for long enough without an exit status.
  std::vector<int> take_cut_off();

 private:
  net::FileDescriptor memory_;
  std::vector<WorkerChannel> channels_;
  std::vector<int> stuck_;
  Clock::time_point started_ = Clock::now();
  std::optional<Clock::time_point> first_ready_at_;
  std::uint64_t arrivals_ = 0;
};

}  // namespace tandem::elastic
