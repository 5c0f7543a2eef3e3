// A node without state learns the state of a running job before it is a member
// (membership/joining.h): one of its workers receives it from a worker of a member.
#include <fmt/format.h>

#include <utility>

#include "tandem/core/error.h"
#include "tandem/elastic/node.h"

namespace tandem::elastic {
namespace {

// Longest text of an address (job/learning.cc makes none that is longer).
constexpr std::size_t kMostPlace = 4096;

}  // namespace

bool Node::keeps_back() {
  if (begun_ || !links_ || count(State::kReady) == 0) return false;
  return joining_.keeps_back(now(), *agent_);
}

void Node::obey(const membership::Learn& order) {
  if (count(State::kReady) == 0) return;
  const auto source = joining_.begin(now(), agent_->options().self.id, order.view);
  if (!source) return;
  learner_ = choose(1).front();  // the worker that leads this node in its first view
  learns_since_ = Clock::now();
  options_.log(
      fmt::format("worker {} takes the job's state from the node at {}, while the others train",
                  learner_, source->address));
  say(learner_, {.kind = PacketKind::kLearn, .view = ++lessons_});
}

void Node::hear_learner(int worker, const Packet& packet) {
  if (!joining_.under_way() || worker != learner_ || packet.view != lessons_) return;
  if (packet.kind == PacketKind::kLearnsAt) {
    if (packet.text.size() > kMostPlace)
      raise<CommError>("a place of {} bytes", packet.text.size());
    const membership::Fact fact{membership::FactKind::kLearner, {}, packet.text};
    return links_->send(joining_.source(), fact);
  }
  const std::chrono::duration<double> took = Clock::now() - learns_since_;
  switch (static_cast<Learned>(packet.first)) {
    case Learned::kLevel:
      options_.log(fmt::format("the state of step {} is here after {:.1f} s; this node joins",
                               packet.second, took.count()));
      joining_.end();
      break;
    case Learned::kNothing:
      joining_.failed(now());
      return tell_learning_failed(packet.text);
    case Learned::kNever:
      joining_.end();
      return tell_learning_failed(packet.text);
    default:
      raise<CommError>("learning ended in a way that there is not ({})", packet.first);
  }
  report_workers();
}

void Node::watch_learner() {
  if (!joining_.wake(now(), *agent_)) return;
  tell_learning_failed("the job's state has not come from the node at " +
                       joining_.source().address);
}

void Node::tell_learning_failed(const std::string& why) {
  options_.log(
      fmt::format("{}: {}", why,
                  joining_.is_over() ? "it comes inside the first view" : "another node is asked"));
  if (joining_.is_over()) report_workers();
}

void Node::report_workers() {
  recount();
  obey();
}

// By the worker that leads this node.
void Node::teach(const std::string& place) {
  if (place.size() > kMostPlace) return;
  if (keeper_ >= 0) say(keeper_, {.kind = PacketKind::kTeach, .text = place});
}

}  // namespace tandem::elastic
