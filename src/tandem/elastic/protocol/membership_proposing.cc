// From one view to the next: propose, answer, offer, accept, install.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tandem/elastic/protocol/membership.h"

namespace tandem::membership {
namespace {

// More views that may have been installed than an agent keeps; it waits until fewer are possible.
constexpr std::size_t kMostPending = 8;
constexpr std::size_t kMostFaults = 16;

bool contains(const std::vector<View>& views, ViewNumber number) {
  return std::any_of(views.begin(), views.end(),
                     [&](const View& view) { return view.number == number; });
}

}  // namespace

// ---- the proposer ----

// With an external lock only its holder proposes.
bool Membership::take_lock(Time now) {
  if (!options_.external_lock || lock_held_) return true;
  wait(now, "the external lock");
  order(TakeLock{});
  return false;
}

void Membership::propose(Time now) {
  if (!take_lock(now)) return;
  const std::uint64_t counter =
      std::max({views_.promised.counter, views_.newest.number.counter, views_.seen_counter}) + 1;
  views_.promised = {counter, self()};
  deferred_reply_.reset();
  proposal_ = Proposal();  // emplace() of a nested class without arguments is an error of clang 14
  proposal_->number = views_.promised;
  std::map<NodeId, Peer>& asked = proposal_->asked;
  const auto ask_members = [&](const View& view) {
    for (const Member& member : view.members) asked.emplace(member.peer.id, member.peer);
  };
  ask_members(views_.newest);
  for (const View& view : views_.accepted) ask_members(view);
  for (const View& view : views_.doubtful) ask_members(view);
  for (const auto& [id, requester] : others_.requesters) {
    if (!views_.newest.exists() ? fresh(requester, now) : ready(requester, now))
      asked.emplace(id, requester.peer);
  }
  std::erase_if(asked, [&](const auto& entry) {
    return entry.first == self() || others_.dead.contains(entry.first);
  });
  proposal_->limit = now + options_.limits.answer;
  enter(Phase::kProposing, proposal_->limit);
  look_for_silence(now);
  std::vector<Peer> to;
  for (const auto& [id, peer] : asked) to.push_back(peer);
  send_all(to, Propose{views_.promised, views_.newest.number});
  stop_workers();
  if (!workers_.stopping) add_own_answer(now);
}

void Membership::add_own_answer(Time now) {
  const Propose own{proposal_->number, views_.newest.number};
  proposal_->answers[self()] = {options_.self, make_answer(own)};
  check_answers(now);
}

void Membership::on(Time now, const Peer& from, const Answer& m) {
  if (m.promised > m.number)
    views_.seen_counter = std::max(views_.seen_counter, m.promised.counter);
  if (m.installed && m.installed->number > views_.newest.number) {
    if (!m.installed->has(self()) && in_view()) return left_behind(now, *m.installed);
    know_installed(*m.installed);
  }
  if (phase_ != Phase::kProposing || m.number != proposal_->number) return;
  learn_dead(m.dead);
  if (m.promised > m.number) {
    proposal_.reset();
    return enter(Phase::kAnswered, now + options_.limits.install / 2 + stagger_delay());
  }
  proposal_->answers[from.id] = {from, m};
  check_answers(now);
}

// Decides as soon as all nodes have answered from which an answer can be expected.
void Membership::check_answers(Time now) {
  if (workers_.stopping || !proposal_->answers.contains(self())) return;
  for (const auto& [id, peer] : proposal_->asked) {
    const auto answered = others_.last_seen.find(id);
    const bool silent =
        answered == others_.last_seen.end() || answered->second + options_.limits.silent <= now;
    if (!proposal_->answers.contains(id) && !others_.dead.contains(id) && !silent &&
        !unreachable(id)) {
      return;
    }
  }
  decide(now);
}

// Wakes up when the next node without an answer counts as silent.
void Membership::look_for_silence(Time now) {
  timers_.deadline = proposal_->limit;
  for (const auto& [id, peer] : proposal_->asked) {
    const auto answered = others_.last_seen.find(id);
    if (answered == others_.last_seen.end() || proposal_->answers.contains(id)) continue;
    const Time silent_at = answered->second + options_.limits.silent;
    if (silent_at > now) timers_.deadline = std::min(timers_.deadline, silent_at);
  }
}

std::vector<View> Membership::pending() const {
  std::vector<View> result;
  for (const auto& [id, answered] : proposal_->answers) {
    for (const View& view : answered.answer.accepted) {
      if (view.number > views_.newest.number && !contains(result, view.number) &&
          rules_.may_be_installed(view, proposal_->answers)) {
        result.push_back(view);
      }
    }
  }
  return result;
}

bool Membership::enough(const std::set<NodeId>& present, const std::vector<View>& pending) const {
  if (options_.external_lock) return lock_held_;
  if (!views_.newest.exists() && pending.empty()) {
    return options_.bootstrap_node && present.size() >= options_.bounds.min_nodes;
  }
  return rules_.may_follow(views_.newest, present, others_.dead) &&
         std::all_of(pending.begin(), pending.end(), [&](const View& view) {
           return rules_.may_follow(view, present, others_.dead);
         });
}

std::vector<Fault> Membership::known_faults() const {
  std::vector<Fault> result = views_.newest.faults;
  for (const auto& [id, answered] : proposal_->answers) {
    for (const Fault& fault : answered.answer.faults) {
      if (std::find(result.begin(), result.end(), fault) == result.end()) result.push_back(fault);
    }
  }
  return result;
}

void Membership::decide(Time now) {
  std::set<NodeId> present;
  for (const auto& [id, answered] : proposal_->answers) present.insert(id);
  std::vector<View> possible = pending();
  std::erase_if(views_.accepted,
                [&](const View& view) { return !contains(possible, view.number); });
  if (!enough(present, possible)) {
    if (!in_view() && possible.empty()) return look(now);
    views_.doubtful = std::move(possible);
    return wait(now, options_.external_lock
                         ? "the external lock"
                         : fmt::format("more than half of the {} nodes of view {}; {} are here",
                                       views_.newest.members.size(), views_.newest.number.counter,
                                       present.size()));
  }
  if (possible.size() > kMostPending) return wait(now, "members of views that may be installed");
  View view = next_view(rules_, views_.newest, proposal_->answers, options_.bounds);
  view.faults = known_faults();
  std::erase_if(view.faults, [&](const Fault& fault) { return fault.step != view.step + 1; });
  if (const Fault* fault = rules_.repeated(view.faults)) {
    return end_job(
        1, fmt::format("a worker failed twice at step {} in the same way ({}): a bug or bad "
                       "data, not a lost machine",
                       fault->step, fault->how));
  }
  if (view.faults.size() > kMostFaults) view.faults.resize(kMostFaults);
  if (view.members.empty()) return nobody_computes(now);
  view.number = proposal_->number;
  view.after.push_back(views_.newest.number);
  for (const View& each : possible) view.after.push_back(each.number);
  offer(now, std::move(view), std::move(possible));
}

void Membership::nobody_computes(Time now) {
  if (node_state_.leaving) {
    order(SaveCheckpoint{node_state_.step});
    return end(kHasLeft, "left; no other node is there to continue");
  }
  wait(now, "workers that can compute");
}

void Membership::wait(Time now, std::string why) {
  proposal_.reset();
  why_waiting_ = std::move(why);
  enter(Phase::kWaiting, now + options_.limits.retry + stagger_delay());
  for (const Member& member : views_.newest.members) {
    const NodeId id = member.peer.id;
    if (id == self() || others_.dead.contains(id)) continue;
    send(member.peer, Beat{views_.newest.number, node_state_.step});  // they may be in a newer view
  }
  seek_others();
}

std::vector<Peer> Membership::others_who_answered() const {
  std::vector<Peer> result;
  for (const auto& [id, answered] : proposal_->answers) {
    if (id != self()) result.push_back(answered.peer);
  }
  return result;
}

void Membership::offer(Time now, View view, std::vector<View> possible) {
  enter(Phase::kOffering, now + options_.limits.offer);
  views_.accepted = possible;
  views_.accepted.push_back(view);
  send_all(others_who_answered(), Offer{view, possible});
  proposal_->view = std::move(view);
  proposal_->pending = std::move(possible);
  proposal_->accepted_by = {self()};
  check_accepted(now);
}

void Membership::on(Time now, const Peer& from, const Accept& m) {
  if (phase_ != Phase::kOffering || m.number != proposal_->number) return;
  proposal_->accepted_by.insert(from.id);
  check_accepted(now);
}

void Membership::check_accepted(Time now) {
  const std::set<NodeId>& by = proposal_->accepted_by;
  if (!rules_.may_install(proposal_->view, by)) return;
  const std::vector<View>& also = proposal_->pending;
  if (options_.external_lock) {
    if (!lock_held_) return;
  } else if (views_.newest.exists()) {
    const bool followed = rules_.may_follow(views_.newest, by, others_.dead) &&
                          std::all_of(also.begin(), also.end(), [&](const View& view) {
                            return rules_.may_follow(view, by, others_.dead);
                          });
    if (!followed) return;
  }
  send_all(others_who_answered(), Install{proposal_->number});
  install(now, View(proposal_->view));
}

// ---- the nodes that answer ----

// Members of a view do not stop for a node outside it: that node receives the job's step.
bool Membership::may_propose_here(const Peer& from, const Propose& m) const {
  if (!views_.newest.exists() || m.installed > views_.newest.number || views_.newest.has(from.id))
    return true;
  return std::any_of(views_.accepted.begin(), views_.accepted.end(),
                     [&](const View& view) { return view.has(from.id); });
}

void Membership::on(Time now, const Peer& from, const Propose& m) {
  if (!may_propose_here(from, m)) {
    return send(from, AskReply{Verdict::kAsk, "", node_state_.step, views_.newest});
  }
  views_.seen_counter = std::max(views_.seen_counter, m.number.counter);
  if (!rules_.may_promise(views_.promised, m.number)) {
    Answer refusal;
    refusal.number = m.number;
    refusal.promised = views_.promised;
    // The same again: the answer was lost, or is still owed.
    if (views_.promised == m.number) return;
    return send(from, refusal);
  }
  views_.promised = m.number;
  proposal_.reset();
  deferred_reply_ = DeferredReply{from, m};
  enter(Phase::kAnswered, now + options_.limits.install + stagger_delay());
  stop_workers();
  send_deferred_reply(now);
}

void Membership::send_deferred_reply(Time) {
  if (!deferred_reply_ || workers_.stopping) return;
  send(deferred_reply_->to, make_answer(deferred_reply_->propose));
  deferred_reply_.reset();
}

Answer Membership::make_answer(const Propose& propose) const {
  Answer answer;
  answer.number = answer.promised = propose.number;
  answer.node_state = node_state_;
  if (views_.newest.number > propose.installed) answer.installed = views_.newest;
  answer.accepted = views_.accepted;
  answer.dead = {others_.dead.begin(), others_.dead.end()};
  for (const auto& [node, until] : others_.unreachable) {
    if (until > timers_.now) answer.unreachable.push_back(node);
  }
  answer.faults = faults_.list;
  return answer;
}

void Membership::on(Time now, const Peer& from, const Offer& m) {
  if (m.view.number != views_.promised || phase_ != Phase::kAnswered) return;
  if (!contains(views_.accepted, m.view.number)) {
    views_.accepted = m.pending;
    views_.accepted.push_back(m.view);
    std::erase_if(views_.accepted,
                  [&](const View& view) { return view.number <= views_.newest.number; });
  }
  timers_.deadline = now + options_.limits.install + stagger_delay();
  send(from, Accept{m.view.number});
}

void Membership::on(Time now, const Peer&, const Install& m) { install_accepted(now, m.number); }

// ---- a view is installed ----

void Membership::know_installed(const View& view) {
  views_.newest = view;
  std::erase_if(views_.accepted, [&](const View& v) { return v.number <= views_.newest.number; });
  // It became a member and did not learn so in time: another view has to follow.
  if (phase_ == Phase::kLooking && in_view()) {
    enter(Phase::kAnswered, timers_.now + options_.limits.install + stagger_delay());
  }
}

// `number` is installed on some node. Returns true if this agent installs it now; an agent that has
// promised a higher number only records it.
bool Membership::install_accepted(Time now, ViewNumber number) {
  const auto it = std::find_if(views_.accepted.begin(), views_.accepted.end(),
                               [&](const View& view) { return view.number == number; });
  if (it == views_.accepted.end()) return false;
  const View view = *it;
  const Member* own = view.find(self());
  const bool holds = !own || node_state_.step == own->step;
  if (views_.promised == number && holds &&
      (phase_ == Phase::kAnswered || phase_ == Phase::kLooking)) {
    install(now, view);
    return true;
  }
  know_installed(view);
  return true;
}

void Membership::install(Time now, const View& view) {
  phase_ = Phase::kAnswered;
  know_installed(view);
  proposal_.reset();
  deferred_reply_.reset();
  views_.doubtful.clear();
  workers_.reconfiguration_point = workers_.reconfiguration_point_asked = workers_.missed = false;
  if (!in_view()) {
    if (node_state_.leaving)
      return end(kHasLeft, "left the job, which continues without this node");
    return look(now);
  }
  enter(Phase::kRunning, kNever);
  timers_.next_beat = now + options_.limits.beat;
  for (const Member& member : views_.newest.members) {
    others_.last_seen[member.peer.id] = now;
    others_.requesters.erase(member.peer.id);
  }
  workers_.running = true;
  order(RunView{views_.newest});
  if (views_.newest.paused && leads()) order(SaveCheckpoint{views_.newest.step});
  const Member* own = views_.newest.find(self());
  if (own->workers > node_state_.workers) return want_change(now, {});
  if (own->workers < node_state_.workers || node_state_.leaving) want_reconfiguration_point(now);
}

}  // namespace tandem::membership
