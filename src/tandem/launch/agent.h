// The agent of `tandem run`: meets the job's other agents, starts this node's workers, watches
// them, starts them again, and says in the end why they failed.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/core/env.h"
#include "tandem/elastic/external_lock.h"
#include "tandem/launch/attempt_logs.h"
#include "tandem/launch/job_link.h"
#include "tandem/launch/job_status.h"
#include "tandem/launch/placement.h"
#include "tandem/launch/program.h"
#include "tandem/launch/run_options.h"
#include "tandem/rendezvous/socket.h"

namespace tandem::launch {

// Where the agents of a job meet, when somebody has told them.
struct AgentMeeting {
  rendezvous::FileDescriptor listener;  // at the port; only in the agent of the first host
  std::vector<std::string> hosts;       // names and addresses of the first host
  int port = 0;
};

class StandIns;

struct AgentParts {
  RunOptions options;
  WorkerProgram program;
  Placement placement;
  std::map<std::string, std::string, std::less<>> inherited;  // environment of the workers
  std::string job_token;                                      // empty: none
  std::filesystem::path temporary = "/tmp";
  std::string error_file;  // where this process should say why it failed; empty: nowhere
  Console console;
  Log log;  // a line for people
  // Of elastic jobs.
  std::optional<AgentMeeting> meeting;          // none: where the options say
  std::shared_ptr<elastic::ExternalLock> lock;  // null: the nodes of several hosts are counted
  std::shared_ptr<StandIns> stand_ins;          // null: the workers have this process's streams
  int shards = 0;  // logical shards where the job's flags do not say; 0: a worker's each
  // Told where an elastic job of tandem's own stands, several times a second; by the thread of the
  // agent, which it must not hold up. May be empty.
  std::function<void(const JobStatus&)> publish;
  int status_interval_s = 0;  // between lines that say where an elastic job stands; 0: none
  std::chrono::milliseconds host_timeout{2000};  // of a silent host, as the workers have it
};

// Runs the job to its end and returns the exit code: 0; 1 when a foreign program failed, and the
// exit code of the root failure when tandem's own job did; 128 + a signal that stopped it; 200 when
// the job's host is lost. While it runs the options' signals are its own: the thread that calls it
// must be the process's main one, before others are started. Throws ConfigError for what cannot
// begin.
int run_agent(AgentParts parts);

}  // namespace tandem::launch
