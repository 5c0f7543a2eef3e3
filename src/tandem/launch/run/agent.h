// The inputs of the agent of `tandem run`, which starts this node's workers, watches and restarts
// them, and reports at the end why they failed (elastic_host.h).
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/core/env.h"
#include "tandem/launch/control/job_status.h"
#include "tandem/launch/process/placement.h"
#include "tandem/launch/run/attempt_logs.h"
#include "tandem/launch/run/run_options.h"
#include "tandem/net/socket.h"

namespace tandem::launch {

// Address for the agents of a job, if it is already known.
struct KnownEndpoint {
  net::FileDescriptor listener;    // at the port; only in the agent of the first host
  std::vector<std::string> hosts;  // names and addresses of the first host
  int port = 0;
};

using Log = std::function<void(const std::string& line)>;

class Proxies;

struct AgentParts {
  RunOptions options;
  std::vector<std::string> command;  // for every worker; the first is the path of an executable
  Placement placement;
  std::map<std::string, std::string, std::less<>> inherited;  // environment of the workers
  std::string job_token;                                      // empty: none
  std::filesystem::path temporary = "/tmp";
  std::string error_file;  // file for this process's own failure; empty: none
  Console console;
  Log log;                                      // log lines for users
  std::optional<KnownEndpoint> known_endpoint;  // none: the address in the options
  std::shared_ptr<Proxies> proxies;             // null: the workers have this process's streams
  int shards = 0;  // logical shards, unless the job's flags set them; 0: one per worker
  // Receives the state of one of tandem's elastic jobs several times a second, on the agent's
  // thread, which it must not hold up. May be empty.
  std::function<void(const JobStatus&)> publish;
  int status_interval_s = 0;  // seconds between log lines with the state of an elastic job; 0: none
  std::chrono::milliseconds host_timeout{2000};  // timeout of a silent host, as for the workers
};

}  // namespace tandem::launch
