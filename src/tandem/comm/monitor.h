// Who is alive: one thread per communicator that watches a control connection to every other rank and the processes of the
// ranks on this host.
//
// A rank that ends in order says goodbye first. A connection that closes without one is a death; so is a process that ends
// without one (pidfd: covers a connection kept open by a child). A host that stops answering TCP keep-alive for
// `host_timeout` resets its connections. Whoever knows of a failure first sends it to all.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tandem/comm/failure.h"
#include "tandem/comm/peer.h"
#include "tandem/rendezvous/socket.h"

namespace tandem::comm {

class Monitor {
 public:
  struct Options {
    std::chrono::milliseconds host_timeout{5000};
    std::chrono::milliseconds failure_grace{300};
    std::function<void(const std::string&)> on_failure;
  };
  // `control[r]` is the connection to rank r (none for this rank itself). `peers` and `failure` must outlive the monitor.
  Monitor(const std::vector<Peer>& peers, std::vector<rendezvous::FileDescriptor> control,
          Failure& failure, Options options);
  ~Monitor();  // stops the thread, closes the connections
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  // Rank `rank` has said goodbye.
  bool left(int rank) const {
    return left_[static_cast<std::size_t>(rank)].load(std::memory_order_acquire);
  }
  // Makes `message` the failure of this communicator on all ranks, unless one is known already. Any thread.
  void report(const std::string& message) noexcept;
  // Tells all ranks that this one ends in order.
  void say_goodbye() noexcept;

 private:
  enum class Frame : std::uint32_t { kGoodbye = 1, kFailure = 2 };
  struct Watched {
    rendezvous::FileDescriptor control;
    rendezvous::FileDescriptor process;  // pidfd
    std::string received;
    std::chrono::steady_clock::time_point process_ended{};
    bool process_has_ended = false;
    bool control_open = false;
  };

  void run();
  void poll_once();
  void read_control(std::size_t rank);
  void take_frames(std::size_t rank);
  void control_ended(std::size_t rank, const std::string& how);
  void judge_ended_processes();
  void call_on_failure_when_due();
  void spread(const std::string& message, const std::string& text) noexcept;
  void send_to_all(Frame frame, const std::string& text) noexcept;

  const std::vector<Peer>& peers_;
  Failure& failure_;
  const Options options_;
  std::vector<Watched> watched_;
  std::unique_ptr<std::atomic<bool>[]> left_;
  std::mutex send_mutex_;
  std::atomic<bool> leaving_{false};
  std::atomic<bool> stop_{false};
  rendezvous::FileDescriptor stop_event_;
  bool failure_seen_ = false;
  bool callback_done_ = false;
  std::chrono::steady_clock::time_point failure_time_{};
  std::thread thread_;
};

}  // namespace tandem::comm
