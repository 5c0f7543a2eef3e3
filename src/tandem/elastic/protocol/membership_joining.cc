// Without a view: finding the job, or founding it.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tandem/core/text_layout.h"
#include "tandem/elastic/protocol/membership.h"

namespace tandem::membership {
namespace {

constexpr std::size_t kMostRefused = 16;

}  // namespace

// ---- the node that looks for a job ----

void Membership::look(Time now) {
  proposal_.reset();
  if (node_state_.leaving) return end(kHasLeft, "left while it was not a member");
  if (std::exchange(lock_held_, false)) order(DropLock{});
  why_waiting_ = "an answer of an agent of the job";
  enter(Phase::kLooking, kNever);
  timers_.next_ask = now;
  forget_dead_view();
}

// The others continued without this node: it joins them again, with its state.
void Membership::left_behind(Time now, const View& view) {
  know_installed(view);
  deferred_reply_.reset();
  stop_workers();
  workers_.reconfiguration_point = workers_.reconfiguration_point_asked = workers_.missed = false;
  look(now);
}

void Membership::ask(Time now) {
  timers_.next_ask = now + options_.limits.ask;
  Ask message{options_.who, node_state_};
  message.who.inputs.clear();
  const std::size_t round = timers_.ask_round++;
  const std::vector<std::string>& contacts = options_.contacts;
  if (!views_.newest.exists()) {
    for (const std::string& address : contacts) send({0, address}, message);
    return found(now);
  }
  const std::size_t size = views_.newest.members.size();
  const NodeId first = first_alive({});
  for (std::size_t i = 0; i < size; ++i) {
    const Peer& peer = views_.newest.members[i].peer;
    if (peer.id == first || (i == round % size && !others_.dead.contains(peer.id)))
      send(peer, message);
  }
  if (!contacts.empty()) send({0, contacts[round % contacts.size()]}, message);
}

void Membership::nobody_at(Time now, const std::string& address) {
  timers_.now = now;
  others_.unsettled.erase(address);
  if (phase_ == Phase::kLooking && !views_.newest.exists()) found(now);
}

// Only the endpoint makes the first view, when no agent that it can reach knows one.
void Membership::found(Time now) {
  if (!options_.bootstrap_node ||
      (!others_.unsettled.empty() && now < timers_.started + options_.limits.found))
    return;
  std::size_t nodes = 1, workers = node_state_.workers;
  for (const auto& [id, requester] : others_.requesters) {
    if (!fresh(requester, now) || requester.ask.node_state.workers == 0) continue;
    ++nodes;
    workers += requester.ask.node_state.workers;
  }
  const Bounds& bounds = options_.bounds;
  if (nodes >= bounds.min_nodes && workers >= bounds.first_workers && node_state_.workers > 0)
    return propose(now);
  why_waiting_ = fmt::format("{} nodes to begin; {} are here", bounds.min_nodes, nodes);
  if (nodes >= bounds.min_nodes)
    why_waiting_ = fmt::format("{} workers to begin; {} are ready ({})", bounds.first_workers,
                               workers, whose_workers(now));
  for (const auto& [name, reason] : others_.refused)
    why_waiting_ += fmt::format("; {} was refused", name);
}

// For people: the number of ready workers on each host.
std::string Membership::whose_workers(Time now) const {
  std::string whose = fmt::format("{} here", node_state_.workers);
  for (const auto& [id, requester] : others_.requesters) {
    if (fresh(requester, now))
      whose += fmt::format(", {} at {}", requester.ask.node_state.workers, requester.peer.address);
  }
  return whose;
}

void Membership::on(Time now, const Peer& from, const AskReply& m) {
  others_.unsettled.erase(from.address);
  const bool alive = m.view && std::any_of(m.view->members.begin(), m.view->members.end(),
                                           [&](const Member& member) {
                                             return !others_.dead.contains(member.peer.id);
                                           });
  if (alive && m.view->number > views_.newest.number) {
    if (!m.view->has(self())) {
      if (in_view() || phase_ == Phase::kLooking) {
        left_behind(now, *m.view);
      } else {
        know_installed(*m.view);
      }
    } else if (!install_accepted(now, m.view->number)) {
      // It is in a view that it cannot run: another one has to follow.
      know_installed(*m.view);
      stop_workers();
      enter(Phase::kAnswered, now + options_.limits.install + stagger_delay());
    }
  }
  if (phase_ != Phase::kLooking) return;
  if (m.verdict == Verdict::kRefuse)
    return end(1, "refused by the job: " + printable(m.reason, /*lines=*/true));
  if (m.verdict == Verdict::kShow) return send(from, Ask{options_.who, node_state_});
  if (m.verdict != Verdict::kAsk) why_waiting_ = m.reason;
  if (m.verdict != Verdict::kLearn || !m.view || m.view->number != views_.newest.number) {
    if (phase_ == Phase::kLooking && !views_.newest.exists()) found(now);
    return;
  }
  if (!workers_.stopping && node_state_.step < m.step) order(Learn{views_.newest, m.step});
}

// ---- the node that is asked ----

// The node computes what this job computes. A node whose workers have not reported yet does not
// fit.
bool Membership::fits(const Ask& ask) const {
  return rules_.refusal(options_.job, ask.who).empty();
}

bool Membership::seen_recently(const Requester& requester, Time now) const {
  return requester.answered + 4 * options_.limits.ask > now;
}

bool Membership::fresh(const Requester& requester, Time now) const {
  return seen_recently(requester, now) && !unreachable(requester.peer.id) && fits(requester.ask);
}

bool Membership::ready(const Requester& requester, Time now) const {
  const NodeState& h = requester.ask.node_state;
  return fresh(requester, now) && h.workers > 0 && !h.leaving;
}

AskReply Membership::reply_to(Time now, const Peer& from, const Ask& m) const {
  AskReply reply;
  reply.step = node_state_.step;
  if (views_.newest.exists()) reply.view = views_.newest;
  if (options_.job.kernels.empty() || m.who.kernels.empty()) {
    reply.reason = "workers that are ready";
    return reply;
  }
  if (std::string reason = rules_.refusal(options_.job, m.who); !reason.empty()) {
    // A node outside any view knows no more about the job than the node that asks.
    if (!may_refuse()) {
      reply.reason = "the job to begin";
      return reply;
    }
    const bool shows = m.who.files == options_.job.files || !m.who.inputs.empty();
    reply.verdict = shows || options_.job.inputs.empty() ? Verdict::kRefuse : Verdict::kShow;
    reply.reason = std::move(reason);
    return reply;
  }
  if (phase_ == Phase::kRunning && first_alive({}) == self()) {
    const auto it = others_.requesters.find(from.id);
    const bool apart = it == others_.requesters.end() || !fresh(it->second, now);
    const bool full = views_.newest.members.size() >= options_.bounds.max_nodes;
    reply.verdict = full || apart ? Verdict::kSpare : Verdict::kLearn;
    reply.reason =
        full    ? fmt::format("a place among the {} nodes of the job", views_.newest.members.size())
        : apart ? std::string("members that it did not reach before")
                : fmt::format("the state of step {}", node_state_.step);
  } else if (phase_ == Phase::kRunning || (views_.newest.exists() && phase_ == Phase::kLooking)) {
    reply.verdict = Verdict::kAsk;
  } else {
    reply.reason = views_.newest.exists() ? "the members to agree on a view" : "the job to begin";
  }
  return reply;
}

void Membership::on(Time now, const Peer& from, const Ask& m) {
  Requester& requester = others_.requesters[from.id];
  requester = {from, m, now};
  AskReply reply = reply_to(now, from, m);
  note_refusal(m, reply);
  if (reply.verdict == Verdict::kRefuse || reply.verdict == Verdict::kShow)
    others_.requesters.erase(from.id);
  send(from, std::move(reply));
  if (phase_ == Phase::kLooking && !views_.newest.exists()) found(now);
  if (phase_ == Phase::kRunning) consider_joiners(now);
}

void Membership::note_refusal(const Ask& ask, const AskReply& reply) {
  const std::string name = printable(ask.who.name);
  if (reply.verdict == Verdict::kShow || ask.who.kernels.empty()) return;
  if (reply.verdict != Verdict::kRefuse) {
    others_.refused.erase(name);
    return;
  }
  const auto known = others_.refused.find(name);
  if (known == others_.refused.end() && others_.refused.size() == kMostRefused) return;
  if (known != others_.refused.end() && known->second == reply.reason) return;
  others_.refused[name] = reply.reason;
  order(Refused{name, reply.reason});
}

void Membership::consider_joiners(Time now) {
  if (first_alive({}) != self()) return;
  if (workers_.reconfiguration_point) return at_reconfiguration_point(now);
  if (views_.newest.members.size() >= options_.bounds.max_nodes) return;
  const bool somebody = std::any_of(others_.requesters.begin(), others_.requesters.end(),
                                    [&](const auto& entry) { return ready(entry.second, now); });
  if (somebody) want_reconfiguration_point(now);
}

}  // namespace tandem::membership
