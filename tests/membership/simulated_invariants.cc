#include <fmt/format.h>

#include <algorithm>

#include "membership/simulated_world.h"

namespace tandem::simulation {

void World::log_step(std::uint64_t step, std::uint64_t loss) {
  auto& [logged, entries] = log_[step];
  if (entries == 0 || breaks_.write_again) ++entries;
  if (entries == 1) logged = loss;
  if (entries > 1) violation(nullptr, "log: a step was written twice");
}

void World::check_installed(const Host& host, const View& view) {
  const auto [it, first] = installed_.emplace(view.number, view);
  if (!first && it->second != view) violation(&host, "one view per number: two differ");
  const Member* own = view.find(host.self.id);
  if (!own) return violation(&host, "one view per number: runs a view that it is not in");
  if (!host.workers->whole() || host.workers->step() != own->step) {
    violation(&host, "nothing lost: does not hold what it answered");
  }
  if (view.step < own->step) violation(&host, "nothing lost: the view starts below a member");
  if (!view.paused && view.members.size() < bounds_.min_nodes) {
    violation(&host, "min: too few nodes compute");
  }
  if (!first || outcome_.deaths > 0 || lock_) return;
  const auto follows = [](const View& later, ViewNumber number) {
    return std::find(later.after.begin(), later.after.end(), number) != later.after.end();
  };
  for (const auto& [number, other] : installed_) {
    if (number == view.number) continue;
    const View& early = number < view.number ? other : view;
    const View& late = number < view.number ? view : other;
    const bool share = std::any_of(early.after.begin(), early.after.end(),
                                   [&](ViewNumber n) { return follows(late, n); });
    if (share && !follows(late, early.number)) {
      violation(&host, fmt::format("one view per number: views {} and {} follow the same one",
                                   early.number.counter, late.number.counter));
    }
  }
}

void World::check_bits(const Host& host) {
  if (host.foreign) return;
  const auto& at = host.workers->steps();
  for (std::size_t k = 0; k < kChunks; ++k) {
    if (at[k] > steps_ || host.workers->weights()[k] != reference_[at[k]][k]) {
      return violation(&host,
                       fmt::format("bits: chunk {} is not the reference's of step {}", k, at[k]));
    }
  }
  if (!host.learner) return;
  const auto step = host.learner->ledger->whole_at();
  if (step && (*step > steps_ || host.learner->values != reference_[*step]))
    violation(&host, fmt::format("learned: what it has is not the reference's of step {}", *step));
}

void World::check_after(const Host& host) {
  if (!host.membership) return;
  check_bits(host);
  if (!host.ended && host.membership->waiting_for().empty()) {
    violation(&host, "named waits: it does not name what it waits for");
  }
}

bool World::finished() const {
  bool anybody = false;
  for (const auto& host : hosts_) {
    if (host->gone) continue;
    if (!host->membership || !host->ended) return false;
    anybody = true;
  }
  return anybody || healed_;
}

}  // namespace tandem::simulation
