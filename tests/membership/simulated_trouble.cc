#include <fmt/format.h>

#include <algorithm>

#include "membership/simulated_world.h"

namespace tandem::simulation {

void World::die(Host& host, bool power_off) {
  if (!host.membership) return;
  note(&host, power_off ? "loses power" : "is killed");
  const NodeId id = host.self.id;
  host.end_process();
  host.power = !power_off;
  ++outcome_.deaths;
  if (power_off) return;
  for (const auto& other : hosts_) {
    if (other->membership && reach_[host.index][other->index] && chance(0.9)) {
      at(now_ + Time(random(50)), other->index, DeathReport{other->self.id, id});
    }
  }
}

void World::cut() {
  std::vector<bool> side;
  for (std::size_t i = 0; i < hosts_.size(); ++i) side.push_back(chance(0.5));
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    for (std::size_t j = 0; j < hosts_.size(); ++j) reach_[i][j] = side[i] == side[j];
  }
  note(nullptr, "the network is cut");
}

bool World::can_act(const Host& host) const {
  return host.membership && !host.ended && now_ >= host.paused_until;
}

void World::cut_one_link(Host& host) {
  const std::size_t other = random(hosts_.size());
  if (other != host.index) reach_[host.index][other] = 0;
  note(&host, fmt::format("does not reach n{}", other));
}

void World::join_nets() {
  for (auto& row : reach_) std::fill(row.begin(), row.end(), 1);
}

void World::pause(Host& host) {
  host.paused_until = now_ + Time(random(2) == 0 ? random(200) : random(4000));
  note(&host, fmt::format("is stopped until {}", host.paused_until.count()));
}

void World::lose_workers(Host& host) {
  if (!can_act(host)) return;
  note(&host, "loses its workers");
  host.workers->break_down();
  host.ready = false;
  end_transfers(host);
  host.membership->workers_changed(now_, 0);
  at(now_ + Time(20 + random(1000)), host.index, WorkersBack{host.self.id});
  obey(host);
}

void World::suspect_falsely(Host& host) {
  if (!can_act(host)) return;
  note(&host, "suspects the earlier members");
  std::vector<NodeId> silent;
  for (const Member& member : host.membership->view().members) {
    if (member.peer.id == host.self.id) break;
    silent.push_back(member.peer.id);
  }
  host.membership->step_failed(now_, host.membership->view().number, {}, silent);
  obey(host);
}

void World::leave(Host& host) {
  if (!can_act(host) || host.index == 0) return;
  const auto stays = [](const auto& h) { return !h->foreign && !h->gone && !h->leaving; };
  if (std::count_if(hosts_.begin(), hosts_.end(), stays) <= static_cast<int>(bounds_.min_nodes)) {
    return;
  }
  host.leaving = true;
  note(&host, "is asked to leave");
  host.membership->leave(now_);
  obey(host);
}

std::vector<Trouble> World::kinds_of_trouble() const {
  std::vector<Trouble> kinds{Trouble::kPause, Trouble::kWorkerDies};
  if (schedule_.deaths) {
    kinds.insert(kinds.end(),
                 {Trouble::kKill, Trouble::kKill, Trouble::kPowerOff, Trouble::kLeave});
  }
  if (schedule_.partitions) {
    kinds.insert(kinds.end(), {Trouble::kCut, Trouble::kCutOneLink, Trouble::kJoinNets});
  }
  if (schedule_.cuts) {
    kinds.insert(kinds.end(), 6, Trouble::kCut);
    kinds.insert(kinds.end(), 6, Trouble::kJoinNets);
  }
  if (schedule_.alarms) kinds.insert(kinds.end(), 12, Trouble::kFalseAlarm);
  return kinds;
}

void World::trouble() {
  const std::vector<Trouble> kinds = kinds_of_trouble();
  Host& host = *hosts_[random(hosts_.size())];
  switch (kinds[random(kinds.size())]) {
    case Trouble::kKill:
    case Trouble::kPowerOff:
      die(host, chance(0.4));
      if (chance(0.6)) at(now_ + Time(20 + random(3000)), host.index, Start{});
      return;
    case Trouble::kCut:
      return cut();
    case Trouble::kCutOneLink:
      return cut_one_link(host);
    case Trouble::kJoinNets:
      join_nets();
      return note(nullptr, "the network is whole");
    case Trouble::kPause:
      return pause(host);
    case Trouble::kWorkerDies:
      return lose_workers(host);
    case Trouble::kFalseAlarm:
      return suspect_falsely(host);
    case Trouble::kLeave:
      return leave(host);
  }
}

void World::heal() {
  healed_ = true;
  loss_ = 0;
  longest_delay_ = std::min(longest_delay_, 30);
  note(nullptr, "all is healed");
  join_nets();
  for (const auto& host : hosts_) {
    if (!host->membership) at(now_ + Time(random(500)), host->index, Start{});
  }
}

}  // namespace tandem::simulation
