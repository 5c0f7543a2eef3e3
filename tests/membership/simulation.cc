#include "membership/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "membership/simulated_world.h"

namespace tandem::simulation {

namespace {

constexpr Time kHealAt{9000};
constexpr Time kBound{39000};  // by then all must have ended
constexpr std::uint64_t kMostEvents = 200'000;

}  // namespace

World::World(const Schedule& schedule, const Rules& rules, const Breaks& breaks)
    : schedule_(schedule), rules_(rules), breaks_(breaks), random_(mix(schedule.seed + 1)) {
  const std::uint32_t nodes = schedule.nodes.value_or(static_cast<std::uint32_t>(1 + random(5)));
  bounds_.min_nodes =
      schedule.min_nodes.value_or(static_cast<std::uint32_t>(1 + random(std::max(1u, nodes / 2))));
  bounds_.max_nodes = chance(0.8) ? nodes : std::max(bounds_.min_nodes, nodes - 1);
  steps_ = 5 + random(40);
  reference_ = reference(steps_);
  longest_delay_ = std::array{1, 3, 30, 300}[random(4)];
  if (schedule.losses) {
    loss_ = std::array{0.0, 0.0, 0.02, 0.2}[random(4)];
    twice_ = std::array{0.0, 0.05, 0.3}[random(3)];
  }
  if (schedule.poison && chance(0.05)) poison_ = 1 + random(steps_);
  lock_ = schedule.lock && chance(0.1);
  lock_side_ = random(nodes);
  reach_.assign(nodes, std::vector<char>(nodes, 1));
  for (std::size_t i = 0; i < nodes; ++i) {
    hosts_.push_back(std::make_unique<Host>(*this, i));
    hosts_[i]->foreign = schedule.foreigners && i > 0 && i >= bounds_.min_nodes && chance(0.05);
    const bool late = i >= bounds_.min_nodes && chance(0.4);
    at(now_ + Time(late ? random(3000) : random(200)), i, Start{});
  }
  const std::uint64_t number = random(9);
  for (std::uint64_t i = 0; i < number; ++i) {
    if (chance(0.7))
      troubles_.push_back(random(1500));
    else
      timed_troubles_.push_back(Time(random(5000)));
  }
  for (int i = 0; (schedule.alarms || schedule.cuts) && i < 20; ++i)
    troubles_.push_back(random(1500));
  std::sort(troubles_.begin(), troubles_.end());
  std::sort(timed_troubles_.begin(), timed_troubles_.end());
  if (lock_) at(now_ + Time(100), lock_side_, LockCheck{});
}

Time World::delay() {
  const Time most{chance(0.05) ? 10 * longest_delay_ : longest_delay_};
  return Time(random(static_cast<std::uint64_t>(most.count()) + 1));
}

void World::at(Time when, std::size_t host, Happening what) {
  std::size_t slot = slots_.size();
  if (free_slots_.empty()) {
    slots_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  slots_[slot] = {when, ++order_, host, std::move(what)};
  queue_.push({{when, order_}, slot});
}

void World::note(const Host* host, const std::string& what) {
  if (!schedule_.trace) return;
  outcome_.trace.push_back(fmt::format(
      "{:6} {} {}", now_.count(),
      host ? host->self.address + "/" + std::to_string(host->self.id % 1000) : std::string("world"),
      what));
}

void World::violation(const Host* host, const std::string& what) {
  if (!outcome_.violation.empty()) return;
  outcome_.violation =
      fmt::format("{} (host {}, {} ms, event {})", what,
                  host ? host->self.address : std::string("none"), now_.count(), outcome_.events);
  note(host, "VIOLATION " + what);
}

std::string World::waits() const {
  std::string all;
  for (const auto& host : hosts_) {
    if (!host->membership) continue;
    all += fmt::format("; {}: {}", host->self.address,
                       host->ended ? "has ended" : host->membership->waiting_for());
  }
  return all;
}

Outcome World::run() {
  while (outcome_.violation.empty() && !finished()) {
    if (!troubles_.empty() && outcome_.events >= troubles_.front() && !healed_) {
      troubles_.erase(troubles_.begin());
      trouble();
    }
    const Time next = queue_.empty() ? kNever : queue_.top().first.first;
    if (!timed_troubles_.empty() && next >= timed_troubles_.front() && !healed_) {
      now_ = std::max(now_, timed_troubles_.front());
      timed_troubles_.erase(timed_troubles_.begin());
      trouble();
      continue;
    }
    if (!healed_ && next >= kHealAt) {
      now_ = std::max(now_, kHealAt);
      heal();
      continue;
    }
    if (next > kBound || outcome_.events > kMostEvents) {
      violation(nullptr, "progress: not all have ended" + waits());
      break;
    }
    step();
  }
  outcome_.ended_ms = now_.count();
  outcome_.healed_ms = kHealAt.count();
  outcome_.views = installed_.size();
  return outcome_;
}

void World::step() {
  const std::size_t slot = queue_.top().second;
  queue_.pop();
  Event event = std::move(slots_[slot]);
  free_slots_.push_back(slot);
  now_ = std::max(now_, event.at);
  ++outcome_.events;
  Host& host = *hosts_[event.host];
  const bool lock_service = std::holds_alternative<LockCheck>(event.what);
  if (now_ < host.paused_until && !lock_service) {
    at(host.paused_until + Time(random(3)), event.host, std::move(event.what));
    return;
  }
  std::visit([&](auto& what) { happen(host, what); }, event.what);
  obey(host);
  check_after(host);
}

Outcome run(const Schedule& schedule, const membership::Rules& rules, const Breaks& breaks) {
  return World(schedule, rules, breaks).run();
}

Outcome run(const Schedule& schedule) { return run(schedule, membership::Rules()); }

}  // namespace tandem::simulation
