// Nodes that join learn the state while the job trains, as those of `tandem run` do.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "membership/simulated_world.h"

namespace tandem::simulation {
namespace {

constexpr Time kMeeting{1500};
constexpr Time kReset{300};  // until an end of a stream notices that the other one is gone

// Takes gradients of any step.
class TakesAny final : public elastic::LearnerLedger {
 public:
  using LearnerLedger::LearnerLedger;
  bool takes_gradient(std::size_t chunk, std::uint64_t) const override {
    return next_missing().value_or(size()) > chunk;
  }
  void settled(std::uint64_t) override {}
};

}  // namespace

Host::Ledger World::new_ledger() const {
  if (breaks_.any_gradient) return std::make_unique<TakesAny>(kChunks);
  return std::make_unique<elastic::LearnerLedger>(kChunks);
}

// ---- the learner ----

// As elastic::Node does.
void World::report_workers(Host& host) {
  if (host.ready && !host.begun && host.joining->keeps_back(now_, *host.membership)) return;
  host.membership->workers_changed(now_, host.ready ? 1 : 0);
  if (host.ready && !host.begun) host.membership->nobody_at(now_, "");
}

void World::on(Host& host, Learn& order) {
  if (!host.ready || host.begun) return;
  const std::optional<Peer> source = host.joining->begin(now_, host.self.id, order.view);
  if (!source) return;
  note(&host, fmt::format("learns step {} from {}", order.step, source->address));
  host.learner = {*source, ++streams_, 0, new_ledger(), {}};
  send(host, *source, AppMessage{AppMessageKind::kLearner, {streams_, 0}, ""});
  at(now_ + kMeeting, host.index, NobodyServesState{host.self.id, streams_});
}

void World::happen(Host& host, NobodyServesState& late) {
  if (!host.membership || late.id != host.self.id || !host.learner) return;
  if (host.learner->stream == late.stream && host.learner->received == 0) fail_to_learn(host);
}

void World::fail_to_learn(Host& host) {
  note(&host, "learns no more");
  host.learner.reset();
  if (!host.joining->under_way()) return;
  host.joining->failed(now_);
  if (host.joining->is_over()) report_workers(host);
}

void World::take(Host& host, const Peer& from, const TransferMessage& transfer) {
  if (!host.learner || host.learner->stream != transfer.stream) {
    if (Host& source = *hosts_[static_cast<std::size_t>(from.address[1] - '0')]; source.membership)
      at(now_ + kReset, source.index, StreamEnds{from.id, transfer.stream});
    return;
  }
  Host::Learner& learner = *host.learner;
  const bool right =
      !transfer.gradient || learner.ledger->takes_gradient(transfer.chunk, transfer.step);
  if (transfer.number != ++learner.received || !right) return fail_to_learn(host);
  std::uint64_t& value = learner.values[transfer.chunk];
  value = transfer.gradient ? updated(value, transfer.value, transfer.step) : transfer.value;
  learner.ledger->put(transfer.chunk, transfer.step);
  if (!learner.ledger->whole_at() || !host.joining->under_way()) return;
  note(&host, fmt::format("is level at step {}", transfer.step));
  host.joining->end();
  report_workers(host);
}

// ---- the source ----

void World::begin_to_serve_state(Host& host, const Peer& learner, std::uint64_t stream) {
  const bool known = std::any_of(host.pupils.begin(), host.pupils.end(),
                                 [&](const Host::Pupil& pupil) { return pupil.stream == stream; });
  if (host.ended || !host.ready || known) return;
  host.pupils.push_back({learner, stream, 0, new_ledger(), {}});
  if (!std::exchange(host.teaches, true)) at(now_ + Time(1), host.index, ServeState{host.self.id});
}

// A chunk to each of those that miss one.
void World::happen(Host& host, ServeState& serve_state) {
  if (!host.membership || serve_state.id != host.self.id) return;
  host.teaches = !host.pupils.empty();
  if (!host.teaches) return;
  for (Host::Pupil& pupil : host.pupils) {
    const auto chunk = pupil.ledger->next_missing();
    if (!chunk || !host.workers->readable()) continue;
    const std::uint64_t step = host.workers->step();
    pupil.ledger->put(*chunk, step);
    send_transfer(host, pupil,
                  {.chunk = *chunk, .step = step, .value = host.workers->weights()[*chunk]});
  }
  at(now_ + Time(1 + random(20)), host.index, ServeState{host.self.id});
}

// In order, and nothing is lost but the connection.
void World::send_transfer(Host& host, Host::Pupil& pupil, TransferMessage transfer) {
  transfer.stream = pupil.stream;
  transfer.number = ++pupil.sent;
  const auto to = static_cast<std::size_t>(pupil.peer.address[1] - '0');
  if (!reach_[host.index][to]) {
    at(now_ + kReset, host.index, StreamEnds{host.self.id, pupil.stream});
    return at(now_ + kReset, to, StreamEnds{pupil.peer.id, pupil.stream});
  }
  pupil.last = std::max(pupil.last, now_ + delay());
  at(pupil.last, to, Packet{host.self, pupil.peer, transfer});
}

void World::happen(Host& host, StreamEnds& end) {
  if (host.membership && end.id == host.self.id) end_stream(host, end.stream);
}

void World::end_stream(Host& host, std::uint64_t stream) {
  std::erase_if(host.pupils, [&](const Host::Pupil& pupil) { return pupil.stream == stream; });
  if (host.learner && host.learner->stream == stream) fail_to_learn(host);
}

// Its workers are gone.
void World::end_transfers(Host& host) {
  for (const Host::Pupil& pupil : std::exchange(host.pupils, {})) {
    at(now_ + kReset, static_cast<std::size_t>(pupil.peer.address[1] - '0'),
       StreamEnds{pupil.peer.id, pupil.stream});
  }
  host.learner.reset();
  if (host.joining) host.joining->worker_lost();
}

}  // namespace tandem::simulation
