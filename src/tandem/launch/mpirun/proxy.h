// Runs a job of tandem's own that mpirun has started and whose ranks may be restarted. A process
// that mpirun has started is then not a rank but a proxy for one. The first process of a host
// starts an agent there (elastic_agent.h), which starts the ranks as its workers and restarts them.
// Agents of several hosts find each other through mpirun's PMI-1. The proxies run until the job has
// ended and return its exit code. So mpirun never sees a rank die: it would end the job, and
// MPICH's cannot be relied on to do otherwise (docs/design/0019).
#pragma once

#include <functional>
#include <string>

#include "tandem/core/env.h"
#include "tandem/launch/run/agent.h"
#include "tandem/rendezvous/identity.h"

namespace tandem::launch {

// Decides whether this process is a proxy: TANDEM_ELASTIC, or mpirun's -disable-auto-cleanup if all
// ranks can see it.
struct ProxyRequest {
  bool wanted = false;
  std::string note;  // the reason why the request has no effect, for users; may be empty
};
ProxyRequest proxy_request(const Environment& environment, const rendezvous::Identity& identity);

struct ProxyParts {
  rendezvous::Identity identity;
  std::string host_name;                // name of this host, as given to mpirun; empty: unknown
  std::chrono::milliseconds timeout{};  // timeout for the arrival of all processes
  std::chrono::milliseconds stall_timeout{};
  Log log;           // log lines for users
  AgentParts agent;  // program, options of the job, environment of the workers
  // Runs the agent in a separate process with these fields; returns the exit code.
  std::function<int(AgentParts)> run_agent;
};

// Collective over the processes that mpirun has started. Returns the job's exit code, 128 + the
// signal if that is 0 and this process received a stop signal; 200 if the agent of this host is
// gone. It handles SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 meanwhile, and ignores
// them after it has returned. Call it on the process's main thread, before others are started.
// Throws ConfigError and CommError if the job cannot start.
int run_proxy(ProxyParts parts);

}  // namespace tandem::launch
