// A worker's place at the agent that started it: what it is told to do, in views, and what it says
// of itself. docs/elastic.md has the whole.
//
// Thread-safety: one thread uses it; a thread of its own hears the agent meanwhile, so that a view
// can be stopped while the worker waits in it. When the agent is gone the process ends at once: its
// memory is nobody's then, and what it would say to other ranks could only mislead them.
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
#include "tandem/elastic/packet.h"

namespace tandem::elastic {

// What TANDEM_AGENT says: "line:memory:worker:workers:shards:speaks", numbers.
struct SeatCard {
  int line = -1;    // descriptors
  int memory = -1;  // the node's memory file
  int worker = 0;   // of `workers` of this node
  int workers = 1;
  int shards = 1;  // logical shards of the job, where its flags do not say
  int speaks = 0;  // 1: says what a job says once, until there is a view
};
std::string to_text(const SeatCard& card);

struct Assignment {
  std::uint64_t view = 0;
  int rank = 0;
  int size = 1;
  Briefing briefing;
};

class Seat {
 public:
  // Null where no elastic agent has started this process. Throws ConfigError when the variable is
  // none of an agent's.
  static std::unique_ptr<Seat> take(const Environment& environment);
  // `agent_gone` is called by the seat's thread and does not return.
  Seat(const SeatCard& card, std::function<void()> agent_gone);
  ~Seat();
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;
  const SeatCard& card() const { return card_; }

  // What was decided once for the whole job, by the first worker that asks: decide() is called
  // there. Waits for it elsewhere.
  std::string decision(const std::function<std::string()>& decide);

  // Ready, with `step`, to compute a job of so many logical shards with and on what `computes`
  // says: waits for the next view. Meanwhile the agent may want this worker to learn the job's
  // state (docs/design/0024): then `learn` is called, which says learned() and returns soon after
  // learning_is_over().
  struct Ready {
    std::uint64_t step = 0;
    int shards = 1;
    Computes computes;
  };
  Assignment next_view(const Ready& ready, const std::function<void()>& learn);
  // A view is given, or another member is to be asked.
  bool learning_is_over();
  void learns_at(const std::string& place);
  void learned(Learned what, std::uint64_t step, const std::string& why);
  // `teach` is called, by the seat's thread, with the place where a node waits that learns.
  void on_learner(std::function<void(const std::string& place)> teach);
  // As rank 0 of the view: tells the others where. As another rank: waits until it is told; nothing
  // when the view is stopped before.
  void tell_place(std::uint64_t view, const std::string& place);
  std::optional<std::string> place(std::uint64_t view);

  // `abort` is called, by another thread, when the view is to be left at once; at once if that has
  // been said already.
  void enter(std::uint64_t view, std::function<void()> abort);
  void leave();  // abort is called no more
  bool is_stopped(std::uint64_t view);
  // The view that was entered is to be left at once.
  const std::atomic<bool>& told_to_stop() const { return stop_; }
  bool change_asked() const { return change_.load(std::memory_order_relaxed); }
  const std::atomic<bool>& end_requested() const { return end_requested_; }

  void applied(std::uint64_t view, std::uint64_t step, const std::vector<double>& record);
  // `lines` are printed by the agent, with this worker's stdout; waits until they are, or a second.
  // An agent that has the one has the other, so lines of a log are printed once, whoever dies.
  // `got_on`: the job is further than where the view began.
  void progress(std::uint64_t view, std::string text, const std::string& lines, bool got_on);
  // `account` belongs to the state that is about to replace the node's: told before it does, it
  // comes to whoever finds that state there.
  void arrives(std::uint64_t view, const std::string& account);
  // For who watches the job; the newest text of the node's first worker counts. Any thread.
  void measured(std::string text);
  // `damaged`: the ranks between which a frame arrived damaged.
  void failed(std::uint64_t view, const std::string& why,
              std::optional<std::pair<int, int>> damaged = {});
  void left(std::uint64_t view, std::uint64_t step, bool as_agreed);
  void done(int code);

 private:
  void listen();
  void hear(Packet packet);
  void send(const Packet& packet);

  const SeatCard card_;
  std::function<void()> agent_gone_;
  PacketSocket socket_;
  std::mutex send_mutex_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Packet> decision_;  // kDecide or kDecision
  std::optional<Packet> run_;       // the newest view that was given
  std::optional<Packet> meet_;      // its place
  std::optional<std::uint64_t> learn_asked_;
  std::uint64_t learns_ = 0;  // the newest that was begun
  std::function<void(const std::string&)> teach_;
  std::uint64_t stopped_view_ = 0;  // all up to it are to be left
  std::uint64_t prints_ = 0;        // that have been asked for and not been done
  std::uint64_t entered_ = 0;
  std::function<void()> abort_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> change_{false};
  std::atomic<bool> end_requested_{false};
  rendezvous::FileDescriptor end_event_;
  std::thread thread_;
};

}  // namespace tandem::elastic
