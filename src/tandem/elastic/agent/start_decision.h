// The decision where a job begins, which one worker of the bootstrap node makes for all. Workers
// and nodes that need it wait here.
//
// Thread-safety: one thread.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/elastic/protocol/view.h"
#include "tandem/elastic/worker/packet.h"

namespace tandem::elastic {

class StartDecision {
 public:
  using Clock = std::chrono::steady_clock;

  const std::optional<std::string>& text() const { return text_; }
  bool made_or_under_way() const { return text_ || decider_ >= 0; }

  // A worker requests it. Returns the answer, or nothing if it has to wait. `may_decide`: a worker
  // of this node may make it.
  std::optional<Packet> request(int worker, bool may_decide);
  bool is_waiting(int worker) const;
  bool is_any_waiting() const { return !requesters_.empty(); }
  // The worker that has waited longest, to request it again.
  std::optional<int> take_first_waiting();
  std::vector<int> take_waiting() { return std::exchange(requesters_, {}); }
  // Time for which the worker has been deciding; 0: it is not.
  Clock::duration decides_for(int worker) const;
  void make(std::string text) { text_ = std::move(text); }
  // The worker is gone. Returns the next worker, which has to request it again.
  std::optional<int> worker_lost(int worker);

  // ---- other nodes ----
  // The node waits for it.
  void note_peer(const membership::Peer& peer) { peers_[peer.id] = peer; }
  std::size_t num_peers() const { return peers_.size(); }
  std::map<membership::NodeId, membership::Peer> take_peers() { return std::exchange(peers_, {}); }

 private:
  std::optional<std::string> text_;
  int decider_ = -1;
  Clock::time_point since_;
  std::vector<int> requesters_;
  std::map<membership::NodeId, membership::Peer> peers_;
};

}  // namespace tandem::elastic
