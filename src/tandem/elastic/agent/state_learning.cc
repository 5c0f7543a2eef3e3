#include "tandem/elastic/agent/state_learning.h"

#include <fmt/format.h>

#include "tandem/core/error.h"

namespace tandem::elastic {

Packet StateLearning::start(int worker) {
  worker_ = worker;
  since_ = Clock::now();
  return {.kind = PacketKind::kLearn, .view = ++transfers_};
}

bool StateLearning::expects(int worker, const Packet& packet) const {
  return joining_.under_way() && worker == worker_ && packet.view == transfers_;
}

StateLearning::Ended StateLearning::handle_learned(const Packet& packet, membership::Time now) {
  const std::chrono::duration<double> took = Clock::now() - since_;
  switch (static_cast<Learned>(packet.first)) {
    case Learned::kLevel:
      joining_.end();
      return {fmt::format("the state of step {} is here after {:.1f} s; this node joins",
                          packet.second, took.count()),
              true};
    case Learned::kNothing:
      joining_.failed(now);
      return failed(packet.text);
    case Learned::kNever:
      joining_.end();
      return failed(packet.text);
  }
  raise<CommError>("learning ended in a way that there is not ({})", packet.first);
}

std::optional<StateLearning::Ended> StateLearning::wake(membership::Time now,
                                                        const membership::Membership& membership) {
  const bool asked = joining_.under_way();
  if (!joining_.wake(now, membership)) return std::nullopt;
  if (!asked) return failed("the leader has not named a node that sends the job's state");
  return failed("the job's state has not come from the node at " + joining_.source().address);
}

StateLearning::Ended StateLearning::failed(const std::string& why) const {
  const bool over = joining_.is_over();
  return {
      fmt::format("{}: {}", why, over ? "it comes inside the first view" : "another node is asked"),
      over};
}

}  // namespace tandem::elastic
