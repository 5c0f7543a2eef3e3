#include "tandem/elastic/protocol/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tandem/core/disagreement.h"
#include "tandem/core/text_layout.h"

namespace tandem::membership {
namespace {

constexpr std::size_t kMostReason = 8192;

// The other lines of a node that wants to join. Its name and its lines are untrusted text.
std::string differences(const std::string& job, const std::string& lines, const std::string& name) {
  const std::array<std::string, 2> texts = {job, printable(lines, /*lines=*/true)};
  const std::string differing = describe_disagreement(
      texts, [&](int which) { return which == 0 ? std::string("the job's hosts") : name; });
  return (differing.empty() ? "" : ":\n  " + differing).substr(0, kMostReason);
}

std::string other_kernels(const JobIdentity& job, const Credentials& who) {
  const std::string name = printable(who.name);
  const std::string own = who.kernels.empty() ? "" : who.kernels.front();
  return fmt::format(
      "{} computes with other kernels than the job, and other instructions round differently; take "
      "a host of the job's kind, or start the job with kernels that both have (TANDEM_KERNELS){}",
      name, differences(lines_of_list(job.kernels), lines_of_list(own), name));
}

std::string other_inputs(const JobIdentity& job, const Credentials& who) {
  const std::string name = printable(who.name);
  return fmt::format(
      "{} would compute something else; give it the job's flags, data, tokenizer, configuration "
      "and program{}",
      name, differences(job.inputs, who.inputs, name));
}

}  // namespace

bool Rules::may_promise(ViewNumber promised, ViewNumber number) const { return number > promised; }

bool Rules::may_follow(const View& view, const std::set<NodeId>& present,
                       const std::set<NodeId>& dead) const {
  std::size_t living = 0;
  std::size_t here = 0;
  NodeId first = 0;
  for (const Member& member : view.members) {
    if (dead.contains(member.peer.id)) continue;
    if (living++ == 0) first = member.peer.id;
    if (present.contains(member.peer.id)) ++here;
  }
  return 2 * here > living || (2 * here == living && (living == 0 || present.contains(first)));
}

bool Rules::may_be_installed(const View& accepted, const Answers& answers) const {
  if (answers.contains(accepted.number.proposer)) return false;  // it would know
  for (const Member& member : accepted.members) {
    const auto it = answers.find(member.peer.id);
    if (it == answers.end()) continue;
    const std::vector<View>& own = it->second.answer.accepted;
    const bool has = std::any_of(own.begin(), own.end(),
                                 [&](const View& v) { return v.number == accepted.number; });
    if (!has) return false;
  }
  return true;
}

bool Rules::may_install(const View& view, const std::set<NodeId>& accepted_by) const {
  // Called after each acceptance: most cases are settled by the count.
  return accepted_by.size() >= view.members.size() &&
         std::all_of(view.members.begin(), view.members.end(),
                     [&](const Member& m) { return accepted_by.contains(m.peer.id); });
}

std::uint64_t Rules::highest_step(const Answers& answers) const {
  std::uint64_t highest = 0;
  for (const auto& [id, answered] : answers)
    highest = std::max(highest, answered.answer.node_state.step);
  return highest;
}

bool Rules::must_pause(std::size_t nodes, const Bounds& bounds) const {
  return nodes < bounds.min_nodes;
}

std::string Rules::refusal(const JobIdentity& job, const Credentials& who) const {
  if (std::find(who.kernels.begin(), who.kernels.end(), job.kernels) == who.kernels.end())
    return other_kernels(job, who);
  if (who.files != job.files) return other_inputs(job, who);
  if (who.shards != job.shards) {
    return fmt::format(
        "the job has {} logical shards and {} was started with {}; give it the "
        "job's --logical_shards",
        job.shards, printable(who.name), who.shards);
  }
  return {};
}

const Fault* Rules::repeated(std::span<const Fault> faults) const {
  for (std::size_t i = 0; i < faults.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const Fault& a = faults[i];
      const Fault& b = faults[j];
      const bool same = a.node == b.node && a.occurrence == b.occurrence;
      if (!same && a.step == b.step && a.how == b.how) return &a;
    }
  }
  return nullptr;
}

namespace {

bool reach_each_other(const PeerAnswer& a, const PeerAnswer& b) {
  const auto names = [](const PeerAnswer& x, NodeId other) {
    return std::find(x.answer.unreachable.begin(), x.answer.unreachable.end(), other) !=
           x.answer.unreachable.end();
  };
  return !names(a, b.peer.id) && !names(b, a.peer.id);
}

// The nodes that have answered, the members of `base` first and in its order.
std::vector<const PeerAnswer*> in_order(const View& base, const Answers& answers) {
  std::vector<const PeerAnswer*> result;
  for (const Member& member : base.members) {
    const auto it = answers.find(member.peer.id);
    if (it != answers.end()) result.push_back(&it->second);
  }
  for (const auto& [id, answered] : answers) {
    if (!base.has(id)) result.push_back(&answered);
  }
  return result;
}

}  // namespace

View next_view(const Rules& rules, const View& base, const Answers& answers, const Bounds& bounds) {
  View view;
  view.step = rules.highest_step(answers);
  std::vector<const PeerAnswer*> chosen;
  const std::vector<const PeerAnswer*> candidates = in_order(base, answers);
  for (const PeerAnswer* answered : candidates) {
    const NodeState& h = answered->answer.node_state;
    if (h.step == view.step && view.source.id == 0) view.source = answered->peer;
    if (h.workers == 0 || h.leaving || chosen.size() == bounds.max_nodes) continue;
    const bool reaches_all =
        std::all_of(chosen.begin(), chosen.end(),
                    [&](const PeerAnswer* other) { return reach_each_other(*answered, *other); });
    if (reaches_all) chosen.push_back(answered);
  }
  for (const PeerAnswer* answered : chosen) {
    const NodeState& h = answered->answer.node_state;
    view.members.push_back({answered->peer, h.workers, h.step});
    if (h.step == view.step && !view.has(view.source.id)) view.source = answered->peer;
  }
  view.paused = rules.must_pause(view.members.size(), bounds);
  return view;
}

}  // namespace tandem::membership
