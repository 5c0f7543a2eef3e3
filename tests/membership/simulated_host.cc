#include <algorithm>

#include "membership/simulated_world.h"

namespace tandem::simulation {

void Host::send(const Peer& to, const Frame& frame) { world.post(*this, to, frame); }
void Host::wake_after(Time delay) { world.at(world.now_ + delay, index, WakeWorkers{self.id}); }
Time Host::random_delay(int least, int most) {
  return Time(least + static_cast<int>(world.random(static_cast<std::uint64_t>(most - least + 1))));
}
bool Host::poisoned(std::uint64_t step, std::uint32_t begin, std::uint32_t) {
  return world.poison_ == step && begin == 0;
}
void Host::worker_failed(std::uint64_t step) {
  agent->worker_fault(world.now_, step, "signal 11");
  agent->workers_changed(world.now_, 0);
  world.at(world.now_ + Time(50 + world.random(400)), index, WorkersBack{self.id});
}
void Host::applied(ViewNumber view, std::uint64_t step, bool boundary) {
  world.outcome_.last_step = std::max(world.outcome_.last_step, step);
  world.log_step(step, workers->weights()[0]);
  if (workers->gradient()) {
    for (const auto& [id, subscriber] : subscribers) {
      if (subscriber.until <= world.now_) continue;
      for (const std::uint32_t k : subscriber.chunks) {
        if (k >= kChunks) continue;
        world.post(*this, subscriber.peer, GradientData{{k, step, 8}, (*workers->gradient())[k]});
      }
    }
  }
  agent->applied(world.now_, view, step, boundary);
}
void Host::step_failed(ViewNumber view, const std::vector<NodeId>& silent) {
  agent->step_failed(world.now_, view, {}, silent);
}
void Host::violation(const std::string& what) { world.violation(this, what); }

void Host::end_process() {
  agent.reset();
  workers.reset();
  learner.reset();
  learning = false;
}

}  // namespace tandem::simulation
