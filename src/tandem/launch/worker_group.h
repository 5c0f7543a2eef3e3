// The workers of this node in one round.
#pragma once

#include <poll.h>

#include <chrono>
#include <string>
#include <vector>

#include "tandem/launch/agent.h"
#include "tandem/launch/attempt_logs.h"
#include "tandem/launch/coordinator.h"
#include "tandem/launch/worker.h"

namespace tandem::launch {

class WorkerGroup {
 public:
  using Clock = std::chrono::steady_clock;

  // Starts all of them; throws ConfigError and IoError if one cannot be started.
  WorkerGroup(const AgentParts& parts, const RankAssignment& assignment, RunLogs& logs,
              OutputRelay& relay);

  void add_to(std::vector<pollfd>& waits) const;
  // Records ended processes.
  void look();
  bool all_ended() const;
  bool all_succeeded() const;
  bool any_failed() const { return !failures_.empty(); }
  // Time of the first failure.
  Clock::time_point failed_since() const { return failed_since_; }
  // Workers that ended on their own, in the order of their ends.
  const std::vector<Failure>& failures() const { return failures_; }
  // Content of the error file of a failed worker; empty without one.
  std::string error_text(int local_rank) const;

  // Workers that end from now on were stopped and are not failures. Sends the signal, and SIGKILL
  // to those that still run after `limit`.
  void stop(int signal, std::chrono::milliseconds limit);
  bool stopping() const { return stopping_; }
  void kill();
  void signal(int number);
  // Latest time of the next call.
  Clock::time_point next_due(Clock::time_point now) const;
  std::size_t num_running() const;

 private:
  struct Slot {
    Worker worker;
    int local_rank = 0;
    bool seen_ended = false;
  };
  void note_failure(const Slot& slot, const Ending& ending);

  const AgentParts& parts_;
  RankAssignment assignment_;
  RunLogs& logs_;
  std::vector<Slot> slots_;
  std::vector<Failure> failures_;
  MemoryKills memory_kills_;
  Clock::time_point failed_since_;
  bool stopping_ = false;
  Clock::time_point kill_at_;
};

// torchrun's variables for one worker, added to those that the agent inherited.
std::map<std::string, std::string, std::less<>> worker_environment(const AgentParts& parts,
                                                                   const RankAssignment& assignment,
                                                                   int local_rank,
                                                                   const std::string& error_file);

}  // namespace tandem::launch
