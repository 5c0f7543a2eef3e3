#include "tandem/elastic/protocol/joining.h"

namespace tandem::membership {
namespace {

// The leader reports that this node may learn, or that the job is full, or that it has just lost
// the lead.
constexpr Time kWord{2000};
constexpr int kMostAttempts = 3;

}  // namespace

bool Joining::keeps_back(Time now, const Membership& membership) {
  if (state_ != State::kNot) return state_ != State::kOver;
  const View& view = membership.view();
  const bool room = view.members.size() < membership.options().bounds.max_nodes;
  if (!view.exists() || view.paused || !room) return false;
  state_ = State::kAwaited;
  since_ = now;
  return true;
}

// One member after another; each node begins with a different one.
std::optional<Peer> Joining::begin(Time now, NodeId self, const View& view) {
  if (state_ != State::kAwaited || view.members.empty()) return std::nullopt;
  const auto stagger_delay = self + static_cast<std::uint64_t>(attempts_);
  source_ = view.members[stagger_delay % view.members.size()].peer;
  state_ = State::kUnderWay;
  since_ = now;
  return source_;
}

void Joining::failed(Time now) {
  state_ = ++attempts_ < kMostAttempts ? State::kAwaited : State::kOver;
  since_ = now;
}

void Joining::worker_lost() {
  if (state_ == State::kUnderWay) state_ = ++attempts_ < kMostAttempts ? State::kNot : State::kOver;
}

bool Joining::wake(Time now, const Membership& membership) {
  if (under_way() && membership.view().exists() && !membership.view().has(source_.id)) {
    failed(now);
    return true;
  }
  const bool unanswered = state_ == State::kAwaited && now > since_ + kWord;
  const bool stuck = under_way() && now > since_ + timeout_;
  // Without a view no node can send the state: this node may be needed for the next view.
  const bool alone = under_way() && !membership.view().exists();
  if (unanswered || stuck || alone) end();
  return unanswered || stuck || alone;
}

}  // namespace tandem::membership
