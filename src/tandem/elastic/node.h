// An agent's side of an elastic job: what the membership orders (membership/agent.h) becomes words
// to this node's workers, and what they say becomes its inputs. The agent's program starts the
// workers' processes and says how they end; this class neither starts nor kills.
//
// It also keeps what must outlive the workers: the file of the node's memory, and where the job is.
//
// Thread-safety: one thread.
#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/elastic/packet.h"
#include "tandem/elastic/seat.h"
#include "tandem/membership/agent.h"

namespace tandem::elastic {

struct NodeOptions {
  int workers = 1;
  int shards = 1;  // logical shards of the job, where its flags do not say
  std::function<void(const std::string&)> log;  // a line for people
  // Who has not left a view for so long after it was told is stopped or stuck, and killed.
  std::chrono::milliseconds leave_limit{5000};
};

class Node {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Node(NodeOptions options);

  // ---- workers ----
  // What the process of place `worker` inherits; it is started now.
  struct Ticket {
    std::string variable;        // the value of TANDEM_AGENT
    std::vector<int> inherited;  // descriptors
  };
  Ticket open_seat(int worker);
  void seat_taken(int worker);  // the process has been started
  // Its process has ended: "was killed by SIGKILL". `fault`: in a way that is its own and not the
  // world's.
  void worker_ended(int worker, const std::string& how, bool fault);
  // Whether it has ever been ready, since open_seat().
  bool was_ready(int worker) const { return seats_[static_cast<std::size_t>(worker)].was_ready; }
  // It said that it has done all of the job.
  bool is_done(int worker) const {
    return seats_[static_cast<std::size_t>(worker)].state == State::kDone;
  }
  // Those that must be killed, each once.
  std::vector<int> take_stuck() { return std::exchange(stuck_, {}); }

  // ---- the loop ----
  void add_to(std::vector<pollfd>& waits) const;
  std::chrono::milliseconds nap() const;
  void serve();  // after a wait
  struct End {
    int code = 0;
    std::string message;
  };
  const std::optional<End>& end() const { return end_; }
  std::uint64_t step() const { return step_; }

 private:
  enum class State { kGone, kStarting, kReady, kRunning, kLeft, kDone };
  struct Seat {
    State state = State::kGone;
    PacketSocket line;
    rendezvous::FileDescriptor workers_end;  // until the process has been started
    bool was_ready = false;
    std::uint64_t since = 0;  // ready: the older, the lower its rank
    int rank = -1;
  };

  membership::Time now() const;
  std::size_t count(State state) const;
  bool any_line() const;
  void hear(int worker, const Packet& packet);
  void answer_asker(int worker);
  void vacate(int worker);
  void recount();
  void check_left();
  void check_done();
  void obey();
  void obey(const membership::RunView& order);
  void stop_workers();
  void note_progress(std::uint64_t step);
  void tell_place(const std::string& place, int except);
  void say(int worker, Packet packet);

  NodeOptions options_;
  rendezvous::FileDescriptor memory_;
  membership::Rules rules_;
  std::unique_ptr<membership::Agent> agent_;
  std::vector<Seat> seats_;
  Clock::time_point started_ = Clock::now();
  std::uint64_t serial_ = 0;  // of the view that the workers have, on this node
  membership::ViewNumber view_;
  std::uint64_t step_ = 0;
  std::uint64_t newest_applied_ = 0;  // that was told, and when
  Clock::time_point applied_at_ = Clock::now();
  bool first_of_view_ = false;
  bool as_agreed_ = false;  // the workers have left after a step
  bool stopping_ = false;
  Clock::time_point stop_since_;
  std::string why_;  // the next view is needed
  std::uint64_t arrivals_ = 0;
  bool begun_ = false;  // there has been a view
  std::optional<std::string> decision_;
  int decider_ = -1;
  std::vector<int> askers_;
  std::string progress_;
  std::vector<std::vector<double>> records_;
  std::optional<int> done_code_;
  std::vector<int> stuck_;
  std::optional<End> end_;
};

}  // namespace tandem::elastic
