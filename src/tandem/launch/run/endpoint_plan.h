// From the command line to the endpoint of a job: its address, and whether this agent listens
// there.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "tandem/launch/run/agent.h"

namespace tandem::launch {

struct HostAddress {
  std::string host;
  int port = 0;
};

// Address for the agents, from the options.
struct EndpointPlan {
  bool local = false;     // one node: no other agent is expected, and only this host can connect
  bool hosts = false;     // this agent listens
  bool may_join = false;  // if the port is in use, another agent of this machine may be the host
  HostAddress where;      // port 0: any free one
};

// Splits "host:port", "[::1]:port" or "host"; throws ConfigError.
HostAddress parse_endpoint(const std::string& endpoint, int default_port);
// Returns true if `host` is a name of this machine, whole or up to its first dot.
bool names_this_machine(const std::string& host, const std::vector<std::string>& own_names);
// Its addresses and its name.
std::vector<std::string> names_of_this_machine();

// `own_names`: names and addresses of this machine.
EndpointPlan plan_endpoint(const RunOptions& options, const std::vector<std::string>& own_names);

// Timeout for other agents: --rdzv-conf join_timeout or timeout. Throws ConfigError.
std::chrono::milliseconds join_timeout(const RunOptions& options);
// Logs one line if any agent may join.
void warn_of_open_port(const AgentParts& parts, int port);

}  // namespace tandem::launch
