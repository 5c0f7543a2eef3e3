// The state of one worker at the agent of an elastic job, over all of its processes.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>

#include "tandem/elastic/agent/idle_time.h"
#include "tandem/launch/process/failure.h"
#include "tandem/launch/process/worker.h"
#include "tandem/net/socket.h"

namespace tandem::elastic {

struct WorkerSlot {
  using Clock = std::chrono::steady_clock;

  std::optional<launch::Worker> process;
  net::FileDescriptor out;  // its stdout; none: the console
  std::filesystem::path error_file;
  bool stuck = false;    // it was killed because it did not follow an order
  bool drained = false;  // a user requested that the job continue without it
  int false_starts = 0;  // consecutive ends of its processes without a contribution to a step
  IdleTime idle_time;
  int hangs = 0;                 // hangs of its processes, before they were ready
  std::uint64_t death_step = 0;  // the last applied step at its last death
  int deaths = 0;                // since then
  Clock::time_point start_at = Clock::time_point::max();  // next start

  bool start_is_due() const { return start_at != Clock::time_point::max(); }
  bool takes_part() const { return !drained && (process || start_is_due()); }

  // The worker died while `step` was the last applied one. Returns the deaths since any node
  // applied a step.
  int count_death(std::uint64_t step) {
    if (death_step != step) deaths = 0;
    death_step = step;
    return ++deaths;
  }

  // Restarts at once; before a contribution to a step, after a pause that doubles each time.
  void start_again() {
    constexpr std::chrono::milliseconds kFirstPause{100};
    const auto pause =
        false_starts == 0 ? kFirstPause * 0 : kFirstPause * (1 << (false_starts - 1));
    start_at = Clock::now() + pause;
  }

  std::string what_happened(const launch::Failure& failure) const {
    if (!stuck) return describe(failure);
    return fmt::format("worker {} was stopped or stuck", failure.local_rank);
  }

  void kill_stuck() {
    if (!process) return;
    stuck = true;
    process->signal(SIGKILL);
  }

  // The job continues without it.
  void drain() {
    drained = true;
    start_at = Clock::time_point::max();
    if (process) process->signal(SIGKILL);
  }
};

inline int num_running(std::span<const WorkerSlot> slots) {
  return static_cast<int>(
      std::ranges::count_if(slots, [](const auto& slot) { return slot.process.has_value(); }));
}

inline int num_taking_part(std::span<const WorkerSlot> slots) {
  return static_cast<int>(
      std::ranges::count_if(slots, [](const auto& slot) { return slot.takes_part(); }));
}

inline bool is_any_start_due(std::span<const WorkerSlot> slots) {
  return std::ranges::any_of(slots, [](const auto& slot) { return slot.start_is_due(); });
}

inline void signal_all(std::span<WorkerSlot> slots, int number) {
  for (WorkerSlot& slot : slots) {
    if (slot.process) slot.process->signal(number);
  }
}

}  // namespace tandem::elastic
