// An agent in a view: liveness of the nodes, reports of the workers, and when a new view is needed.
#include "tandem/elastic/protocol/membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tandem/core/error.h"

namespace tandem::membership {

Membership::Membership(MembershipOptions options, const Rules& rules, const NodeState& node_state,
                       Time now)
    : options_(std::move(options)),
      rules_(rules),
      node_state_(node_state),
      timers_{.started = now, .now = now} {
  if (options_.self.id == 0) raise<InvalidArgument>("Agent: a node needs an id other than 0");
  if (options_.bounds.min_nodes == 0 || options_.bounds.max_nodes < options_.bounds.min_nodes) {
    raise<InvalidArgument>("Agent: {} to {} nodes; expected 1 <= MIN <= MAX",
                           options_.bounds.min_nodes, options_.bounds.max_nodes);
  }
  others_.unsettled = {options_.contacts.begin(), options_.contacts.end()};
  why_waiting_ = "an answer of an agent of the job";
  timers_.next_ask = now;
}

void Membership::order(Order o) { orders_.push_back(std::move(o)); }

std::vector<Order> Membership::take_orders() { return std::exchange(orders_, {}); }

Time Membership::next_wake() const {
  if (phase_ == Phase::kEnded) return kNever;
  return std::min({timers_.deadline, timers_.next_beat, timers_.next_ask});
}

void Membership::send_all(const std::vector<Peer>& to, Message message) {
  const auto shared = std::make_shared<const Message>(std::move(message));
  for (const Peer& peer : to) order(Send{peer, shared});
}

void Membership::enter(Phase phase, Time deadline) {
  phase_ = phase;
  timers_.deadline = deadline;
  timers_.next_ask = phase == Phase::kLooking ? timers_.now : kNever;
  if (phase != Phase::kRunning) timers_.next_beat = kNever;
}

// ---- live members ----

bool Membership::unreachable(NodeId node) const {
  const auto it = others_.unreachable.find(node);
  return it != others_.unreachable.end() && it->second > timers_.now;
}

NodeId Membership::first_alive(const std::vector<NodeId>& besides) const {
  for (const Member& member : views_.newest.members) {
    const NodeId id = member.peer.id;
    if (id == self()) return id;
    if (others_.dead.contains(id) || unreachable(id)) continue;
    if (std::find(besides.begin(), besides.end(), id) == besides.end()) return id;
  }
  return 0;
}

Time Membership::stagger_delay() const {
  int before = 0;
  for (const Member& member : views_.newest.members) {
    if (member.peer.id == self()) break;
    if (!others_.dead.contains(member.peer.id)) ++before;
  }
  return options_.limits.stagger * std::min(before, 20);
}

void Membership::learn_dead(const std::vector<NodeId>& dead) {
  for (const NodeId node : dead) {
    if (node == self()) continue;
    others_.dead.insert(node);
    others_.requesters.erase(node);
  }
  forget_dead_view();
}

// A view whose members are all dead is over. A node outside it looks for the job, or makes its next
// view, as if that view had not existed.
void Membership::forget_dead_view() {
  if (phase_ != Phase::kLooking || !views_.newest.exists() || in_view()) return;
  const bool over = std::all_of(views_.newest.members.begin(), views_.newest.members.end(),
                                [&](const Member& m) { return others_.dead.contains(m.peer.id); });
  if (!over) return;
  views_.seen_counter = std::max(views_.seen_counter, views_.newest.number.counter);
  views_.newest = {};
}

void Membership::peer_dead(Time now, NodeId node) {
  timers_.now = now;
  if (phase_ == Phase::kEnded || node == self() || others_.dead.contains(node)) return;
  const bool first = first_alive({}) == node;
  learn_dead({node});
  if (proposal_) {
    if (phase_ == Phase::kProposing)
      check_answers(now);
    else if (proposal_->view.has(node))
      propose(now);
    return;
  }
  if (phase_ == Phase::kWaiting) return propose(now);
  if (phase_ == Phase::kAnswered && deferred_reply_ == std::nullopt &&
      views_.promised.proposer == node) {
    timers_.deadline = std::min(timers_.deadline, now + stagger_delay());
    return;
  }
  if (phase_ != Phase::kRunning || !views_.newest.has(node)) return;
  if (first) others_.last_seen[first_alive({})] = now;
  want_change(now, {});
}

// A change of the view is needed now: the first live member proposes it.
void Membership::want_change(Time now, const std::vector<NodeId>& silent) {
  const NodeId first = first_alive(silent);
  if (first == self()) return propose(now);
  const Member* member = views_.newest.find(first);
  send(member->peer,
       Suspect{views_.newest.number, {others_.dead.begin(), others_.dead.end()}, silent});
  timers_.deadline = std::min(timers_.deadline, now + options_.limits.silent / 2 + stagger_delay());
}

void Membership::beat(Time now) {
  timers_.next_beat = now + options_.limits.beat;
  const NodeId first = first_alive({});
  std::vector<Peer> to;
  for (const Member& member : views_.newest.members) {
    const NodeId id = member.peer.id;
    if (id == self() || others_.dead.contains(id)) continue;
    if (first == self() || id == first) to.push_back(member.peer);
  }
  send_all(to, Beat{views_.newest.number, node_state_.step});
  if (first == self()) seek_others();
}

// Agents outside this view may be in another one, after a partition; the one with the lower number
// joins the others.
void Membership::seek_others() {
  const std::vector<std::string>& contacts = options_.contacts;
  if (contacts.empty()) return;
  const std::string& address = contacts[timers_.ask_round++ % contacts.size()];
  const bool member = std::any_of(views_.newest.members.begin(), views_.newest.members.end(),
                                  [&](const Member& m) { return m.peer.address == address; });
  if (!member || phase_ == Phase::kWaiting) {
    send({0, address}, Beat{views_.newest.number, node_state_.step});
  }
}

// The first member watches all, and all watch the first. Members later in the view act later.
void Membership::watch(Time now) {
  const NodeId first = first_alive({});
  const auto silent = [&](NodeId id, Time timeout) {
    const auto it = others_.last_seen.find(id);
    return it == others_.last_seen.end() || it->second + timeout <= now;
  };
  const Time limit = workers_.missed ? options_.limits.silent : options_.limits.quiet;
  if (first != self()) {
    if (silent(first, limit + std::max(Time{0}, stagger_delay() - options_.limits.stagger)))
      propose(now);
    return;
  }
  for (const Member& member : views_.newest.members) {
    const NodeId id = member.peer.id;
    if (id != self() && (others_.dead.contains(id) || silent(id, limit))) {
      return propose(now);
    }
  }
}

void Membership::forget_old(Time now) {
  std::erase_if(others_.unreachable, [&](const auto& entry) { return entry.second <= now; });
  // A node that does not fit (yet) is notified too when the job ends.
  std::erase_if(others_.requesters,
                [&](const auto& entry) { return !seen_recently(entry.second, now); });
}

void Membership::wake(Time now) {
  timers_.now = now;
  if (phase_ == Phase::kEnded) return;
  if (now >= timers_.next_beat) {
    forget_old(now);
    beat(now);
    watch(now);
  }
  if (phase_ == Phase::kRunning) consider_joiners(now);
  if (node_state_.step >= options_.last_step) return end_job(0, "");
  if (now >= timers_.next_ask) ask(now);
  if (now >= timers_.deadline) on_deadline(now);
}

void Membership::on_deadline(Time now) {
  timers_.deadline = kNever;
  switch (phase_) {
    case Phase::kProposing:
      if (now >= proposal_->limit) {
        if (!workers_.stopping) return decide(now);
        proposal_->limit = now + options_.limits.answer;
      }
      look_for_silence(now);
      return check_answers(now);
    case Phase::kOffering:
      for (const Member& member : proposal_->view.members) {
        const NodeId id = member.peer.id;
        if (!proposal_->accepted_by.contains(id)) {
          others_.unreachable[id] = now + options_.limits.unreachable;
        }
      }
      return propose(now);
    case Phase::kAnswered:
      if (workers_.stopping) {
        timers_.deadline = now + options_.limits.install;
        return;
      }
      // A node outside the view may also have to finish the change that would have made it a
      // member.
      return in_view() || (views_.newest.exists() && !views_.accepted.empty()) ? propose(now)
                                                                               : look(now);
    case Phase::kWaiting:
      // The job continues without it: with an external lock it would wait for it forever.
      if (views_.newest.exists() && !in_view() && views_.accepted.empty()) return look(now);
      return propose(now);
    case Phase::kRunning:
      return propose(now);
    case Phase::kLooking:
    case Phase::kEnded:
      return;
  }
}

// ---- reports of the workers ----

void Membership::stop_workers() {
  if (!workers_.running || workers_.stopping) return;
  if (workers_.reconfiguration_point) {  // they have stopped by themselves
    workers_.running = false;
    return;
  }
  workers_.stopping = true;
  order(StopWorkers{});
}

void Membership::stopped(Time now, std::uint64_t step) {
  timers_.now = now;
  workers_.running = workers_.stopping = false;
  if (phase_ == Phase::kEnded) return;
  node_state_.step = step;
  if (step >= options_.last_step) return end_job(0, "");
  if (phase_ == Phase::kProposing) return add_own_answer(now);
  send_deferred_reply(now);
}

void Membership::applied(Time now, ViewNumber number, std::uint64_t step,
                         bool reconfiguration_point) {
  timers_.now = now;
  if (phase_ == Phase::kEnded) return;
  node_state_.step = std::max(node_state_.step, step);
  if (step >= options_.last_step) return end_job(0, "");
  if (!reconfiguration_point || number != views_.newest.number || phase_ != Phase::kRunning) return;
  workers_.reconfiguration_point = true;
  at_reconfiguration_point(now);
}

void Membership::at_reconfiguration_point(Time now) {
  if (first_alive({}) == self()) return propose(now);
  timers_.deadline = now + options_.limits.silent / 2 + stagger_delay();
}

void Membership::step_failed(Time now, ViewNumber number, const std::vector<NodeId>& dead,
                             const std::vector<NodeId>& silent) {
  timers_.now = now;
  if (phase_ != Phase::kRunning || number != views_.newest.number) return;
  workers_.missed = true;
  learn_dead(dead);
  for (const NodeId node : silent) others_.unreachable[node] = now + options_.limits.unreachable;
  want_change(now, silent);
}

void Membership::want_reconfiguration_point(Time now) {
  if (views_.newest.paused) return want_change(now, {});
  if (std::exchange(workers_.reconfiguration_point_asked, true)) return;
  order(AskReconfigurationPoint{});
}

void Membership::identify(const JobIdentity& job, Credentials who) {
  options_.job = job;
  options_.who = std::move(who);
  if (phase_ == Phase::kLooking) timers_.next_ask = timers_.now;
}

void Membership::workers_changed(Time now, std::uint32_t workers) {
  timers_.now = now;
  const std::uint32_t before = std::exchange(node_state_.workers, workers);
  if (phase_ == Phase::kLooking && workers > before) timers_.next_ask = now;
  if (phase_ != Phase::kRunning || workers == before) return;
  if (workers < before) return want_change(now, {});
  want_reconfiguration_point(now);
}

void Membership::worker_fault(Time now, std::uint64_t step, std::string how) {
  timers_.now = now;
  faults_.list.push_back({self(), ++faults_.count, step, std::move(how)});
  if (faults_.list.size() > 4) faults_.list.erase(faults_.list.begin());
}

void Membership::leave(Time now) {
  timers_.now = now;
  if (phase_ == Phase::kEnded || std::exchange(node_state_.leaving, true)) return;
  if (phase_ == Phase::kLooking) return end(kHasLeft, "left before it was a member");
  if (phase_ == Phase::kRunning) want_reconfiguration_point(now);
}

void Membership::fail(Time now, std::int32_t code, std::string message) {
  timers_.now = now;
  if (phase_ == Phase::kEnded) return;
  in_view() ? end_job(code, std::move(message)) : end(code, std::move(message));
}

void Membership::lock(Time now, bool held) {
  timers_.now = now;
  if (std::exchange(lock_held_, held) == held || phase_ == Phase::kEnded) return;
  if (held && phase_ == Phase::kWaiting) propose(now);
  if (held || phase_ != Phase::kRunning) return;
  stop_workers();  // another agent may continue from now on
  propose(now);
}

// The first member notifies all members, and these notify the others. All-to-all messages at the
// end of a job of thousands of nodes would need millions of connections.
std::vector<Peer> Membership::notified_of_end() const {
  std::vector<Peer> first, all;
  for (const Member& member : views_.newest.members) {
    if (others_.dead.contains(member.peer.id)) continue;
    if (first.size() < options_.limits.broadcast_fan_out) first.push_back(member.peer);
    all.push_back(member.peer);
  }
  const bool cries =
      std::any_of(first.begin(), first.end(), [&](const Peer& peer) { return peer.id == self(); });
  std::vector<Peer>& reply = cries ? all : first;
  std::erase_if(reply, [&](const Peer& peer) { return peer.id == self(); });
  for (const auto& [id, requester] : others_.requesters) reply.push_back(requester.peer);
  return reply;
}

void Membership::end_job(std::int32_t code, std::string message) {
  end_ = {code, message};
  send_all(notified_of_end(), *end_);
  end(code, std::move(message));
}

void Membership::end(std::int32_t code, std::string message) {
  if (workers_.running) order(StopWorkers{});
  if (std::exchange(lock_held_, false)) order(DropLock{});
  proposal_.reset();
  enter(Phase::kEnded, kNever);
  order(End{code, std::move(message)});
}

// ---- messages of other nodes ----

void Membership::receive(Time now, const Peer& from, const Message& message) {
  timers_.now = now;
  if (from.id == self() || others_.dead.contains(from.id)) return;
  others_.last_seen[from.id] = now;
  if (phase_ == Phase::kEnded) {
    if (end_ && !std::holds_alternative<Ended>(message)) send(from, *end_);
    return;
  }
  std::visit([&](const auto& m) { on(now, from, m); }, message);
}

void Membership::on(Time now, const Peer& from, const Beat& m) {
  if (m.number == views_.newest.number) return;
  if (m.number < views_.newest.number)
    return send(from, AskReply{Verdict::kAsk, "", node_state_.step, views_.newest});
  if (!install_accepted(now, m.number)) send(from, Ask{options_.who, node_state_});
}

void Membership::on(Time now, const Peer& from, const Suspect& m) {
  if (m.number < views_.newest.number)
    return send(from, AskReply{Verdict::kAsk, "", node_state_.step, views_.newest});
  if (m.number > views_.newest.number || phase_ != Phase::kRunning) return;
  learn_dead(m.dead);
  if (first_alive(m.silent) == self()) propose(now);
}

void Membership::on(Time, const Peer&, const Ended& m) {
  // A member finishes the last step alone.
  const bool last = node_state_.step + 1 >= options_.last_step;
  if (m.code == 0 && phase_ == Phase::kRunning && last && !views_.newest.paused) return;
  end_job(m.code, m.message);
}

std::string Membership::waiting_for() const {
  const auto names = [](const auto& peers, auto&& missing) {
    std::vector<std::string> result;
    for (const Peer& peer : peers) {
      if (missing(peer.id) && result.size() < 4) result.push_back(peer.address);
    }
    return fmt::format("{}", fmt::join(result, ", "));
  };
  std::vector<Peer> peers;
  switch (phase_) {
    case Phase::kLooking:
    case Phase::kWaiting:
      return why_waiting_;
    case Phase::kRunning:
      if (views_.newest.paused) {
        return fmt::format("{} more nodes; the job needs {} and has {}",
                           options_.bounds.min_nodes - views_.newest.members.size(),
                           options_.bounds.min_nodes, views_.newest.members.size());
      }
      return fmt::format("step {} of view {}", node_state_.step + 1, views_.newest.number.counter);
    case Phase::kProposing:
      if (workers_.stopping) return "its own workers to stop";
      for (const auto& [id, peer] : proposal_->asked) peers.push_back(peer);
      return "answers of " +
             names(peers, [&](NodeId id) { return !proposal_->answers.contains(id); });
    case Phase::kOffering:
      for (const Member& member : proposal_->view.members) peers.push_back(member.peer);
      return "acceptance of " +
             names(peers, [&](NodeId id) { return !proposal_->accepted_by.contains(id); });
    case Phase::kAnswered:
      return workers_.stopping
                 ? "its own workers to stop"
                 : fmt::format("view {}, which was proposed to it", views_.promised.counter);
    case Phase::kEnded:
      break;
  }
  return {};
}

}  // namespace tandem::membership
