// A node without state learns the state of a running job before it is a member
// (protocol/joining.h): one of its workers receives it from a worker of a member.
#include <fmt/format.h>

#include <utility>

#include "tandem/core/error.h"
#include "tandem/elastic/agent/elastic_agent.h"

namespace tandem::elastic {
namespace {

// Longest text of an address (job/learning.cc makes none that is longer).
constexpr std::size_t kMostAddress = 4096;

}  // namespace

bool ElasticAgent::keeps_back() {
  if (begun_ || !links_ || count(State::kReady) == 0) return false;
  return joining_.keeps_back(now(), *membership_);
}

void ElasticAgent::obey(const membership::Learn& order) {
  if (count(State::kReady) == 0) return;
  const auto source = joining_.begin(now(), membership_->options().self.id, order.view);
  if (!source) return;
  learner_ = choose(1).front();  // the worker that leads this node in its first view
  learns_since_ = Clock::now();
  options_.log(
      fmt::format("worker {} takes the job's state from the node at {}, while the others train",
                  learner_, source->address));
  send_to_worker(learner_, {.kind = PacketKind::kLearn, .view = ++transfers_});
}

void ElasticAgent::handle_learner(int worker, const Packet& packet) {
  if (!joining_.under_way() || worker != learner_ || packet.view != transfers_) return;
  if (packet.kind == PacketKind::kLearnsAt) {
    if (packet.text.size() > kMostAddress)
      raise<CommError>("an address of {} bytes", packet.text.size());
    const membership::AppMessage app_message{membership::AppMessageKind::kLearner, {}, packet.text};
    return links_->send(joining_.source(), app_message);
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
      return report_transfer_failed(packet.text);
    case Learned::kNever:
      joining_.end();
      return report_transfer_failed(packet.text);
    default:
      raise<CommError>("learning ended in a way that there is not ({})", packet.first);
  }
  report_workers();
}

void ElasticAgent::watch_learner() {
  if (!joining_.wake(now(), *membership_)) return;
  report_transfer_failed("the job's state has not come from the node at " +
                         joining_.source().address);
}

void ElasticAgent::report_transfer_failed(const std::string& why) {
  options_.log(
      fmt::format("{}: {}", why,
                  joining_.is_over() ? "it comes inside the first view" : "another node is asked"));
  if (joining_.is_over()) report_workers();
}

void ElasticAgent::report_workers() {
  recount();
  obey();
}

// By the worker that leads this node.
void ElasticAgent::serve_state(const std::string& endpoint) {
  if (endpoint.size() > kMostAddress) return;
  if (keeping_worker_ >= 0)
    send_to_worker(keeping_worker_, {.kind = PacketKind::kServeState, .text = endpoint});
}

}  // namespace tandem::elastic
