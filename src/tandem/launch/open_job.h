// From the command line to a link: does this agent host the job, or where is who does?
#pragma once

#include <functional>
#include <memory>

#include "tandem/launch/agent.h"

namespace tandem::launch {

// Where the agents meet, as the options say.
struct MeetingPlan {
  bool local = false;     // one node: nobody else is expected, and only this host can connect
  bool hosts = false;     // this agent listens
  bool may_join = false;  // when the port is taken, another agent of this machine may be the host
  HostAddress where;      // port 0: any free one
};

// Splits "host:port", "[::1]:port" or "host"; throws ConfigError.
HostAddress parse_endpoint(const std::string& endpoint, int default_port);
// Whether `host` is a name of this machine, whole or up to its first dot.
bool names_this_machine(const std::string& host, const std::vector<std::string>& own_names);
// Its addresses and its name.
std::vector<std::string> names_of_this_machine();

// `own_names`: names and addresses of this machine.
MeetingPlan plan_meeting(const RunOptions& options, const std::vector<std::string>& own_names);

// How long agents wait for each other: --rdzv-conf join_timeout or timeout. Throws ConfigError.
std::chrono::milliseconds join_timeout(const RunOptions& options);
// Says in one line that anybody may join, where that is so.
void warn_of_open_port(const AgentParts& parts, int port);

// Opens or joins the job. `check` as in join_job(). Throws what that throws, and ConfigError when
// the port is taken.
std::unique_ptr<JobLink> open_job(const AgentParts& parts, const std::function<void()>& check);

}  // namespace tandem::launch
