// The decisions of the protocol, each a function of what is known, apart from the machine that asks
// for them. The simulator's tests derive from this class, break one rule, and must see it found;
// everything else uses it as it is. R1 … R7 are the rules of docs/elastic.md.
//
// Thread-safety: no state.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tandem/membership/messages.h"

namespace tandem::membership {

// What a proposer has heard, from whom.
struct Heard {
  Peer peer;
  Answer answer;
};
using Answers = std::map<NodeId, Heard>;

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

  // Whether those who are `present` go on from `view`: more than half of its nodes that are not
  // certainly dead, or exactly half with the first of these. The others would wait. A view that
  // does not exist has nobody to ask.
  virtual bool may_follow(const View& view, const std::set<NodeId>& present,
                          const std::set<NodeId>& dead) const;

  // Whether a proposal that was accepted may have been installed although nobody here knows. A view
  // is installed when all its members have accepted it, so one that has answered and not accepted
  // rules it out: it has promised a higher number and will not. So does its proposer, who would
  // have been the first to install it.
  virtual bool may_be_installed(const View& accepted, const Answers& answers) const;

  // Whether all have accepted whose acceptance a view needs to be installed.
  virtual bool may_install(const View& view, const std::set<NodeId>& accepted_by) const;

  // The step at which the next view starts: the highest that anybody holds (R2), also one that
  // leaves or whose workers are being started again. The workers of a view bring those of its
  // members that are behind to it, from whatever step (dist::GradientEngine::level).
  virtual std::uint64_t highest_step(const Answers& answers) const;

  // Fewer nodes than MIN do not train.
  virtual bool must_pause(std::size_t nodes, const Bounds& bounds) const;

  // Why `who` may not join; empty: it may (R6). It holds what `who` says only where that is for
  // people to see, and is bounded.
  virtual std::string refusal(const JobIdentity& job, const Credentials& who) const;

  // Two different failures that look the same at the same step: a bug or bad data, not the weather
  // (R5).
  virtual const Fault* repeated(std::span<const Fault> faults) const;
};

// The view that follows `base` out of what was answered: members in the order of `base`, then
// newcomers; of two that do not reach each other the later one stays out. Without members where
// nobody can compute. The number is the caller's.
View next_view(const Rules& rules, const View& base, const Answers& answers, const Bounds& bounds);

}  // namespace tandem::membership
