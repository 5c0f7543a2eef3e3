// A running `tandem run` answers users: `tandem status|drain|resize`.
//
// Each agent listens on its own host at an abstract UNIX address with its user's number and its
// own: no file, gone with the agent. Both sides ask the kernel whether the peer belongs to the same
// user, and close the connection otherwise. From other hosts users connect to the port of a job's
// agents, if the job has a token: both sides prove that they have it (control_line.h).
//
// A request is a line: "status", "drain 2", "leave" or "resize 3", followed by " at ADDRESS" if
// another agent of the job is meant. The answer is lines of JSON: {"status": …} and {"silent":
// "ADDRESS"} for each agent, or {"done": "…"}, or {"error": "…"}; then {"end": true}.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/launch/control/control_line.h"
#include "tandem/launch/control/job_status.h"
#include "tandem/net/event_loop.h"
#include "tandem/net/pending_connections.h"

namespace tandem::launch {

struct ControlRequest {
  enum class Kind { kStatus, kDrain, kLeave, kResize };
  Kind kind = Kind::kStatus;
  int number = 0;         // number of the worker, or number of workers
  std::string node = {};  // address of the agent that is meant; empty: the receiving agent
};

std::string to_line(const ControlRequest& request);
// Throws DataError.
ControlRequest control_request_from(std::string_view line);

// Answers requests on behalf of an agent. One thread.
class ControlDesk {
 public:
  struct Question {
    std::uint64_t client = 0;
    ControlRequest request;
  };

  // Listens for agent `pid` of this user. Without a listener, `failure` has the reason. `token`:
  // the job's; empty: connections from other hosts are closed.
  ControlDesk(pid_t pid, std::string token);
  const std::string& failure() const { return failure_; }
  // A connection was accepted at the agents' port.
  void welcome(net::PendingConnection visitor);

  // Also waits until a silent connection is to be closed.
  void add_to(net::EventLoop& loop) const;
  // Received requests. Each connection sends one.
  std::vector<Question> serve();
  // A line of the answer, and its end. No effect if the connection is closed.
  void answer(std::uint64_t client, const std::string& line);
  void finish(std::uint64_t client);

 private:
  using Clock = std::chrono::steady_clock;
  struct Client {
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
  Client* find(std::uint64_t number);
  void handle(Client& client, std::vector<Question>& questions);

  std::string token_;
  net::FileDescriptor listener_;
  std::string failure_;
  std::uint64_t next_ = 1;
  std::vector<Client> clients_;
};

// An agent that receives requests.
struct AgentAddress {
  pid_t pid = 0;             // process of this user on this host, or
  std::string address = {};  // "host:port" of any agent of a job
  std::string token = {};    // token of that job
};

// Agents of this user in this network namespace that listen now, by number.
std::vector<pid_t> running_agents();

struct JobStatuses {
  std::vector<JobStatus> agents;    // the receiving agent first
  std::vector<std::string> silent;  // addresses of agents without an answer
};

// Throw ConfigError if the agent refuses or does not exist, and CommError if it does not answer
// within `limit`.
JobStatuses ask_status(const AgentAddress& agent, std::chrono::milliseconds limit);
// For other requests; returns the agent's report of the change.
std::string ask_change(const AgentAddress& agent, const ControlRequest& request,
                       std::chrono::milliseconds limit);

}  // namespace tandem::launch
