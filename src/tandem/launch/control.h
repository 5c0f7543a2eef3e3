// A running `tandem run` answers questions of people: `tandem status|drain|resize`.
//
// On its own host each agent listens at an abstract UNIX address that has its user's and its own
// number: no file, gone with the agent. Both sides ask the kernel whether the other one is of the
// same user, and speak with nobody else. From elsewhere one asks at the port of a job's agents, if
// the job has a token: both sides prove that they know it (control_line.h).
//
// A request is a line: "status", "drain 2", "leave" or "resize 3", and " at ADDRESS" behind it when
// another agent of the job is meant. The answer is lines of JSON: {"status": …} and {"silent":
// "ADDRESS"} for each agent, or {"done": "…"}, or {"error": "…"}; then {"end": true}.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/launch/control_line.h"
#include "tandem/launch/job_status.h"
#include "tandem/rendezvous/lobby.h"

namespace tandem::launch {

struct ControlRequest {
  enum class Kind { kStatus, kDrain, kLeave, kResize };
  Kind kind = Kind::kStatus;
  int number = 0;         // of the worker, or how many workers
  std::string node = {};  // address of the agent that is meant; empty: the one that is asked
};

std::string to_line(const ControlRequest& request);
// Throws DataError.
ControlRequest control_request_from(std::string_view line);

// Where an agent takes questions. One thread.
class ControlDesk {
 public:
  struct Question {
    std::uint64_t guest = 0;
    ControlRequest request;
  };

  // Listens for agent `pid` of this user. Without a listener, `failure` says why. `token`: of the
  // job; empty: visitors are shown out.
  ControlDesk(pid_t pid, std::string token);
  const std::string& failure() const { return failure_; }
  // Somebody has come to the agents' port.
  void welcome(rendezvous::Guest visitor);

  void add_to(std::vector<pollfd>& waits) const;
  // When to look again, at the latest: a side that says nothing is given up.
  std::chrono::milliseconds nap() const;
  // What has come. Each guest asks once.
  std::vector<Question> serve();
  // A line of the answer, and its end. Nothing happens when the guest has gone.
  void answer(std::uint64_t guest, const std::string& line);
  void finish(std::uint64_t guest);

 private:
  using Clock = std::chrono::steady_clock;
  struct Guest {
    std::uint64_t number;
    ControlLine line;
    Clock::time_point until;
    bool local = true;
    bool asked = false;
    bool finished = false;
  };
  void let_in();
  void add(ControlLine line, bool local);
  std::size_t count(bool local) const;
  Guest* find(std::uint64_t number);
  void hear(Guest& guest, std::vector<Question>& questions);

  std::string token_;
  rendezvous::FileDescriptor listener_;
  std::string failure_;
  std::uint64_t next_ = 1;
  std::vector<Guest> guests_;
};

// An agent to ask.
struct AgentPlace {
  pid_t pid = 0;             // of this user on this host, or
  std::string address = {};  // "host:port" of any agent of a job
  std::string token = {};    // of that job
};

// Agents of this user in this network namespace that listen now, by number.
std::vector<pid_t> running_agents();

struct JobStatuses {
  std::vector<JobStatus> agents;    // the asked one first
  std::vector<std::string> silent;  // addresses of those that did not answer it
};

// Throw ConfigError when the agent refuses, or is not there, and CommError when it does not answer
// within `limit`. An agent's word that it does not want to is a ConfigError.
JobStatuses ask_status(const AgentPlace& agent, std::chrono::milliseconds limit);
// For other requests; returns what the agent says it has done.
std::string ask_change(const AgentPlace& agent, const ControlRequest& request,
                       std::chrono::milliseconds limit);

}  // namespace tandem::launch
