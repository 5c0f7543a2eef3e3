// The decisions of the protocol, each a function of what is known, apart from the machine that asks
// for them. The simulator's tests derive from this class, break one rule, and must see it found;
// everything else uses it as it is. R1 … R7 are the rules of docs/elastic_protocol.md.
//
// Thread-safety: no state.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tandem/elastic/protocol/messages.h"

namespace tandem::membership {

// The answers that a proposer has received, by node.
struct PeerAnswer {
  Peer peer;
  Answer answer;
};
using Answers = std::map<NodeId, PeerAnswer>;

struct Bounds {
  std::uint32_t min_nodes = 1;
  std::uint32_t max_nodes = 1;
  std::uint32_t first_workers = 1;  // over all nodes: the job does not begin with fewer
};

class Rules {
 public:
  virtual ~Rules() = default;

  // A promise or an acceptance is never taken back: only a higher number is answered.
  virtual bool may_promise(ViewNumber promised, ViewNumber number) const;

  // True if the nodes in `present` continue from `view`: more than half of its nodes that are not
  // certainly dead, or exactly half with the first of these. The others would wait. A view that
  // does not exist has no members to ask.
  virtual bool may_follow(const View& view, const std::set<NodeId>& present,
                          const std::set<NodeId>& dead) const;

  // True if an accepted proposal may have been installed without the knowledge of the nodes here. A
  // view is installed when all its members have accepted it. A member that has answered and not
  // accepted rules that out, because it has promised a higher number. So does its proposer, which
  // would have been the first to install it.
  virtual bool may_be_installed(const View& accepted, const Answers& answers) const;

  // True if all nodes have accepted whose acceptance the view needs to be installed.
  virtual bool may_install(const View& view, const std::set<NodeId>& accepted_by) const;

  // The step at which the next view starts: the highest that any node holds (R2). Nodes that leave
  // count, and nodes whose workers are being restarted. The workers of a view bring its other
  // members to that step, from any step (dist::GradientEngine::synchronize_state).
  virtual std::uint64_t highest_step(const Answers& answers) const;

  // Fewer nodes than MIN do not train.
  virtual bool must_pause(std::size_t nodes, const Bounds& bounds) const;

  // The reason why `who` may not join; empty: it may (R6). It contains text of `who` only where
  // that is for people to see, and is bounded.
  virtual std::string refusal(const JobIdentity& job, const Credentials& who) const;

  // Two different failures that look the same at the same step: a bug or bad data, not a lost
  // machine (R5).
  virtual const Fault* repeated(std::span<const Fault> faults) const;
};

// The view that follows `base`, made from the answers: members in the order of `base`, then joining
// nodes. If two do not reach each other, the later one stays out. Without members if no node can
// compute. The caller sets the number.
View next_view(const Rules& rules, const View& base, const Answers& answers, const Bounds& bounds);

}  // namespace tandem::membership
