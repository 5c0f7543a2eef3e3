// A job of tandem's own whose ranks mpirun has started and which is to outlive them. A process
// that mpirun has started is not a rank then: it stands in for one. The first of a host starts an
// agent there (elastic_agent.h), which starts the ranks as its workers and starts them again;
// agents of several hosts find each other through mpirun's PMI-1. The stand-ins hold their place
// until the job has ended and end as it does. So mpirun never sees a rank die: it would end the
// job, and MPICH's cannot be relied on to do otherwise (docs/design/0019).
#pragma once

#include <functional>
#include <string>

#include "tandem/core/env.h"
#include "tandem/launch/agent.h"
#include "tandem/rendezvous/identity.h"

namespace tandem::launch {

// Whether this process should stand in: TANDEM_ELASTIC says so, or mpirun's -disable-auto-cleanup
// where all ranks can see it.
struct StandInWish {
  bool wanted = false;
  std::string note;  // for people: why not, where that was asked for; may be empty
};
StandInWish stand_in_wish(const Environment& environment, const rendezvous::Identity& identity);

struct StandInParts {
  rendezvous::Identity identity;
  std::string host_name;                 // of this host, as mpirun was told; empty: not known
  std::chrono::milliseconds patience{};  // until all have come
  std::chrono::milliseconds stall_timeout{};
  Log log;           // a line for people
  AgentParts agent;  // program, options of the job, what the workers inherit
  // Runs the agent, in a process of its own, with what has been filled in; the exit code.
  std::function<int(AgentParts)> run_agent;
};

// Collective over the processes that mpirun has started. Returns the job's exit code, 128 + the
// signal if that is 0 and this process was told to stop; 200 when the agent of this host is gone.
// SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are its own from then on: they are ignored
// when it has returned. In the process's main thread, before others are started. Throws ConfigError
// and CommError for what cannot begin.
int stand_in(StandInParts parts);

}  // namespace tandem::launch
