// An agent's part in the membership, as a machine without sockets, clock and threads: messages,
// timers and what the workers do go in, messages and orders come out. The same inputs always give
// the same outputs, so the simulator runs what production runs. docs/elastic_protocol.md has
// the protocol; an agent is always in one of these states:
//
//   looking    in no view: asks the agents it knows until it is in one. joining.h describes what a
//              node does meanwhile whose job is ahead of it
//   running    in a view, its workers compute steps; or paused, with fewer than MIN nodes
//   proposing  has stopped its workers and asks the others what they hold
//   offering   has made a view of the answers and waits until its members have accepted
//   answered   has stopped its workers for another node's proposal and waits for what comes of it
//   waiting    too few have answered to continue: keeps its state and tries again
//   ended      the last step is applied, or the job has failed, or the node has left
//
// The first live member of the view proposes: at once if a loss is certain, after Limits::silent if
// a node is silent, and at the end of a step if a node joins or leaves. If the first member is
// lost, the next one proposes.
// Promises: a node that has answered number n answers nothing lower, and its workers stay stopped
// until a view with a number of at least n is installed. Fences: RunView orders carry the view; the
// workers' frames carry its number.
//
// Thread-safety: one caller at a time. Times are counted from any fixed moment and never go back.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "tandem/elastic/protocol/messages.h"
#include "tandem/elastic/protocol/rules.h"

namespace tandem::membership {

using Time = std::chrono::milliseconds;
inline constexpr Time kNever = Time::max();

struct Limits {
  Time beat{500};           // heartbeat interval between the leader and the members
  Time silent{2000};        // without a message for so long: lost, though not certainly
  Time quiet{2000};         // the same while no worker reports a missing peer
  Time answer{2000};        // a proposer waits for those that are not known to be silent
  Time offer{1000};         // and for their acceptance
  Time install{3000};       // a node that has answered waits for the view
  Time stagger{200};        // between one possible proposer and the next
  Time retry{1000};         // too few: tries again
  Time ask{500};            // a node that looks for the job asks again
  Time found{2000};         // the bootstrap node waits for the addresses it knows
  Time unreachable{10000};  // two that did not reach each other are kept apart
  std::size_t broadcast_fan_out =
      16;  // the first members, which notify all others that the job has ended
};

struct MembershipOptions {
  Peer self;
  Credentials who;
  JobIdentity job;
  Bounds bounds;
  std::uint64_t last_step = 0;        // last step of the job
  std::vector<std::string> contacts;  // addresses of agents, the endpoint first; not this one's
  bool bootstrap_node = false;        // this is the endpoint: makes the first view
  bool external_lock = false;         // the node that holds it continues; nodes are not counted
  Limits limits;
};

// ---- orders ----

// `to.id` 0: the node at the address. A message to all members exists once: a view of thousands of
// nodes is large.
struct Send {
  Peer to;
  std::shared_ptr<const Message> message;
};
// No step of the running view is applied after Agent::stopped().
struct StopWorkers {};
// Those one step behind get View::step from View::source; then, unless the view is paused, compute.
struct RunView {
  View view;
};
// The next step's header announces a stop of all after it.
struct AskReconfigurationPoint {};
// The members of `view` are ahead of this node, which may learn from them: the job is at `step`.
// Sent repeatedly.
struct Learn {
  View view;
  std::uint64_t step = 0;
};
// Once per step, for every receiver.
struct SaveCheckpoint {
  std::uint64_t step = 0;
};
// `name` has asked to join and was refused for the reason sent to it. Once for each reason.
struct Refused {
  std::string name;
  std::string reason;
};
struct TakeLock {};
struct DropLock {};
// End::code of a node that has left on request; the others continue.
inline constexpr std::int32_t kHasLeft = 143;
// Exit with the code, after a delay in which the others can still learn that the job has ended.
struct End {
  std::int32_t code = 0;
  std::string message;
};
using Order = std::variant<Send, StopWorkers, RunView, AskReconfigurationPoint, Learn,
                           SaveCheckpoint, Refused, TakeLock, DropLock, End>;

class Membership {
 public:
  enum class Phase { kLooking, kRunning, kProposing, kOffering, kAnswered, kWaiting, kEnded };

  // `rules` must outlive the agent. `node_state`: what the node starts with.
  Membership(MembershipOptions options, const Rules& rules, const NodeState& node_state, Time now);

  // ---- inputs ----
  void wake(Time now);  // at next_wake() or at any time
  void receive(Time now, const Peer& from, const Message& message);
  // The process behind `node` is gone forever: its child has exited, its kernel reports so, or
  // another process answers at its address.
  void peer_dead(Time now, NodeId node);
  // A contact's address does not answer, or its name is unknown.
  void nobody_at(Time now, const std::string& address);
  // The kernels and inputs of its workers; before this call the node asks without being accepted.
  void identify(const JobIdentity& job, Credentials who);
  void workers_changed(Time now, std::uint32_t workers);
  // A worker failed for a reason of its own (a signal, an exit code), not through a lost peer.
  void worker_fault(Time now, std::uint64_t step, std::string how);
  // The workers' answer to StopWorkers: what the node holds now.
  void stopped(Time now, std::uint64_t step);
  // A step of view `number` is applied on this node. `reconfiguration_point`: its header announced
  // a stop of all.
  void applied(Time now, ViewNumber number, std::uint64_t step, bool reconfiguration_point);
  // The step cannot be completed; the workers wait for StopWorkers.
  void step_failed(Time now, ViewNumber number, const std::vector<NodeId>& dead,
                   const std::vector<NodeId>& silent);
  void leave(Time now);  // SIGTERM
  void lock(Time now, bool held);
  // Rule R5: invalid arguments, invalid data and bugs end the job everywhere.
  void fail(Time now, std::int32_t code, std::string message);

  // ---- outputs ----
  std::vector<Order> take_orders();
  Time next_wake() const;

  Phase phase() const { return phase_; }
  const View& view() const { return views_.newest; }  // the newest known to be installed
  bool in_view() const { return views_.newest.has(self()); }
  bool leads() const { return in_view() && first_alive({}) == self(); }
  const NodeState& node_state() const { return node_state_; }
  const MembershipOptions& options() const { return options_; }
  // The nodes or events that it waits for, for people; never empty before the end.
  std::string waiting_for() const;
  // Hosts that have asked here and were refused, with the reasons; bounded.
  const std::map<std::string, std::string>& refused() const { return others_.refused; }

 private:
  struct Requester {
    Peer peer;
    Ask ask;
    Time answered{};
  };
  struct Proposal {
    ViewNumber number;
    std::map<NodeId, Peer> asked;
    Time limit{};  // for the answers
    Answers answers;
    View view;  // once it is offered
    std::vector<View> pending;
    std::set<NodeId> accepted_by;
  };
  struct DeferredReply {  // an answer that waits for the workers to stop
    Peer to;
    Propose propose;
  };

  NodeId self() const { return options_.self.id; }
  void order(Order o);
  void send(const Peer& to, Message message) { send_all({to}, std::move(message)); }
  void send_all(const std::vector<Peer>& to, Message message);
  void enter(Phase phase, Time deadline);
  Time stagger_delay() const;  // times Limits::stagger: how long to wait for other proposers

  // membership.cc: life in a view
  void beat(Time now);
  void seek_others();
  void watch(Time now);
  void on_deadline(Time now);
  void forget_old(Time now);
  void on(Time now, const Peer& from, const Ask& m);
  void on(Time now, const Peer& from, const AskReply& m);
  void on(Time now, const Peer& from, const Propose& m);
  void on(Time now, const Peer& from, const Answer& m);
  void on(Time now, const Peer& from, const Offer& m);
  void on(Time now, const Peer& from, const Accept& m);
  void on(Time now, const Peer& from, const Install& m);
  void on(Time now, const Peer& from, const Beat& m);
  void on(Time now, const Peer& from, const Suspect& m);
  void on(Time now, const Peer& from, const Ended& m);
  void on(Time, const Peer&, const AppMessage&) {}  // the driver's business
  std::vector<Peer> notified_of_end() const;
  NodeId first_alive(const std::vector<NodeId>& besides) const;
  bool unreachable(NodeId node) const;
  void learn_dead(const std::vector<NodeId>& dead);
  void forget_dead_view();
  void stop_workers();
  bool take_lock(Time now);
  void want_change(Time now, const std::vector<NodeId>& silent);
  void want_reconfiguration_point(Time now);
  void at_reconfiguration_point(Time now);
  void end_job(std::int32_t code, std::string message);
  void end(std::int32_t code, std::string message);  // this node only

  // membership_proposing.cc: from one view to the next
  void propose(Time now);
  void add_own_answer(Time now);
  Answer make_answer(const Propose& propose) const;
  bool may_propose_here(const Peer& from, const Propose& m) const;
  void check_answers(Time now);
  void look_for_silence(Time now);
  void decide(Time now);
  std::vector<View> pending() const;
  bool enough(const std::set<NodeId>& present, const std::vector<View>& pending) const;
  std::vector<Fault> known_faults() const;
  std::vector<Peer> others_who_answered() const;
  void offer(Time now, View view, std::vector<View> pending);
  void check_accepted(Time now);
  void nobody_computes(Time now);
  void wait(Time now, std::string why);
  void send_deferred_reply(Time now);
  void know_installed(const View& view);
  bool install_accepted(Time now, ViewNumber number);
  void install(Time now, const View& view);

  // membership_joining.cc: without a view
  void ask(Time now);
  void look(Time now);
  void left_behind(Time now, const View& view);
  void found(Time now);
  std::string whose_workers(Time now) const;
  AskReply reply_to(Time now, const Peer& from, const Ask& m) const;
  bool seen_recently(const Requester& requester, Time now) const;
  bool fresh(const Requester& requester, Time now) const;
  bool ready(const Requester& requester, Time now) const;
  bool fits(const Ask& ask) const;
  bool may_refuse() const {
    return in_view() || (options_.bootstrap_node && !views_.newest.exists());
  }
  void note_refusal(const Ask& ask, const AskReply& reply);
  void consider_joiners(Time now);

  struct Views {
    View newest;                 // known to be installed
    std::vector<View> accepted;  // after it; each has been accepted, the last one newest
    std::vector<View> doubtful;  // others' accepted views that held up the last proposal
    ViewNumber promised;
    std::uint64_t seen_counter = 0;
  };
  struct OwnFaults {
    std::vector<Fault> list;
    std::uint64_t count = 0;
  };
  // Activity of this node's workers.
  struct Workers {
    bool running = false;   // have a view
    bool stopping = false;  // and get a stop request
    bool missed = false;    // have reported that the step of their view cannot be completed
    bool reconfiguration_point_asked = false;
    bool reconfiguration_point = false;  // have stopped after a step, as its header required
  };
  struct OtherNodes {
    std::set<NodeId> dead;
    std::map<NodeId, Time> unreachable;  // until when
    std::map<NodeId, Time> last_seen;
    std::map<NodeId, Requester> requesters;
    std::map<std::string, std::string> refused;
    std::set<std::string> unsettled;  // contacts that have not answered yet
  };
  struct Timers {
    Time started{};
    Time now{};
    Time deadline = kNever;
    Time next_beat = kNever;
    Time next_ask{};
    std::size_t ask_round = 0;
  };

  MembershipOptions options_;
  const Rules& rules_;
  Phase phase_ = Phase::kLooking;
  Views views_;
  NodeState node_state_;
  OwnFaults faults_;
  Workers workers_;
  bool lock_held_ = false;
  std::optional<Proposal> proposal_;
  std::optional<DeferredReply> deferred_reply_;
  OtherNodes others_;
  std::string why_waiting_;
  std::optional<Ended> end_;  // end of the job: the others are notified
  Timers timers_;
  std::vector<Order> orders_;
};

}  // namespace tandem::membership
