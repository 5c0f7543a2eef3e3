// A worker's channel to the agent that started it: orders about views, and reports of the worker.
// docs/elastic_protocol.md describes the whole protocol.
//
// Thread-safety: one thread uses it. A second thread receives the agent's messages meanwhile, so
// that a view can be stopped while the worker waits in it. If the agent is gone the process ends at
// once: no agent manages its memory then, and its messages could only mislead other ranks.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tandem/core/env.h"
#include "tandem/elastic/worker/packet.h"

namespace tandem::elastic {

// The value of TANDEM_AGENT: "line:memory:worker:workers:shards:prints", numbers.
struct WorkerInfo {
  int line = -1;    // descriptors
  int memory = -1;  // the node's memory file
  int worker = 0;   // index among the `workers` of this node
  int workers = 1;
  int shards = 1;  // logical shards of the job, unless its flags set them
  int prints = 0;  // 1: prints the job's one-time messages, until there is a view
};
std::string to_text(const WorkerInfo& info);

struct Assignment {
  std::uint64_t view = 0;
  int rank = 0;
  int size = 1;
  Briefing briefing;
};

class AgentChannel {
 public:
  // Null if no elastic agent has started this process. Throws ConfigError if the variable is
  // invalid.
  static std::unique_ptr<AgentChannel> take(const Environment& environment);
  // `agent_gone` is called by the channel's thread and does not return.
  AgentChannel(const WorkerInfo& info, std::function<void()> agent_gone);
  ~AgentChannel();
  AgentChannel(const AgentChannel&) = delete;
  AgentChannel& operator=(const AgentChannel&) = delete;
  const WorkerInfo& info() const { return info_; }

  // Returns the one-time decision for the whole job. The first worker that asks makes it: decide()
  // is called there. Other workers wait for it.
  std::string decision(const std::function<std::string()>& decide);

  // Ready, with `step`, to compute a job of so many logical shards with the kernels and inputs in
  // `computes`: waits for the next view. Meanwhile the agent may order this worker to learn the
  // job's state (docs/design/0024). Then `learn` is called, which calls learned() and returns soon
  // after transfer_is_over().
  struct Ready {
    std::uint64_t step = 0;
    int shards = 1;
    Computes computes;
  };
  Assignment next_view(const Ready& ready, const std::function<void()>& learn);
  // A view was ordered, or another member is to be asked.
  bool transfer_is_over();
  void learns_at(const std::string& address);
  void learned(Learned what, std::uint64_t step, const std::string& why);
  // `serve_state` is called, by the channel's thread, with the address of a node that learns.
  void on_learner(std::function<void(const std::string& address)> serve_state);
  // As rank 0 of the view: sends the address to the others. As another rank: waits for the address;
  // empty if the view is stopped before.
  void send_address(std::uint64_t view, const std::string& address);
  std::optional<std::string> address(std::uint64_t view);

  // `abort` is called, by another thread, when the view must be left at once; immediately if that
  // order has already arrived.
  void enter(std::uint64_t view, std::function<void()> abort);
  void leave();  // after it abort is not called
  bool is_stopped(std::uint64_t view);
  // The entered view must be left at once.
  const std::atomic<bool>& stop_ordered() const { return orders_.stop; }
  bool change_asked() const { return orders_.change.load(std::memory_order_relaxed); }
  const std::atomic<bool>& end_requested() const { return orders_.end; }

  void applied(std::uint64_t view, std::uint64_t step, const std::vector<double>& record);
  // The agent prints `lines` to this worker's stdout; waits until it has, or a second. An agent
  // stores the progress and the lines together, so lines of a log are printed once, for any death.
  // `advanced`: the job has passed the start of the view.
  void progress(std::uint64_t view, std::string text, const std::string& lines, bool advanced);
  // `training_progress` belongs to the state that is about to replace the node's. It is sent before
  // the replacement, so that it is available wherever that state is found.
  void arrives(std::uint64_t view, const std::string& training_progress);
  // Measurements for users; the newest text of the node's first worker counts. Any thread.
  void measured(std::string text);
  // `damaged`: the ranks between which a frame arrived damaged.
  void failed(std::uint64_t view, const std::string& why,
              std::optional<std::pair<int, int>> damaged = {});
  void left(std::uint64_t view, std::uint64_t step, bool as_agreed);
  void done(int code);

 private:
  void listen();
  void handle(Packet packet);
  void send(const Packet& packet);

  const WorkerInfo info_;
  std::function<void()> agent_gone_;
  PacketSocket socket_;
  std::mutex send_mutex_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Messages of the agent that wait for the worker.
  struct Inbox {
    std::optional<Packet> decision;  // kDecide or kDecision
    std::optional<Packet> run;       // the newest ordered view
    std::optional<Packet> meet;      // the address of its rank 0
    std::optional<std::uint64_t> learn;
    std::uint64_t prints = 0;  // requested and not yet completed
  };
  Inbox inbox_;
  std::uint64_t learns_ = 0;  // the newest begun attempt
  std::function<void(const std::string&)> serve_state_;
  struct EnteredView {
    std::uint64_t view = 0;
    std::function<void()> abort;
  };
  EnteredView entered_;
  std::uint64_t stopped_view_ = 0;  // all views up to it must be left
  struct Orders {
    std::atomic<bool> stop{false};    // the entered view
    std::atomic<bool> change{false};  // leave it after the next step
    std::atomic<bool> end{false};     // end of the job
  };
  Orders orders_;
  net::FileDescriptor end_event_;
  std::thread thread_;
};

}  // namespace tandem::elastic
