// The workers of an elastic agent as processes, with their streams, logs and error files. Each slot
// of its placement has one process after another. The agent decides on restarts.
//
// Thread-safety: one thread.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tandem/elastic/agent/elastic_agent.h"
#include "tandem/elastic/agent/worker_slot.h"
#include "tandem/launch/process/console_writer.h"
#include "tandem/launch/run/agent.h"

namespace tandem::elastic {

class ElasticWorkers {
 public:
  // Starts no process. `parts` and `node` must outlive it. Throws ConfigError without a folder for
  // logs.
  ElasticWorkers(const launch::AgentParts& parts, ElasticAgent& node);

  std::span<WorkerSlot> slots() { return slots_; }
  std::span<const WorkerSlot> slots() const { return slots_; }
  int size() const { return static_cast<int>(slots_.size()); }
  int restarts() const { return restarts_; }

  // Throws ConfigError and IoError when one cannot be started.
  void start_all();
  void start_due();
  // Restarts at once or after a pause; counts as a restart.
  void start_again(int worker);
  // Processes that have ended since the last call, with their status; the node is not notified.
  std::vector<launch::Failure> take_ended();

  // Prints lines that belong to the node's stored progress. They do not wait for a blocked console,
  // and the worker that waits for them does not wait long.
  void print(int worker, const std::string& lines);
  // Output still in flight to consoles and logs, after all processes have ended.
  void finish_output();

 private:
  void start(int worker);
  launch::Console console_of(int worker) const;
  launch::Failure describe_end(int worker, const launch::Ending& ending);

  const launch::AgentParts& parts_;
  ElasticAgent& elastic_agent_;
  launch::RunLogs logs_;
  launch::OutputRelay relay_;
  launch::ConsoleWriter lines_;
  std::vector<net::FileDescriptor> stale_;
  std::vector<WorkerSlot> slots_;
  launch::MemoryKills memory_kills_;
  int restarts_ = 0;
};

}  // namespace tandem::elastic
