#include "tandem/elastic/agent/progress_watchdog.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem::elastic {
namespace {

using std::chrono::milliseconds;

constexpr int kMostHangs = 2;
constexpr milliseconds kLookEvery{1000};

}  // namespace

ProgressWatchdog::ProgressWatchdog(std::span<WorkerSlot> slots, const ElasticAgent& node,
                                   milliseconds limit, launch::Log log)
    : slots_(slots), elastic_agent_(node), limit_(limit), log_(std::move(log)) {}

bool ProgressWatchdog::prepares(const WorkerSlot& slot) const {
  return slot.process && !slot.stuck &&
         elastic_agent_.prepares(static_cast<int>(&slot - slots_.data()));
}

void ProgressWatchdog::add_to(net::EventLoop& loop) const {
  const bool any = std::ranges::any_of(slots_, [this](const auto& slot) { return prepares(slot); });
  if (any) loop.within(std::min(kLookEvery, limit_ / 2));
}

ProgressWatchdog::Clock::duration ProgressWatchdog::still_for(WorkerSlot& slot) const {
  const auto ticks = prepares(slot) ? processor_ticks(slot.process->pid()) : std::nullopt;
  if (ticks) return slot.idle_time.look(*ticks, Clock::now());
  slot.idle_time = {};
  return Clock::duration::zero();
}

// The reason to kill the worker, or nothing.
std::string ProgressWatchdog::hangs(WorkerSlot& slot) const {
  const double limit = std::chrono::duration<double>(limit_).count();
  const Clock::duration still = still_for(slot);
  if (still >= limit_)
    return fmt::format("has used no processor for {:.0f} s before it was ready", limit);
  const auto worker = static_cast<int>(&slot - slots_.data());
  if (still < limit_ / 2 && prepares(slot) && elastic_agent_.decides_for(worker) >= limit_)
    return fmt::format("has been deciding for {:.0f} s where the job begins", limit);
  return "";
}

void ProgressWatchdog::kill(WorkerSlot& slot, const std::string& why) const {
  log_(
      fmt::format("worker {} (pid {}) {}: it is killed. It was stopped or is stuck, or a file "
                  "system keeps it waiting: look at those of --output_dir, the model and the data "
                  "(--rdzv-conf join_timeout=SECONDS gives half of these seconds)",
                  &slot - slots_.data(), slot.process->pid(), why));
  ++slot.hangs;
  slot.kill_stuck();
}

void ProgressWatchdog::look() {
  bool any = false;
  for (WorkerSlot& slot : slots_) {
    const std::string why = hangs(slot);
    if (why.empty()) continue;
    any = true;
    kill(slot, why);
  }
  if (any && !elastic_agent_.begun()) ++hangs_before_;
}

bool ProgressWatchdog::is_again(const WorkerSlot& slot) const {
  return slot.hangs >= kMostHangs || (!elastic_agent_.begun() && hangs_before_ >= kMostHangs);
}

}  // namespace tandem::elastic
