// An agent's side of an elastic job. It turns the orders of the membership
// (protocol/membership.h) into messages to this node's workers, and the workers' messages into
// inputs of the membership. The agent's program starts the workers' processes and reports how they
// end; this class neither starts nor kills processes.
//
// It also keeps state that must outlive the workers: the file of the node's memory, and the job's
// progress.
//
// A job on several hosts has a node on each. They communicate over AgentLinks; a job on one host
// has a single node, which needs no agreement.
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

#include "tandem/elastic/agent/agent_links.h"
#include "tandem/elastic/agent/damaged_links.h"
#include "tandem/elastic/agent/step_time.h"
#include "tandem/elastic/agent/worker_count.h"
#include "tandem/elastic/lock/external_lock.h"
#include "tandem/elastic/protocol/joining.h"
#include "tandem/elastic/protocol/membership.h"
#include "tandem/elastic/worker/agent_channel.h"
#include "tandem/elastic/worker/packet.h"

namespace tandem::elastic {

// Address of a node of a job on several hosts, and its information on the others.
struct ElasticEndpoint {
  rendezvous::FileDescriptor listener;
  std::string address;    // "host:port" of the listener, as seen by the others
  std::string host_name;  // for people
  std::uint64_t job = 0;  // a hash of its id
  std::string token;
  std::vector<std::string> contacts;  // addresses of possible agents; not this one
  bool bootstrap_node = false;        // makes the first view and the one-time decisions
  // Its number among the hosts given to mpirun, which orders the first view; -1: any order.
  int host = -1;
  membership::Bounds bounds;
  std::chrono::milliseconds timeout{600000};     // timeout for enough nodes and workers
  std::chrono::milliseconds host_timeout{2000};  // after which workers count a silent host as lost
  // The action after that timeout.
  std::string advice =
      "start the missing agents, or give them more time (--rdzv-conf join_timeout=SECONDS)";
  std::shared_ptr<ExternalLock> lock;  // null: a majority of nodes decides
};

struct ElasticAgentOptions {
  int workers = 1;
  int shards = 1;  // logical shards of the job, unless its flags set them
  std::function<void(const std::string&)> log;  // a line for people
  // Prints lines of a worker to its stdout.
  std::function<void(int worker, const std::string& lines)> print = {};
  // Before the first view, the node does not wait for a worker that is not ready for so long after
  // the first one of this host (or twice as long as that one took, if that is more).
  std::chrono::milliseconds late_limit{60000};
  // A worker that has not left a view for so long after the order is stopped or stuck, and is
  // killed.
  std::chrono::milliseconds leave_limit{5000};
  std::optional<ElasticEndpoint> endpoint = {};  // none: the whole job is on this host
};

class ElasticAgent {
 public:
  using Clock = std::chrono::steady_clock;

  explicit ElasticAgent(ElasticAgentOptions options);

  // ---- workers ----
  // The environment and descriptors for the process of slot `worker`, which is started now.
  struct Ticket {
    std::string variable;        // the value of TANDEM_AGENT
    std::vector<int> inherited;  // descriptors
  };
  Ticket open_channel(int worker);
  void channel_taken(int worker);  // the process has been started
  // The process has ended: "was killed by SIGKILL". `fault`: for a reason of its own, not through a
  // lost peer. Until this call it counts as live, though its channel has ended, so that the view
  // without it reports the reason.
  void worker_ended(int worker, const std::string& how, bool fault);
  // Returns true if the worker reads model and data, or decides where the job begins: it has not
  // been ready since open_channel(), and waits for no message.
  bool prepares(int worker) const;
  // Time for which it has been deciding where the job begins, while all others wait; 0: it is not.
  Clock::duration decides_for(int worker) const;
  // Returns true if it has been in a computing view since open_channel().
  bool has_computed(int worker) const {
    return channels_[static_cast<std::size_t>(worker)].has_computed;
  }
  // Returns true if a step has been applied in a view with this worker, since open_channel().
  bool has_helped(int worker) const {
    return channels_[static_cast<std::size_t>(worker)].has_helped;
  }
  // It reported the end of the whole job.
  bool is_done(int worker) const {
    return channels_[static_cast<std::size_t>(worker)].state == State::kDone;
  }
  // Workers that must be killed, each returned once.
  std::vector<int> take_stuck() { return std::exchange(stuck_, {}); }

  // For the present or last view.
  int rank(int worker) const { return channels_[static_cast<std::size_t>(worker)].rank; }
  // Different from any other node's.
  std::string key() const;

  // ---- the job ----
  // This node leaves the job; the others continue. end() reports when it has left.
  void leave();
  // The job fails on all nodes. If it has not begun, it fails only here, unless it begins with all
  // of its workers.
  void fail(int code, const std::string& message);
  // No messages are left for the others.
  bool sent_all() const { return !links_ || links_->flushed(); }

  // ---- questions of users ----
  // The other nodes that compute in the newest view.
  std::vector<membership::Peer> others() const;
  // The address for the other nodes; empty: there are none.
  const std::string& address() const { return address_; }
  void send_to_agent(const membership::Peer& to, const membership::AppMessage& app_message);
  // A worker receives the job's state while the others train; it is in no view meanwhile.
  bool learns() const { return joining_.under_way(); }
  struct AppMessageFrom {
    membership::Peer from;
    membership::AppMessage app_message;  // kQuestion or kReply
  };
  std::vector<AppMessageFrom> take_messages() { return std::exchange(messages_, {}); }
  std::vector<rendezvous::PendingConnection> take_visitors() {
    return std::exchange(visitors_, {});
  }

  // ---- the loop ----
  void add_to(std::vector<pollfd>& waits) const;
  std::chrono::milliseconds poll_timeout() const;
  void serve();  // after a wait
  struct End {
    int code = 0;
    std::string message;
  };
  const std::optional<End>& end() const { return end_; }
  // There has been a view, so the job does not wait for all of its workers any more.
  bool begun() const { return begun_; }
  // For users: the number of the workers' view (the job's; on a single host the count of views), a
  // worker's activity, and its rank while it computes.
  std::uint64_t view_number() const { return links_ ? view_.counter : serial_; }
  std::string_view doing(int worker) const;
  int rank_now(int worker) const;
  // The last step known to be applied, by any node.
  std::uint64_t step() const { return std::max(step_, step_of_view_); }
  // Nodes and ranks of the newest view.
  int num_nodes() const { return static_cast<int>(members_.size()); }
  int num_ranks() const { return num_ranks_; }
  // Time from the last step before the loss of a worker or node to the first one after it, less the
  // usual duration of a step; summed over all losses that this agent has seen.
  double seconds_lost() const { return seconds_lost_; }
  // Time since a step was applied; empty before the first.
  std::optional<double> seconds_since_step() const;
  // Seat::measured() of the first worker, or empty.
  const std::string& measured() const { return measured_; }

 private:
  enum class State { kGone, kStarting, kReady, kRunning, kLeft, kDone };
  struct WorkerChannel {
    State state = State::kGone;
    PacketSocket line;                       // without a descriptor after its end
    rendezvous::FileDescriptor workers_end;  // until the process has been started
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

  // elastic_agent_learning.cc: one of the workers of a node without state learns the job's state.
  bool keeps_back();
  void obey(const membership::Learn& order);
  void handle_learner(int worker, const Packet& packet);
  void watch_learner();
  void report_transfer_failed(const std::string& why);
  void report_workers();
  void serve_state(const std::string& endpoint);

  static membership::MembershipOptions agent_options(const ElasticAgentOptions& options);
  membership::Time now() const;
  std::size_t count(State state) const;
  bool any_line() const;
  void handle(int worker, const Packet& packet);
  void answer_requester(int worker);
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
  void ask_reconfiguration_point();
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
  void handle_others();
  void handle_lock();
  void handle_unauthenticated_peer(
      const AgentLinks::News::UnauthenticatedPeer& unauthenticated_peer);
  void handle_app_message(const membership::Peer& from, const membership::AppMessage& app_message);
  void share_address(const std::string& endpoint);
  void welcome(const membership::Peer& joining_node);
  void share_decision(const membership::Peer& to);
  void report_cannot_begin(int code, const std::string& message);
  bool may_decide() const;
  void identify(int worker, const Packet& packet);
  void watch_timeout();
  void stop_workers();
  void note_progress(std::uint64_t step);
  void note_help();
  void log_view(const membership::View& view, const std::string& changes);
  void keep(int worker, const Packet& progress);
  void send_address(const std::string& endpoint, int except);
  void send_to_worker(int worker, Packet packet);

  ElasticAgentOptions options_;
  rendezvous::FileDescriptor memory_;
  const membership::Rules rules_;
  std::unique_ptr<AgentLinks> links_;  // null: one host
  std::unique_ptr<membership::Membership> membership_;
  std::vector<WorkerChannel> channels_;
  Clock::time_point started_ = Clock::now();
  std::optional<Clock::time_point> first_ready_at_;
  std::uint64_t serial_ = 0;  // number of the workers' view, on this node
  membership::ViewNumber view_;
  std::vector<membership::Member> members_;
  bool paused_ = false;   // that view
  bool closing_ = false;  // the workers save a checkpoint, then the node ends
  std::optional<membership::AppMessage>
      bootstrap_address_;       // address for a view that may be installed here soon
  std::size_t most_ranks_ = 0;  // the job's logical shards; 0: unknown
  std::optional<Computes> computes_;
  std::uint64_t step_ = 0;            // last applied step of this node
  std::uint64_t step_of_view_ = 0;    // the step after which the newest view began
  std::uint64_t newest_applied_ = 0;  // last reported step, and its time
  Clock::time_point applied_at_ = Clock::now();
  StepTime step_time_;  // between two steps of one view
  bool lost_since_step_ = false;
  double seconds_lost_ = 0;
  int num_ranks_ = 0;
  WorkerCount num_workers_;
  std::string measured_;
  int keeping_worker_ = -1;  // the first worker of the view here
  bool first_of_view_ = false;
  bool as_agreed_ = false;  // the workers have left after a step
  bool stopping_ = false;
  Clock::time_point stop_since_;
  std::string why_;                    // the reason for the next view
  std::optional<std::string> failed_;  // the workers' failed view, and the worker that reported why
  DamagedLinks damaged_links_;
  std::uint64_t damaged_view_ = 0;  // the newest view that a damaged frame has ended
  std::string driven_out_;          // the damage that made this node leave
  int in_vain_ = 0;      // consecutive views that failed without a step and without a loss
  bool proven_ = false;  // a step has been applied in a view of this node, since it has the state
  std::uint64_t arrivals_ = 0;
  bool begun_ = false;  // there has been a view
  std::optional<std::string> decision_;
  int decider_ = -1;
  Clock::time_point decides_since_;
  std::vector<int> requesters_;
  std::map<membership::NodeId, membership::Peer> known_requesters_;  // until a decision
  std::map<membership::NodeId, membership::Peer> joining_nodes_;     // until there is a view
  membership::Joining joining_;
  int learner_ = -1;             // the worker that learns, or did last
  std::uint64_t transfers_ = 0;  // begun state transfers
  Clock::time_point learns_since_;
  TrainingProgress training_progress_;
  TrainingProgress arrived_;  // received since, with another state
  std::optional<int> done_code_;
  std::vector<int> stuck_;
  std::optional<End> end_;
  std::optional<End> ending_;  // set as soon as the workers have ended
  Clock::time_point ending_since_;
  std::string address_;
  std::vector<AppMessageFrom> messages_;
  std::vector<rendezvous::PendingConnection> visitors_;
  std::optional<Clock::time_point> idle_since_;
  Clock::time_point logged_idle_;
};

}  // namespace tandem::elastic
