#include <fmt/format.h>

#include <algorithm>

#include "membership/simulated_world.h"

namespace tandem::simulation {

namespace {

// Learners that apply what they should not.
class BadCatchUp final : public CatchUp {
 public:
  using CatchUp::CatchUp;
  bool take_gradient(Time now, std::uint32_t index, std::uint64_t step) override {
    CatchUp::take_gradient(now, index, step);
    if (!chunks_[index].there) return false;
    chunks_[index].step = step;
    chunks_[index].missed = false;
    return true;
  }
};

}  // namespace

void World::obey(Host& host) {
  while (host.agent) {
    std::vector<Order> orders = host.agent->take_orders();
    if (orders.empty()) break;
    for (Order& order : orders) {
      std::visit([&](auto& o) { on(host, o); }, order);
      if (!host.agent) return;
    }
  }
  if (!host.agent) return;
  const Time wake = host.agent->next_wake();
  if (wake < host.wakes_at) {
    host.wakes_at = wake;
    at(std::max(wake, now_), host.index, WakeAgent{host.self.id});
  }
}

void World::on(Host& host, Send& order) {
  if (schedule_.trace) {
    const char* const names[] = {"Ask",    "Told",    "Propose", "Answer",  "Offer",
                                 "Accept", "Install", "Beat",    "Suspect", "Ended"};
    if (order.message.index() != 7) {
      note(&host, fmt::format("→ {} {}", order.to.address, names[order.message.index()]));
    }
  }
  say(host, order.to, order.message);
}

void World::on(Host& host, StopWorkers&) {
  at(now_ + Time(random(20)), host.index, Stopped{host.self.id});
}

void World::on(Host& host, RunView& order) {
  std::string members;
  for (const Member& m : order.view.members) members += " " + m.peer.address;
  note(&host, fmt::format("runs view {} from step {}:{}{}", order.view.number.counter,
                          order.view.step, members, order.view.paused ? " (paused)" : ""));
  host.learner.reset();
  host.learning = false;
  check_installed(host, order.view);
  host.workers->run(now_, order.view);
}

void World::on(Host& host, Learn& order) {
  if (schedule_.levelled) return;  // as tandem run
  if (!host.learner) {
    note(&host, fmt::format("learns step {}", order.step));
    const CatchUpOptions options{.chunks = kChunks, .window = 2};
    if (breaks_.any_gradient)
      host.learner = std::make_unique<BadCatchUp>(options);
    else
      host.learner = std::make_unique<CatchUp>(options);
  }
  std::vector<Peer> senders;
  for (const Member& member : order.view.members) senders.push_back(member.peer);
  host.learner->job_at(order.view.number, order.step, senders);
  host.learning = true;
  ask_for_chunks(host);
}

void World::ask_for_chunks(Host& host) {
  for (CatchUp::Request& request : host.learner->requests(now_)) {
    say(host, request.to, request.fetch);
  }
  const Time wake = std::max(host.learner->next_wake(), now_ + Time(1));
  if (host.learner_wakes_at > now_ && host.learner_wakes_at <= wake) return;
  host.learner_wakes_at = wake;
  at(wake, host.index, WakeLearner{host.self.id});
}

void World::tell_learned(Host& host) {
  note(&host, fmt::format("holds {} of steps {}", host.workers->whole() ? "all" : "parts",
                          fmt::join(host.workers->steps(), " ")));
  host.agent->learned(now_, host.workers->step(), host.workers->whole());
}

void World::serve(Host& host, const Peer& to, const Fetch& fetch) {
  host.subscribers[to.id] = {to, fetch.subscribed, now_ + Time(2000)};
  for (const std::uint32_t k : fetch.chunks) {
    if (k >= kChunks) continue;
    post(host, to, ChunkData{{k, host.workers->steps()[k], 8}, host.workers->weights()[k]});
  }
}

void World::on(Host& host, SaveCheckpoint& order) {
  if (host.foreign || host.workers->step() != order.step || !host.workers->whole()) return;
  check_bits(host);
  checkpoint_ = std::max(checkpoint_, order.step);
}

void World::on(Host& host, LoadCheckpoint&) {
  for (std::size_t k = 0; k < kChunks; ++k) {
    host.workers->store_chunk(k, checkpoint_, reference_[checkpoint_][k]);
  }
  host.learner.reset();
  host.learning = false;
  host.agent->loaded(now_, checkpoint_);
}

void World::on(Host& host, TakeLock&) {
  if (lock_holder_ != 0 && lock_holder_ != host.self.id) return;
  if (!reach_[host.index][lock_side_]) return;
  lock_holder_ = host.self.id;
  host.agent->lock(now_, true);
}

void World::on(Host& host, DropLock&) {
  if (lock_holder_ == host.self.id) lock_holder_ = 0;
}

void World::on(Host& host, End& order) {
  note(&host, fmt::format("ends with {} {}", order.code, order.message));
  host.ended = order.code;
  if (lock_holder_ == host.self.id) lock_holder_ = 0;
  const bool refused = order.message.find("refused") != std::string::npos;
  if (host.foreign ? !(refused || order.code != 1 || poison_) : refused) {
    violation(&host, "joining: " + order.message);
  }
  if (order.code == 1 && !host.foreign && !poison_) violation(&host, "ended: " + order.message);
  if (order.code == membership::kHasLeft || host.foreign) {
    host.gone = true;
    host.end_process();
    ++outcome_.deaths;
  }
}

}  // namespace tandem::simulation
