// A node without state learns the state of a running job before it is a member
// (protocol/joining.h): one of its workers receives it from a worker of a member.
//
// Thread-safety: one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "tandem/elastic/protocol/joining.h"
#include "tandem/elastic/protocol/membership.h"
#include "tandem/elastic/worker/packet.h"

namespace tandem::elastic {

class StateLearning {
 public:
  // `timeout`: limit of a transfer.
  explicit StateLearning(std::chrono::milliseconds timeout) : joining_(timeout) {}

  // Workers of a node that has been in no view are ready. True if they are held back.
  bool keeps_back(membership::Time now, const membership::Membership& membership) {
    return joining_.keeps_back(now, membership);
  }
  bool under_way() const { return joining_.under_way(); }
  // The node that sends the state.
  const membership::Peer& source() const { return joining_.source(); }
  // The worker that learns, or did last; -1: none.
  int worker() const { return worker_; }

  // The leader allows it. Returns false if there is no node to ask.
  bool begin(membership::Time now, membership::NodeId self, const membership::View& view) {
    return joining_.begin(now, self, view).has_value();
  }
  // Returns the order for the worker that learns.
  Packet start(int worker);
  // The packet belongs to the transfer that is under way.
  bool expects(int worker, const Packet& packet) const;

  // How a transfer has ended: a line for people, and whether the node's workers join now.
  struct Ended {
    std::string log;
    bool joins = false;
  };
  Ended handle_learned(const Packet& packet, membership::Time now);
  // Call periodically; set if a transfer has just failed.
  std::optional<Ended> wake(membership::Time now, const membership::Membership& membership);
  void worker_lost(int worker) {
    if (worker == worker_) joining_.worker_lost();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Ended failed(const std::string& why) const;

  membership::Joining joining_;
  int worker_ = -1;
  std::uint64_t transfers_ = 0;  // begun
  Clock::time_point since_;
};

}  // namespace tandem::elastic
