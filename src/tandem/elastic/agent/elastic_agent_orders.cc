// Orders of the membership, and messages of the other nodes of the job.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>
#include <variant>

#include "tandem/core/disagreement.h"
#include "tandem/core/error.h"
#include "tandem/elastic/agent/elastic_agent.h"
#include "tandem/elastic/protocol/wire.h"

namespace tandem::elastic {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A running job connects to the agent at its endpoint within this time. So the first node at the
// endpoint waits for it before it decides that no job exists.
constexpr milliseconds kExistingJob{1500};
// A wait is logged after so long, and again.
constexpr seconds kFirstNotice{5};
constexpr seconds kNoticeEvery{60};
constexpr std::size_t kMostMessages = 65536;  // questions and replies not yet taken
// Views that may fail one after another without a step: first a node that has never contributed to
// a step gives up, so that the others continue; then the job fails.
constexpr int kMostInVain = 5;
constexpr int kMostInVainOfJob = 10;

bool has(const std::vector<membership::Member>& members, membership::NodeId id) {
  return std::any_of(members.begin(), members.end(),
                     [&](const membership::Member& member) { return member.peer.id == id; });
}

}  // namespace

// ---- orders ----

void ElasticAgent::stop_workers() {
  stopping_ = true;
  stop_since_ = Clock::now();
  for (int worker = 0; worker < options_.workers; ++worker) {
    if (channels_[static_cast<std::size_t>(worker)].state == State::kRunning)
      send_to_worker(worker, {.kind = PacketKind::kStop, .view = serial_});
  }
  check_left();
}

void ElasticAgent::ask_reconfiguration_point() {
  for (int worker = 0; worker < options_.workers; ++worker) {
    if (channels_[static_cast<std::size_t>(worker)].state == State::kRunning)
      send_to_worker(worker, {.kind = PacketKind::kChange, .view = serial_});
  }
}

void ElasticAgent::obey() {
  while (true) {
    const std::vector<membership::Order> orders = membership_->take_orders();
    if (orders.empty()) return;
    const auto includes = [&](auto wanted) {
      return std::any_of(orders.begin(), orders.end(), wanted);
    };
    const bool done = includes([](const membership::Order& order) {
      const auto* end = std::get_if<membership::End>(&order);
      return end != nullptr && end->code == 0;
    });
    const bool saves = includes([](const membership::Order& order) {
      return std::holds_alternative<membership::SaveCheckpoint>(order);
    });
    for (const membership::Order& order : orders) {
      std::visit(
          [&](const auto& o) {
            using O = std::decay_t<decltype(o)>;
            if constexpr (std::is_same_v<O, membership::Send>) {
              if (links_) links_->send(o.to, *o.message);
            } else if constexpr (std::is_same_v<O, membership::StopWorkers>) {
              if (!done) stop_workers();  // otherwise they are about to end
            } else if constexpr (std::is_same_v<O, membership::RunView> ||
                                 std::is_same_v<O, membership::Learn>) {
              obey(o);
            } else if constexpr (std::is_same_v<O, membership::AskReconfigurationPoint>) {
              ask_reconfiguration_point();
            } else if constexpr (std::is_same_v<O, membership::End>) {
              obey(o, saves);
            } else if constexpr (std::is_same_v<O, membership::Refused>) {
              options_.log(fmt::format("{} was refused: {}", o.name, o.reason));
            } else if constexpr (std::is_same_v<O, membership::TakeLock> ||
                                 std::is_same_v<O, membership::DropLock>) {
              options_.endpoint->lock->want(std::is_same_v<O, membership::TakeLock>);
            }
          },
          order);
    }
  }
}

void ElasticAgent::obey(const membership::End& order, bool saves) {
  ending_ = {order.code, order.message};
  ending_since_ = Clock::now();
  if (order.code != 0 && !saves) end_ = std::exchange(ending_, std::nullopt);
  if (!saves || order.code == 0) return;
  // The last node of a job that all nodes have to leave.
  const std::vector<int> workers = choose(most_ranks_);
  const int size = static_cast<int>(workers.size());
  closing_ = true;
  ++serial_;
  run(workers, {.before = 0, .own = size, .all = size},
      {.why = "the job is to stop", .paused = true});
}

// Workers that can compute; those that have been ready longest first.
std::vector<int> ElasticAgent::choose(std::size_t most) const {
  std::vector<int> chosen;
  for (int worker = 0; worker < options_.workers; ++worker) {
    const State state = channels_[static_cast<std::size_t>(worker)].state;
    if (state == State::kReady || state == State::kLeft) chosen.push_back(worker);
  }
  std::sort(chosen.begin(), chosen.end(), [&](int a, int b) {
    return channels_[static_cast<std::size_t>(a)].since <
           channels_[static_cast<std::size_t>(b)].since;
  });
  if (chosen.size() > most) chosen.resize(most);
  return chosen;
}

// A job has at most as many ranks as logical shards; more workers stand by.
ElasticAgent::Ranks ElasticAgent::ranks_of(const membership::View& view) const {
  Ranks ranks;
  for (const membership::Member& member : view.members) {
    const int room = static_cast<int>(most_ranks_) - ranks.all;
    const int count = std::min(static_cast<int>(member.workers), room);
    if (member.peer.id == membership_->options().self.id) {
      ranks.before = ranks.all;
      ranks.own = count;
    }
    ranks.all += count;
  }
  return ranks;
}

// A text with the nodes that this view has and the last one did not have, and vice versa.
std::string ElasticAgent::changes_to(const membership::View& view) const {
  std::vector<std::string> changes;
  if (!why_.empty()) changes.push_back(why_);
  for (const membership::Member& member : members_) {
    if (!has(view.members, member.peer.id))
      changes.push_back(fmt::format("without the node at {}", member.peer.address));
  }
  for (const membership::Member& member : view.members) {
    if (!members_.empty() && !has(members_, member.peer.id))
      changes.push_back(fmt::format("with the node at {}", member.peer.address));
  }
  return fmt::format("{}", fmt::join(changes, "; "));
}

// The same workers have again failed to complete a step.
bool ElasticAgent::is_in_vain(const membership::View& view) {
  const bool same = std::equal(
      view.members.begin(), view.members.end(), members_.begin(), members_.end(),
      [](const auto& a, const auto& b) { return a.peer == b.peer && a.workers == b.workers; });
  if (!same) in_vain_ = 0;
  if (!same || !failed_) return false;
  ++in_vain_;
  return in_vain_ >= (proven_ ? kMostInVainOfJob : kMostInVain);
}

// Neither a lost machine nor a visible bug: possibly the connection between the workers.
void ElasticAgent::give_up_in_vain() {
  const std::string message = fmt::format(
      "{} views one after another have failed before a step was applied, though nobody was lost: "
      "{}; so {}. Look for what cuts or damages connections between these workers (network cards, "
      "switches, proxies, firewalls), then start {} again",
      in_vain_, failed_.value_or(""), proven_ ? "the job ends" : "this node gives up",
      proven_ ? "the same command" : "it");
  const int code = CommError("").exit_code();
  if (proven_) return membership_->fail(now(), code, message);
  end_ = {code, message};
}

// The ranks of a view are those of its members, one after another.
const membership::Member* ElasticAgent::member_of_rank(int rank) const {
  for (const membership::Member& member : members_) {
    if (rank < static_cast<int>(member.workers)) return &member;
    rank -= static_cast<int>(member.workers);
  }
  return nullptr;
}

// A damaged frame of the workers' view. Each worker reports it; it counts once. The step is
// computed again in the next view, which has new connections.
void ElasticAgent::note_damage(int from, int to, const std::string& message) {
  const membership::Member* sender = member_of_rank(from);
  const membership::Member* receiver = member_of_rank(to);
  if (sender == nullptr || receiver == nullptr || sender->peer.id == receiver->peer.id) return;
  if (std::exchange(damaged_view_, serial_) == serial_) return;
  options_.log(fmt::format("view {}: {}", view_number(), message));
  const std::size_t frames =
      damaged_links_.add(sender->peer.id, receiver->peer.id, DamagedLinks::Clock::now());
  why_ = fmt::format("the link from the node at {} to the node at {} has damaged {} frame{}",
                     sender->peer.address, receiver->peer.address, frames, frames == 1 ? "" : "s");
  const auto leaves = damaged_links_.leaves(members_, DamagedLinks::Clock::now());
  if (!leaves) return;
  driven_out_ = fmt::format("{} within {} min: {}", why_, DamagedLinks::kWithin.count(), message);
  if (*leaves != membership_->options().self.id) return;
  end_ = {CommError("").exit_code(),
          driven_out_ + ". This node leaves the job; repair the link, then start the node again"};
}

void ElasticAgent::obey(const membership::RunView& order) {
  const membership::View& view = order.view;
  if (is_in_vain(view)) return give_up_in_vain();
  failed_.reset();
  ++serial_;
  step_of_view_ = view.step;
  proven_ = proven_ && step_ + 1 >= view.step;
  view_ = view.number;
  paused_ = view.paused;
  begun_ = true;
  first_of_view_ = true;
  as_agreed_ = false;
  const std::string changes = changes_to(view);
  lost_since_step_ =
      lost_since_step_ || std::any_of(members_.begin(), members_.end(), [&](const auto& member) {
        return !has(view.members, member.peer.id);
      });
  members_ = view.members;
  num_workers_.note_view(members_, membership_->options().self.id);
  const Ranks ranks = ranks_of(view);
  num_ranks_ = ranks.all;
  const std::vector<int> chosen = choose(static_cast<std::size_t>(ranks.own));
  // A worker of this node has died since: another view follows, whose line names what has changed.
  why_ = changes;
  if (static_cast<int>(chosen.size()) < ranks.own) return;
  log_view(view, changes);
  why_.clear();
  run(chosen, ranks, {.why = changes, .paused = view.paused, .one_node = view.members.size() == 1});
  if (bootstrap_address_ && bootstrap_address_->number == view_)
    send_address(bootstrap_address_->text, -1);
}

void ElasticAgent::log_view(const membership::View& view, const std::string& changes) {
  if (view.paused) {
    options_.log(fmt::format(
        "view {}: {} of at least {} nodes are left after step {}: {}; the job waits for more, up "
        "to {} s",
        view_number(), view.members.size(), membership_->options().bounds.min_nodes, step(),
        changes, std::chrono::duration_cast<seconds>(options_.endpoint->timeout).count()));
  } else if (links_ || serial_ > 1 || num_ranks_ < num_workers_.total()) {
    options_.log(fmt::format("view {}: {} of {} workers go on after step {}{}{}", view_number(),
                             num_ranks_, num_workers_.total(), step(), changes.empty() ? "" : ": ",
                             changes));
  }
}

void ElasticAgent::run(const std::vector<int>& workers, const Ranks& ranks,
                       const Briefing& briefing) {
  for (std::size_t i = 0; i < workers.size(); ++i) {
    WorkerChannel& channel = channels_[static_cast<std::size_t>(workers[i])];
    channel.state = State::kRunning;
    channel.has_computed = channel.has_computed || !briefing.paused;
    channel.rank = ranks.before + static_cast<int>(i);
    Briefing own = briefing;
    own.keeps = i == 0;
    if (own.keeps) {
      keeping_worker_ = workers[i];
      own.training_progress = training_progress_;
      own.arrived = arrived_;
    }
    send_to_worker(workers[i], {PacketKind::kRun, serial_, static_cast<std::uint64_t>(channel.rank),
                                static_cast<std::uint64_t>(ranks.all), to_text(own)});
  }
}

// ---- the job ----

void ElasticAgent::leave() {
  membership_->leave(now());
  obey();
}

void ElasticAgent::fail(int code, const std::string& message) {
  if (!begun_ && links_ && options_.endpoint->bounds.first_workers > 0)
    report_cannot_begin(code, message);
  membership_->fail(now(), code, message);
  obey();
}

// With all of its workers, or not at all: the others wait for this node's workers, and are in no
// view yet.
void ElasticAgent::report_cannot_begin(int code, const std::string& message) {
  for (const std::string& address : options_.endpoint->contacts)
    links_->send({0, address}, membership::Ended{code, message});
  for (const auto& [id, peer] : joining_nodes_)
    links_->send(peer, membership::Ended{code, message});
}

// ---- the other nodes ----

void ElasticAgent::handle_others() {
  if (!links_) return;
  AgentLinks::News news = links_->serve();
  for (const membership::NodeId node : news.dead) {
    membership_->peer_dead(now(), node);
    if (options_.endpoint->lock) options_.endpoint->lock->note_dead(node);
  }
  for (const std::string& address : news.nobody_at) membership_->nobody_at(now(), address);
  for (const AgentLinks::News::UnauthenticatedPeer& unauthenticated_peer :
       news.unauthenticated_peers)
    handle_unauthenticated_peer(unauthenticated_peer);
  for (rendezvous::PendingConnection& visitor : news.visitors)
    visitors_.push_back(std::move(visitor));
  for (const membership::Frame& frame : news.frames) {
    if (const auto* app_message = std::get_if<membership::AppMessage>(&frame.message)) {
      handle_app_message(frame.from, *app_message);
    } else {
      if (std::holds_alternative<membership::Ask>(frame.message)) welcome(frame.from);
      membership_->receive(now(), frame.from, frame.message);
    }
  }
  obey();
  // The deciding node may depend on the nodes that are there.
  if (decider_ >= 0 || decision_ || requesters_.empty() || !may_decide()) return;
  const int requester = requesters_.front();
  requesters_.erase(requesters_.begin());
  answer_requester(requester);
}

// The leader has it, so that no node begins the job a second time.
void ElasticAgent::handle_lock() {
  if (!options_.endpoint || !options_.endpoint->lock) return;
  ExternalLock& lock = *options_.endpoint->lock;
  if (membership_->leads()) lock.want(true);
  membership_->lock(now(), lock.held());
  obey();
}

// At an address where the job should be, before it was found, that is the end.
void ElasticAgent::handle_unauthenticated_peer(
    const AgentLinks::News::UnauthenticatedPeer& unauthenticated_peer) {
  const auto& contacts = membership_->options().contacts;
  const bool wanted =
      std::find(contacts.begin(), contacts.end(), unauthenticated_peer.address) != contacts.end();
  if (!begun_ && !end_ && wanted)
    end_ = {1, fmt::format("the agent at {}: {}; give all agents of the job the same",
                           unauthenticated_peer.address, unauthenticated_peer.why)};
}

void ElasticAgent::handle_app_message(const membership::Peer& from,
                                      const membership::AppMessage& app_message) {
  switch (app_message.kind) {
    case membership::AppMessageKind::kHandshake:
      return;
    case membership::AppMessageKind::kDecision:
      if (decision_ || decider_ >= 0) return;
      decision_ = app_message.text;
      for (const int requester : std::exchange(requesters_, {})) answer_requester(requester);
      return;
    case membership::AppMessageKind::kAddress:
      if (app_message.number == view_) return send_address(app_message.text, -1);
      if (!bootstrap_address_ || bootstrap_address_->number < app_message.number)
        bootstrap_address_ = app_message;
      return;
    case membership::AppMessageKind::kLearner:
      return serve_state(app_message.text);
    case membership::AppMessageKind::kQuestion:
    case membership::AppMessageKind::kReply:
      if (messages_.size() < kMostMessages) messages_.push_back({from, app_message});
  }
}

std::vector<membership::Peer> ElasticAgent::others() const {
  std::vector<membership::Peer> others;
  for (const membership::Member& member : members_) {
    if (member.peer.id != membership_->options().self.id) others.push_back(member.peer);
  }
  return others;
}

void ElasticAgent::send_to_agent(const membership::Peer& to,
                                 const membership::AppMessage& app_message) {
  if (links_) links_->send(to, app_message);
}

void ElasticAgent::share_address(const std::string& endpoint) {
  if (!links_ || closing_) return;
  for (const membership::Member& member : members_)
    links_->send(member.peer,
                 membership::AppMessage{membership::AppMessageKind::kAddress, view_, endpoint});
}

void ElasticAgent::welcome(const membership::Peer& joining_node) {
  if (!begun_) joining_nodes_[joining_node.id] = joining_node;
  share_decision(joining_node);
}

void ElasticAgent::share_decision(const membership::Peer& to) {
  if (decision_) {
    links_->send(to, membership::AppMessage{membership::AppMessageKind::kDecision, {}, *decision_});
  } else {
    known_requesters_[to.id] = to;
  }
}

// A worker of the bootstrap node decides. But that node may have returned to a running job.
bool ElasticAgent::may_decide() const {
  if (!links_) return true;
  if (!membership_->options().bootstrap_node || membership_->view().exists()) return false;
  return Clock::now() >= started_ + kExistingJob ||
         known_requesters_.size() + 1 >= membership_->options().bounds.max_nodes;
}

// All workers of a job compute with the same kernels on the same data.
void ElasticAgent::identify(int worker, const Packet& packet) {
  Computes computes = computes_from(packet.text);
  most_ranks_ = std::max<std::size_t>(1, packet.second);
  if (computes_ &&
      (computes_->kernels != computes.kernels || computes_->fingerprint != computes.fingerprint)) {
    const std::array<std::string, 2> inputs = {
        lines_of_list(computes_->kernels) + "\n" + computes_->inputs,
        lines_of_list(computes.kernels) + "\n" + computes.inputs};
    return fail(1,
                fmt::format("worker {} found other data, configuration or kernels than the "
                            "workers before it: leave the job's files alone while it runs:\n  {}",
                            worker, describe_disagreement(inputs, [&](int which) {
                              return which == 0 ? std::string("the workers before it")
                                                : fmt::format("worker {}", worker);
                            })));
  }
  if (computes_) return;
  membership::JobIdentity job{.kernels = computes.kernels,
                              .inputs = computes.inputs.substr(0, membership::kMostText)};
  std::copy_n(computes.fingerprint.begin(), std::min(computes.fingerprint.size(), job.files.size()),
              job.files.begin());
  const std::string name = options_.endpoint ? options_.endpoint->host_name : "this host";
  membership_->identify(
      job, {.name = name, .kernels = {computes.kernels}, .files = job.files, .inputs = job.inputs});
  computes_ = std::move(computes);
}

// Ready workers do not wait forever for a view.
void ElasticAgent::watch_timeout() {
  if (!links_ || end_ || ending_) return;
  const bool computes = membership_->phase() == membership::Membership::Phase::kRunning && !paused_;
  const bool prepares = (is_any_awaited() && requesters_.empty()) || learns();
  if (computes || prepares) return idle_since_.reset();
  const auto now = Clock::now();
  if (!idle_since_) {
    idle_since_ = now;
    logged_idle_ = now + kFirstNotice - kNoticeEvery;
  }
  const auto waited = std::chrono::duration_cast<seconds>(now - *idle_since_);
  const std::string what =
      decision_ ? membership_->waiting_for() : "the agent of the endpoint, where the job begins";
  if (now - *idle_since_ >= options_.endpoint->timeout) {
    std::string why = options_.endpoint->advice;
    for (const auto& [name, reason] : membership_->refused())
      why += fmt::format("\n{} was refused: {}", name, reason);
    if (!driven_out_.empty()) why += "\na node has left because " + driven_out_;
    const int code = driven_out_.empty() ? 1 : CommError("").exit_code();
    end_ = {code, fmt::format("waited {} s for {}; {}", waited.count(), what, why)};
  } else if (now - logged_idle_ >= kNoticeEvery) {
    logged_idle_ = now;
    options_.log(fmt::format("waiting for {}", what));
  }
}

}  // namespace tandem::elastic
