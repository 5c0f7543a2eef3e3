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

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/elastic/agent/agent_links.h"
#include "tandem/elastic/agent/agent_state.h"
#include "tandem/elastic/agent/current_view.h"
#include "tandem/elastic/agent/failed_views.h"
#include "tandem/elastic/agent/idle_watch.h"
#include "tandem/elastic/agent/job_progress.h"
#include "tandem/elastic/agent/start_decision.h"
#include "tandem/elastic/agent/state_learning.h"
#include "tandem/elastic/agent/worker_channels.h"
#include "tandem/elastic/lock/external_lock.h"
#include "tandem/elastic/protocol/membership.h"
#include "tandem/elastic/worker/packet.h"
#include "tandem/net/event_loop.h"

namespace tandem::elastic {

// Address of a node of a job on several hosts, and its information on the others.
struct ElasticEndpoint {
  net::FileDescriptor listener;
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
  using Ticket = WorkerTicket;
  Ticket open_channel(int worker);
  void channel_taken(int worker) { workers_.taken(worker); }  // the process has been started
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
  bool has_computed(int worker) const { return workers_.at(worker).has_computed; }
  // Returns true if a step has been applied in a view with this worker, since open_channel().
  bool has_helped(int worker) const { return workers_.at(worker).has_helped; }
  // It reported the end of the whole job.
  bool is_done(int worker) const { return workers_.at(worker).state == State::kDone; }
  // Workers that must be killed, each returned once.
  std::vector<int> take_stuck() { return workers_.take_stuck(); }

  // For the present or last view.
  int rank(int worker) const { return workers_.at(worker).rank; }
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
  std::vector<membership::Peer> others() const { return view_.others(); }
  // The address for the other nodes; empty: there are none.
  std::string address() const { return options_.endpoint ? options_.endpoint->address : ""; }
  void send_to_agent(const membership::Peer& to, const membership::AppMessage& app_message);
  // A worker receives the job's state while the others train; it is in no view meanwhile.
  bool learns() const { return learning_.under_way(); }
  struct AppMessageFrom {
    membership::Peer from;
    membership::AppMessage app_message;  // kQuestion or kReply
  };
  std::vector<AppMessageFrom> take_messages() { return std::exchange(inbox_.messages, {}); }
  std::vector<net::PendingConnection> take_visitors() { return std::exchange(inbox_.visitors, {}); }

  // ---- the loop ----
  void add_to(net::EventLoop& loop) const;
  void serve();  // after a wait
  using End = AgentState::End;
  const End* end() const { return state_.ended(); }  // null: the job continues
  // There has been a view, so the job does not wait for all of its workers any more.
  bool begun() const { return view_.begun(); }
  // For users: the number of the workers' view (the job's; on a single host the count of views), a
  // worker's activity, and its rank while it computes.
  std::uint64_t view_number() const { return links_ ? view_.number().counter : view_.serial(); }
  std::string_view doing(int worker) const;
  int rank_now(int worker) const;
  // The last step known to be applied, by any node.
  std::uint64_t step() const { return std::max(progress_.step(), view_.step()); }
  // Nodes and ranks of the newest view.
  int num_nodes() const { return static_cast<int>(view_.members().size()); }
  int num_ranks() const { return view_.num_ranks(); }
  // Time from the last step before the loss of a worker or node to the first one after it, less the
  // usual duration of a step; summed over all losses that this agent has seen.
  double seconds_lost() const { return progress_.seconds_lost(); }
  // Time since a step was applied; empty before the first.
  std::optional<double> seconds_since_step() const { return progress_.seconds_since_step(); }
  // AgentChannel::measured() of the first worker, or empty.
  const std::string& measured() const { return progress_.measured(); }

 private:
  using State = WorkerChannel::State;
  // Requests that JobControl takes from here.
  struct Inbox {
    std::vector<AppMessageFrom> messages;
    std::vector<net::PendingConnection> visitors;
  };

  membership::Time now() const { return workers_.now(); }
  membership::NodeId self() const { return membership_->options().self.id; }
  void log(const std::string& line) const { options_.log(line); }

  // elastic_agent.cc: workers that come and go
  void lose(int worker, const std::string& how);
  void vacate(int worker);
  void recount();
  void report_workers();
  void check_left();
  void check_done();
  void read_line(int worker);
  void kill_late();
  void look_for_late();
  void watch_learner();
  void watch_timeout();

  // elastic_agent_packets.cc: messages of the workers
  void handle(int worker, const Packet& packet);
  void handle_in_view(int worker, const Packet& packet);
  void handle_ready(int worker, const Packet& packet);
  void handle_applied(const Packet& packet);
  void handle_failed(int worker, const Packet& packet);
  void handle_learner(int worker, const Packet& packet);
  void answer_requester(int worker);
  void answer_requesters();
  bool may_decide() const;
  void identify(int worker, const Packet& packet);
  void keep(int worker, const Packet& packet);
  void note_damage(int from, int to, const std::string& message);

  // elastic_agent_orders.cc: what the membership orders
  void obey();
  void obey(const membership::RunView& order);
  void obey(const membership::Learn& order);
  void obey(const membership::End& order, bool saves);
  void stop_workers();
  void give_up_after_failed_views();
  void run(const std::vector<int>& workers, const CurrentView::Ranks& ranks,
           const Briefing& briefing);
  void log_view(const membership::View& view, const std::string& changes) const;

  // elastic_agent_peers.cc: the other nodes
  void handle_others();
  void handle_lock();
  void handle_unauthenticated_peer(
      const AgentLinks::News::UnauthenticatedPeer& unauthenticated_peer);
  void handle_app_message(const membership::Peer& from, const membership::AppMessage& app_message);
  void share_address(const std::string& endpoint);
  void welcome(const membership::Peer& joining_node);
  void share_decision(const membership::Peer& to);
  void report_cannot_begin(int code, const std::string& message);

  ElasticAgentOptions options_;
  const membership::Rules rules_;
  std::unique_ptr<membership::Membership> membership_;
  std::unique_ptr<AgentLinks> links_;  // null: one host
  WorkerChannels workers_;
  CurrentView view_;
  AgentState state_;
  StartDecision decision_;
  JobProgress progress_;
  FailedViews failures_;
  StateLearning learning_;
  IdleWatch idle_;
  Inbox inbox_;
  std::optional<Computes> computes_;                              // that of the first ready worker
  std::map<membership::NodeId, membership::Peer> joining_nodes_;  // until there is a view
};

}  // namespace tandem::elastic
