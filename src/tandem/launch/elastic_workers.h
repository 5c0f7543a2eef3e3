// The workers of an elastic agent as processes, with their streams, logs and error files. Each slot
// of its placement has one process after another. The agent decides on restarts.
//
// Thread-safety: one thread.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tandem/elastic/elastic_agent.h"
#include "tandem/launch/agent.h"
#include "tandem/launch/console_writer.h"
#include "tandem/launch/worker_slot.h"

namespace tandem::launch {

class ElasticWorkers {
 public:
  // Starts no process. `parts` and `node` must outlive it. Throws ConfigError without a folder for
  // logs.
  ElasticWorkers(const AgentParts& parts, elastic::ElasticAgent& node);

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
  std::vector<Failure> take_ended();

  // Prints lines that belong to the node's stored progress. They do not wait for a blocked console,
  // and the worker that waits for them does not wait long.
  void print(int worker, const std::string& lines);
  // Output still in flight to consoles and logs, after all processes have ended.
  void finish_output();

 private:
  void start(int worker);
  Console console_of(int worker) const;
  Failure describe_end(int worker, const Ending& ending);

  const AgentParts& parts_;
  elastic::ElasticAgent& elastic_agent_;
  RunLogs logs_;
  OutputRelay relay_;
  ConsoleWriter lines_;
  std::vector<rendezvous::FileDescriptor> stale_;
  std::vector<WorkerSlot> slots_;
  MemoryKills memory_kills_;
  int restarts_ = 0;
};

}  // namespace tandem::launch
