// Liveness of the ranks: one thread per communicator that watches a control connection to every
// other rank and the processes of the ranks on this host.
//
// A rank that ends in order sends a goodbye first. A connection that closes without one is a death.
// So is a process that ends without one (pidfd: covers a connection kept open by a child).
// A host is lost if its kernel acknowledges nothing for `host_timeout` after a heartbeat, on any
// connection to one of its ranks. If it answers a new connection (a probe), an interruption has
// passed, and the others have the same time again to reconnect. A stopped process (SIGSTOP, a
// debugger) sends no heartbeats though its host answers: after `stall_timeout` it counts as failed.
// The first rank that detects a failure sends it to all.
//
// In a small job heartbeats go to all ranks, in a large one to the neighbours in a ring of the
// ranks, four times a second. They continue after a failure, because the survivors may meet again
// (rendezvous/shrink_agreement.h) and must not wait for a stopped rank. A heartbeat contains the
// rank's present activity, so that an error after a long wait can name the rank that holds up the
// job, which may differ from the awaited rank. It also contains the rank's calls: ranks that wait
// for each other in different operations (one gathers to rank 0, the other to rank 1) exchange no
// message that could show the difference.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tandem/comm/failure/control_message.h"
#include "tandem/comm/failure/failure.h"
#include "tandem/comm/failure/flight_recorder.h"
#include "tandem/comm/failure/path_watch.h"
#include "tandem/comm/failure/peer.h"
#include "tandem/comm/failure/tcp_probe.h"
#include "tandem/net/socket.h"

namespace tandem::comm {

class Monitor {
 public:
  struct Options {
    int rank = 0;
    // A host with slow round trips may be silent for eight of them.
    std::chrono::milliseconds host_timeout{2000};
    std::shared_ptr<const DataPaths> data_paths;     // may be null
    std::chrono::milliseconds stall_timeout{10000};  // 0: no limit
    std::chrono::milliseconds failure_grace{300};
    // The record of this rank's calls, for comparison with those of others; may be null.
    const FlightRecorder* recorder = nullptr;
    std::function<void(const std::string&)> on_failure;
    std::function<void()> on_record_request;  // see request_flight_records()
  };
  // `control[r]` is the connection to rank r (none for this rank). `peers` and `failure` must
  // outlive the monitor.
  Monitor(const std::vector<Peer>& peers, std::vector<net::FileDescriptor> control,
          Failure& failure, Options options);
  // Without a connection there is nothing to watch, and no thread.
  ~Monitor();  // stops
  // Stops the thread and closes the connections: the other ranks receive nothing more from this
  // one. Idempotent.
  void stop() noexcept;
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  // Returns true if rank `rank` has sent its goodbye.
  bool left(int rank) const {
    return departed_.left[static_cast<std::size_t>(rank)].load(std::memory_order_acquire);
  }
  // Returns true if rank `rank` left, died, fell silent or was expelled: nothing will arrive from
  // it. For this rank itself: the others count it as dead or continued without it.
  bool gone(int rank) const {
    return departed_.gone[static_cast<std::size_t>(rank)].load(std::memory_order_acquire);
  }
  // The reason why this rank itself was expelled; empty if it was not.
  std::string why_expelled() const;
  // Notifies all ranks that `rank` was expelled, with the reason.
  void expel(int rank, const std::string& why) noexcept;
  // Makes `message` the failure of this communicator on all ranks, unless one is already known.
  // `dead`: the rank whose death the message reports, if any. Any thread.
  void report(const std::string& message, int dead = -1) noexcept;
  // The same for the link from `rank` to this one, on which `what` arrived ("all_reduce #17 of 100
  // float32 (sum) from 10.0.0.2 arrived with checksum …").
  void report_damage(std::size_t rank, const std::string& what) noexcept;
  // Notifies all ranks that this one ends in order.
  void send_goodbye() noexcept;
  // This rank's activity, for the others' messages: operations begun so far, and whether it waits
  // for others now. Any thread; one store each.
  void note_operations(std::uint64_t begun) { operations_.store(begun, std::memory_order_relaxed); }
  class Waiting {  // waiting state for the lifetime of the object
   public:
    explicit Waiting(Monitor& monitor) : flag_(monitor.waiting_) { set(true); }
    ~Waiting() { set(false); }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    void set(bool waiting) { flag_.store(waiting, std::memory_order_relaxed); }
    std::atomic<bool>& flag_;
  };
  // "; rank 3 (host node1, pid 17) holds up the others: it has begun 12 operations, this rank 13,
  // and has waited for no rank for 4.2 s"; empty if the heartbeats do not show it. Any thread.
  std::string describe_laggard() const;

 private:
  struct Activity {
    std::uint64_t operations = 0;
    std::uint64_t waiting = 0;
    // The newest collective across nodes, while waiting; else communicator 0.
    FlightRecorder::Entry call;
    friend bool operator==(const Activity&, const Activity&) = default;
  };
  struct Watched {
    net::FileDescriptor control;
    net::FileDescriptor process;  // pidfd
    net::FrameReader received{kControlProtocol};
    std::chrono::steady_clock::time_point process_ended{};
    bool process_has_ended = false;
    bool control_open = false;
    bool sends_heartbeats = false;
    // Corrected by the time in which this process did not run.
    std::chrono::steady_clock::time_point last_received{};
    TcpProbe probe;
    std::chrono::steady_clock::time_point probed_at{};
    Activity activity;
    std::chrono::steady_clock::time_point activity_since{};
  };

  void run();
  void poll_once();
  void read_control(std::size_t rank);
  void take_frames(std::size_t rank);
  void take_message(std::size_t rank, const ControlMessage& message);
  void control_ended(std::size_t rank, const std::string& how);
  void judge_ended_processes();
  void beat();
  struct Silence {
    std::chrono::milliseconds so_far;
    std::chrono::milliseconds limit;
    bool answers_probes;
  };
  std::chrono::milliseconds since_answer_of(std::size_t rank) const;
  bool answers_probes(std::size_t rank, std::chrono::milliseconds silent,
                      std::chrono::milliseconds round_trip);
  Silence silence_of(std::size_t rank);
  void judge_silence();
  void judge_silence_of(std::size_t rank);
  void judge_stall(std::size_t rank);
  void take_heartbeat(std::size_t rank, const std::string& text);
  void compare_calls(std::size_t rank, const FlightRecorder::Entry& theirs);
  void call_on_failure_when_due();
  void mark_gone(std::size_t rank, const std::string& why);
  struct Cause {
    int dead = -1;  // the rank that has died, if any
    std::optional<LinkEnds> damaged = {};
  };
  void spread(const std::string& message, const std::string& text, const Cause& cause) noexcept;
  void send_to_all(ControlKind kind, const std::string& text, int subject = -1,
                   int other = -1) noexcept;

  struct Departures {  // by rank
    std::unique_ptr<std::atomic<bool>[]> left, gone;
  };
  struct Expulsion {
    std::mutex mutex;  // guards `reason`
    std::string reason;
  };
  struct Beats {
    std::chrono::steady_clock::time_point last = {};
    std::chrono::steady_clock::time_point awake_since = {};
    bool probing = false;  // a host that may be lost
  };
  struct Shutdown {
    std::atomic<bool> leaving = false;
    std::atomic<bool> stop = false;
    net::FileDescriptor event;
  };
  // The failure as this thread saw and reported it.
  struct Reported {
    bool seen = false;
    bool callback_done = false;
    std::chrono::steady_clock::time_point time = {};
  };

  const std::vector<Peer>& peers_;
  Failure& failure_;
  const Options options_;
  std::vector<Watched> watched_;
  Departures departed_;
  mutable Expulsion expulsion_;
  std::mutex send_mutex_;
  mutable std::mutex activity_mutex_;  // guards activity and activity_since in watched_
  std::atomic<std::uint64_t> operations_{0};
  std::atomic<bool> waiting_{false};
  Beats beats_;
  std::uint64_t record_requests_ = 0;
  Shutdown shutdown_;
  Reported reported_;
  std::thread thread_;
};

}  // namespace tandem::comm
