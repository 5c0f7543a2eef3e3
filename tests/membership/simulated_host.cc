#include <algorithm>

#include "membership/simulated_world.h"

namespace tandem::simulation {
namespace {

constexpr double kNoRoom = 0.02;  // for a gradient that would have to wait

}  // namespace

void Host::send(const Peer& to, const Frame& frame) { world.post(*this, to, frame); }
void Host::wake_after(Time delay) { world.at(world.now_ + delay, index, WakeWorkers{self.id}); }
Time Host::random_delay(int least, int most) {
  return Time(least + static_cast<int>(world.random(static_cast<std::uint64_t>(most - least + 1))));
}
bool Host::poisoned(std::uint64_t step, std::uint32_t begin, std::uint32_t) {
  return world.poison_ == step && begin == 0;
}
void Host::worker_failed(std::uint64_t step) {
  membership->worker_fault(world.now_, step, "signal 11");
  ready = false;
  world.end_transfers(*this);
  membership->workers_changed(world.now_, 0);
  world.at(world.now_ + Time(50 + world.random(400)), index, WorkersBack{self.id});
}
void Host::applied(ViewNumber view, std::uint64_t step, bool reconfiguration_point) {
  world.outcome_.last_step = std::max(world.outcome_.last_step, step);
  world.log_step(step, workers->weights()[0]);
  membership->applied(world.now_, view, step, reconfiguration_point);
}
void Host::step_failed(ViewNumber view, const std::vector<NodeId>& silent) {
  membership->step_failed(world.now_, view, {}, silent);
}
void Host::violation(const std::string& what) { world.violation(this, what); }

void Host::reduced(std::uint64_t step, const Values& gradient) {
  for (Pupil& pupil : pupils) {
    for (std::size_t k = 0; k < kChunks; ++k) {
      if (!pupil.ledger->takes_gradient(k, step)) continue;
      if (world.chance(kNoRoom)) {
        pupil.ledger->drop(k);
        continue;
      }
      pupil.ledger->put_gradient(k, step);
      world.send_transfer(*this, pupil,
                          {.gradient = true, .chunk = k, .step = step, .value = gradient[k]});
    }
  }
}
void Host::settled(std::uint64_t step) {
  for (Pupil& pupil : pupils) pupil.ledger->settled(step);
  learner.reset();  // the view has what it needs
}
const Values* Host::learned(std::uint64_t step) {
  return learner && learner->ledger->whole_at() == step ? &learner->values : nullptr;
}

void Host::learned_counts() { ++world.outcome_.learned; }

// Peers at both ends of its transfers see that the connection has ended.
void Host::end_process() {
  world.end_transfers(*this);
  membership.reset();
  workers.reset();
  joining.reset();
}

}  // namespace tandem::simulation
