// Detects workers that hang during their preparation. The time to read model and data is unlimited.
// But a worker that uses no processor meanwhile makes no progress, and before the job has begun all
// others wait for it. The worker that decides where the job begins reads neither: its time is
// limited even if it uses a processor.
//
// One thread.
#pragma once

#include <chrono>
#include <span>
#include <string>

#include "tandem/elastic/agent/elastic_agent.h"
#include "tandem/elastic/agent/worker_slot.h"
#include "tandem/launch/run/agent.h"
#include "tandem/net/event_loop.h"

namespace tandem::elastic {

class ProgressWatchdog {
 public:
  using Clock = WorkerSlot::Clock;

  // A worker that has used no processor for `limit`, or decides for so long, is killed. `slots` and
  // `node` must outlive it.
  ProgressWatchdog(std::span<WorkerSlot> slots, const ElasticAgent& node,
                   std::chrono::milliseconds limit, launch::Log log);

  void look();
  void add_to(net::EventLoop& loop) const;  // the time of the next call
  // The worker hung twice. Before the job has begun, a hang of any worker counts: the obstacle for
  // the worker that decides where the job begins is the same for the next one.
  bool is_again(const WorkerSlot& slot) const;

 private:
  bool prepares(const WorkerSlot& slot) const;
  Clock::duration still_for(WorkerSlot& slot) const;
  std::string hangs(WorkerSlot& slot) const;
  void kill(WorkerSlot& slot, const std::string& why) const;

  const std::span<WorkerSlot> slots_;
  const ElasticAgent& elastic_agent_;
  const std::chrono::milliseconds limit_;
  const launch::Log log_;
  int hangs_before_ = 0;  // until the job began: hangs of any worker
};

}  // namespace tandem::elastic
