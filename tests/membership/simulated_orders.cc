#include <fmt/format.h>

#include <algorithm>

#include "membership/simulated_world.h"

namespace tandem::simulation {

void World::obey(Host& host) {
  while (host.membership) {
    std::vector<Order> orders = host.membership->take_orders();
    if (orders.empty()) break;
    for (Order& order : orders) {
      std::visit([&](auto& o) { on(host, o); }, order);
      if (!host.membership) return;
    }
  }
  if (!host.membership) return;
  const Time wake = host.membership->next_wake();
  if (wake < host.wakes_at) {
    host.wakes_at = wake;
    at(std::max(wake, now_), host.index, WakeAgent{host.self.id});
  }
}

void World::on(Host& host, Send& order) {
  if (schedule_.trace) {
    const char* const names[] = {"Ask",    "Told",    "Propose", "Answer",  "Offer",
                                 "Accept", "Install", "Beat",    "Suspect", "Ended"};
    if (order.message->index() != 7) {
      note(&host, fmt::format("→ {} {}", order.to.address, names[order.message->index()]));
    }
  }
  send(host, order.to, *order.message);
}

void World::on(Host& host, StopWorkers&) {
  at(now_ + Time(random(20)), host.index, Stopped{host.self.id});
}

void World::on(Host& host, RunView& order) {
  std::string members;
  for (const Member& m : order.view.members) members += " " + m.peer.address;
  note(&host, fmt::format("runs view {} from step {}:{}{}", order.view.number.counter,
                          order.view.step, members, order.view.paused ? " (paused)" : ""));
  host.begun = true;
  check_installed(host, order.view);
  host.workers->run(now_, order.view);
}

void World::on(Host& host, SaveCheckpoint& order) {
  if (!host.foreign && host.workers->step() == order.step) check_bits(host);
}

void World::on(Host& host, Refused& order) {
  note(&host, fmt::format("refuses {}: {}", order.name, order.reason));
  const bool right = std::any_of(hosts_.begin(), hosts_.end(), [&](const auto& other) {
    return other->foreign && order.name == fmt::format("n{}", other->index);
  });
  if (host.foreign || !right) violation(&host, "joining: refuses " + order.name);
}

void World::on(Host& host, TakeLock&) {
  if (lock_holder_ != 0 && lock_holder_ != host.self.id) return;
  if (!reach_[host.index][lock_side_]) return;
  lock_holder_ = host.self.id;
  host.membership->lock(now_, true);
}

void World::on(Host& host, DropLock&) {
  if (lock_holder_ == host.self.id) lock_holder_ = 0;
}

void World::on(Host& host, End& order) {
  note(&host, fmt::format("ends with {} {}", order.code, order.message));
  host.ended = order.code;
  if (lock_holder_ == host.self.id) lock_holder_ = 0;
  const bool refused = order.message.find("refused") != std::string::npos;
  const bool gives_reason = order.message.find("files: right on") != std::string::npos;
  if (host.foreign ? !((refused && gives_reason) || order.code != 1 || poison_) : refused) {
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
