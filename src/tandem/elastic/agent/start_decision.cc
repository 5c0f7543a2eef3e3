#include "tandem/elastic/agent/start_decision.h"

#include <algorithm>

namespace tandem::elastic {

std::optional<Packet> StartDecision::request(int worker, bool may_decide) {
  if (text_) return Packet{.kind = PacketKind::kDecision, .text = *text_};
  if (decider_ >= 0 || !may_decide) {
    requesters_.push_back(worker);
    return std::nullopt;
  }
  decider_ = worker;
  since_ = Clock::now();
  return Packet{.kind = PacketKind::kDecide};
}

bool StartDecision::is_waiting(int worker) const {
  return std::find(requesters_.begin(), requesters_.end(), worker) != requesters_.end();
}

std::optional<int> StartDecision::take_first_waiting() {
  if (requesters_.empty()) return std::nullopt;
  const int first = requesters_.front();
  requesters_.erase(requesters_.begin());
  return first;
}

StartDecision::Clock::duration StartDecision::decides_for(int worker) const {
  return worker == decider_ && !text_ ? Clock::now() - since_ : Clock::duration::zero();
}

std::optional<int> StartDecision::worker_lost(int worker) {
  std::optional<int> next;
  if (decider_ == worker && !text_) {
    decider_ = -1;
    next = take_first_waiting();
  }
  std::erase(requesters_, worker);
  return next;
}

}  // namespace tandem::elastic
