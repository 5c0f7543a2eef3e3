// An agent's side of an elastic job: what the membership orders (membership/agent.h) becomes words
// to this node's workers, and what they say becomes its inputs. The agent's program starts the
// workers' processes and says how they end; this class neither starts nor kills.
//
// It also keeps what must outlive the workers: the file of the node's memory, and where the job is.
//
// A job on several hosts has a node on each. They talk over AgentLinks; on one host there is one,
// which agrees with itself.
//
// Thread-safety: one thread.
#pragma once

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/elastic/agent_links.h"
#include "tandem/elastic/damaged_links.h"
#include "tandem/elastic/external_lock.h"
#include "tandem/elastic/packet.h"
#include "tandem/elastic/seat.h"
#include "tandem/elastic/step_time.h"
#include "tandem/elastic/worker_count.h"
#include "tandem/membership/agent.h"
#include "tandem/membership/joining.h"

namespace tandem::elastic {

// Where a node of a job on several hosts is, and what it knows of the others.
struct NodePlace {
  rendezvous::FileDescriptor listener;
  std::string address;    // "host:port" of the listener, as others reach it
  std::string host_name;  // for people
  std::uint64_t job = 0;  // a hash of its id
  std::string token;
  std::vector<std::string> contacts;  // addresses of agents that may be there; not this one
  bool founder = false;               // makes the first view, and decides what is decided once
  // Its number among the hosts that mpirun was given, which orders the first view; -1: any order.
  int host = -1;
  membership::Bounds bounds;
  std::chrono::milliseconds patience{600000};    // how long to wait for enough nodes and workers
  std::chrono::milliseconds host_timeout{2000};  // after which workers miss a silent host
  // What to do when that was in vain.
  std::string advice =
      "start the missing agents, or give them more time (--rdzv-conf join_timeout=SECONDS)";
  std::shared_ptr<ExternalLock> lock;  // null: the nodes are counted
};

struct NodeOptions {
  int workers = 1;
  int shards = 1;  // logical shards of the job, where its flags do not say
  std::function<void(const std::string&)> log;  // a line for people
  // Prints lines of worker's, where its stdout goes.
  std::function<void(int worker, const std::string& lines)> print = {};
  // Before the first view, who is not ready for so long after the first of this host (or twice as
  // long as that one took, if that is more) is not waited for.
  std::chrono::milliseconds late_limit{60000};
  // Who has not left a view for so long after it was told is stopped or stuck, and killed.
  std::chrono::milliseconds leave_limit{5000};
  std::optional<NodePlace> place = {};  // none: all of the job is on this host
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
  // world's. Until then it counts as there, though its line has ended: so the view without it says
  // what happened.
  void worker_ended(int worker, const std::string& how, bool fault);
  // Whether it reads model and data, or decides where the job begins: it has not been ready since
  // open_seat(), and waits for nobody's word.
  bool prepares(int worker) const;
  // How long it has been deciding where the job begins, for which all others wait; 0: it is not.
  Clock::duration decides_for(int worker) const;
  // Whether it has been in a view that computes, since open_seat().
  bool has_computed(int worker) const {
    return seats_[static_cast<std::size_t>(worker)].has_computed;
  }
  // Whether a step has been applied in a view that it was in, since open_seat().
  bool has_helped(int worker) const { return seats_[static_cast<std::size_t>(worker)].has_helped; }
  // It said that it has done all of the job.
  bool is_done(int worker) const {
    return seats_[static_cast<std::size_t>(worker)].state == State::kDone;
  }
  // Those that must be killed, each once.
  std::vector<int> take_stuck() { return std::exchange(stuck_, {}); }

  // Of the view that it has or had last.
  int rank(int worker) const { return seats_[static_cast<std::size_t>(worker)].rank; }
  // Unlike any other node's.
  std::string key() const;

  // ---- the job ----
  // This node is to leave it; the others go on. end() says when it has.
  void leave();
  // The job fails everywhere. One that has not begun fails here only, unless it begins with all of
  // its workers.
  void fail(int code, const std::string& message);
  // Nothing is left to be said to the others.
  bool said_all() const { return !links_ || links_->flushed(); }

  // ---- questions of people ----
  // Who computes in the newest view besides this node.
  std::vector<membership::Peer> others() const;
  // Where others reach it; empty: nobody does.
  const std::string& address() const { return address_; }
  void tell(const membership::Peer& to, const membership::Fact& fact);
  // A worker takes the job's state while the others train; it is in no view meanwhile.
  bool learns() const { return joining_.under_way(); }
  struct Said {
    membership::Peer from;
    membership::Fact fact;  // kQuestion or kReply
  };
  std::vector<Said> take_said() { return std::exchange(said_, {}); }
  std::vector<rendezvous::Guest> take_visitors() { return std::exchange(visitors_, {}); }

  // ---- the loop ----
  void add_to(std::vector<pollfd>& waits) const;
  std::chrono::milliseconds nap() const;
  void serve();  // after a wait
  struct End {
    int code = 0;
    std::string message;
  };
  const std::optional<End>& end() const { return end_; }
  // There has been a view, so the job does not wait for all of its workers any more.
  bool begun() const { return begun_; }
  // For people: the number of the view that the workers have (the job's; on a single host how many
  // there were), what one of them does, its rank while it computes.
  std::uint64_t view_number() const { return links_ ? view_.counter : serial_; }
  std::string_view doing(int worker) const;
  int rank_now(int worker) const;
  // The last step that is known here to be applied, by whomever.
  std::uint64_t step() const { return std::max(step_, step_of_view_); }
  // Of the newest view: its nodes and ranks.
  int num_nodes() const { return static_cast<int>(members_.size()); }
  int num_ranks() const { return num_ranks_; }
  // From the last step before a worker or node was lost to the first one after it, less what a step
  // usually takes; the sum over all losses that this agent has seen.
  double seconds_lost() const { return seconds_lost_; }
  // Since a step was applied; nothing before the first.
  std::optional<double> seconds_since_step() const;
  // Seat::measured() of the first worker, or empty.
  const std::string& measured() const { return measured_; }

 private:
  enum class State { kGone, kStarting, kReady, kRunning, kLeft, kDone };
  struct Seat {
    State state = State::kGone;
    PacketSocket line;                       // without a descriptor once it has ended
    rendezvous::FileDescriptor workers_end;  // until the process has been started
    bool was_ready = false;
    bool has_computed = false;
    bool has_helped = false;
    bool late = false;        // to be ready
    std::uint64_t since = 0;  // ready: the older, the lower its rank
    int rank = -1;
    // Its line has ended, so its process is about to: until then it is waited for to hear how.
    Clock::time_point vacate_at = Clock::time_point::max();
    std::string killed_as;  // "was stopped or stuck", where it was killed by this node's word
  };

  // node_learning.cc: one of the workers of a node that holds nothing learns the job's state.
  bool keeps_back();
  void obey(const membership::Learn& order);
  void hear_learner(int worker, const Packet& packet);
  void watch_learner();
  void tell_learning_failed(const std::string& why);
  void report_workers();
  void teach(const std::string& place);

  static membership::AgentOptions agent_options(const NodeOptions& options);
  membership::Time now() const;
  std::size_t count(State state) const;
  bool any_line() const;
  void hear(int worker, const Packet& packet);
  void answer_asker(int worker);
  void read_line(int worker);
  void kill(int worker, std::string as);
  void lose(int worker, const std::string& how);
  void vacate_cut_off();
  void kill_late();
  void vacate(int worker);
  void recount();
  bool is_any_awaited() const;
  std::optional<Clock::time_point> late_at() const;
  void look_for_late();
  void check_left();
  void check_done();
  void obey();
  void obey(const membership::RunView& order);
  void obey(const membership::End& order, bool saves);
  void ask_boundary();
  std::vector<int> choose(std::size_t most) const;
  struct Ranks {
    int before = 0;
    int own = 0;
    int all = 0;
  };
  bool is_in_vain(const membership::View& view);
  void give_up_in_vain();
  void note_damage(int from, int to, const std::string& message);
  const membership::Member* member_of_rank(int rank) const;
  Ranks ranks_of(const membership::View& view) const;
  std::string changes_to(const membership::View& view) const;
  void run(const std::vector<int>& workers, const Ranks& ranks, const Briefing& briefing);
  void hear_others();
  void hear_lock();
  void hear_stranger(const AgentLinks::News::Stranger& stranger);
  void hear_fact(const membership::Peer& from, const membership::Fact& fact);
  void send_place(const std::string& place);
  void welcome(const membership::Peer& comer);
  void share_decision(const membership::Peer& to);
  void tell_it_cannot_begin(int code, const std::string& message);
  bool may_decide() const;
  void identify(int worker, const Packet& packet);
  void watch_patience();
  void stop_workers();
  void note_progress(std::uint64_t step);
  void note_help();
  void log_view(const membership::View& view, const std::string& changes);
  void keep(int worker, const Packet& progress);
  void tell_place(const std::string& place, int except);
  void say(int worker, Packet packet);

  NodeOptions options_;
  rendezvous::FileDescriptor memory_;
  const membership::Rules rules_;
  std::unique_ptr<AgentLinks> links_;  // null: one host
  std::unique_ptr<membership::Agent> agent_;
  std::vector<Seat> seats_;
  Clock::time_point started_ = Clock::now();
  std::optional<Clock::time_point> first_ready_at_;
  std::uint64_t serial_ = 0;  // of the view that the workers have, on this node
  membership::ViewNumber view_;
  std::vector<membership::Member> members_;
  bool paused_ = false;                      // that view
  bool closing_ = false;                     // the workers save a checkpoint, then the node ends
  std::optional<membership::Fact> meeting_;  // of a view that may be installed here soon
  std::size_t most_ranks_ = 0;               // the job's logical shards; 0: not known yet
  std::optional<Computes> computes_;
  std::uint64_t step_ = 0;            // that this node holds
  std::uint64_t step_of_view_ = 0;    // with whose end the newest view began
  std::uint64_t newest_applied_ = 0;  // that was told, and when
  Clock::time_point applied_at_ = Clock::now();
  StepTime step_time_;  // between two of one view
  bool lost_since_step_ = false;
  double seconds_lost_ = 0;
  int num_ranks_ = 0;
  WorkerCount num_workers_;
  std::string measured_;
  int keeper_ = -1;  // the first worker of the view here
  bool first_of_view_ = false;
  bool as_agreed_ = false;  // the workers have left after a step
  bool stopping_ = false;
  Clock::time_point stop_since_;
  std::string why_;                    // the next view is needed
  std::optional<std::string> failed_;  // the view of the workers, and who said why
  DamagedLinks damaged_links_;
  std::uint64_t damaged_view_ = 0;  // the newest that a damaged frame has ended
  std::string driven_out_;          // the damage because of which a node has left
  int in_vain_ = 0;  // views one after another that failed without a step, though nobody was lost
  bool proven_ = false;  // a step has been applied in a view of this node, since it had the state
  std::uint64_t arrivals_ = 0;
  bool begun_ = false;  // there has been a view
  std::optional<std::string> decision_;
  int decider_ = -1;
  Clock::time_point decides_since_;
  std::vector<int> askers_;
  std::map<membership::NodeId, membership::Peer> heard_askers_;  // until something is decided
  std::map<membership::NodeId, membership::Peer> comers_;        // until there is a view
  membership::Joining joining_;
  int learner_ = -1;           // the worker that learns, or did last
  std::uint64_t lessons_ = 0;  // that have been begun
  Clock::time_point learns_since_;
  Account account_;
  Account arrived_;  // since, with another state
  std::optional<int> done_code_;
  std::vector<int> stuck_;
  std::optional<End> end_;
  std::optional<End> ending_;  // as soon as the workers are through
  Clock::time_point ending_since_;
  std::string address_;
  std::vector<Said> said_;
  std::vector<rendezvous::Guest> visitors_;
  std::optional<Clock::time_point> idle_since_;
  Clock::time_point told_idle_;
};

}  // namespace tandem::elastic
