// A running `tandem run` answers questions of people on its host: `tandem status|drain|resize`.
//
// Each agent listens at an abstract UNIX address that has its user's and its own number: no file,
// gone with the agent. Both sides ask the kernel whether the other one is of the same user, and
// speak with nobody else. A request is a line, "status", "drain 2" or "resize 3"; the answer is a
// line of JSON: {"status": …}, {"done": "…"} or {"error": "…"}.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/launch/job_status.h"
#include "tandem/launch/line_socket.h"

namespace tandem::launch {

struct ControlRequest {
  enum class Kind { kStatus, kDrain, kResize };
  Kind kind = Kind::kStatus;
  int number = 0;  // of the worker, or how many workers
};

std::string to_line(const ControlRequest& request);
// Throws DataError.
ControlRequest control_request_from(std::string_view line);

// The agent's side. One thread.
class ControlSocket {
 public:
  // What is answered to a status is JSON of a JobStatus, to the others a line for people. May throw
  // tandem::Error: the other side gets its message.
  using Answer = std::function<std::string(const ControlRequest&)>;

  // Listens for agent `pid` of this user. Without a listener, `failure` says why.
  explicit ControlSocket(pid_t pid);
  const std::string& failure() const { return failure_; }

  void add_to(std::vector<pollfd>& waits) const;
  // When to look again, at the latest: a side that says nothing is given up.
  std::chrono::milliseconds nap() const;
  // Answers what has come.
  void serve(const Answer& answer);

 private:
  using Clock = std::chrono::steady_clock;
  struct Guest {
    LineSocket socket;
    Clock::time_point until;
    bool answered = false;
  };
  void let_in();

  rendezvous::FileDescriptor listener_;
  std::string failure_;
  std::vector<Guest> guests_;
};

// Agents of this user in this network namespace that listen now, by number.
std::vector<pid_t> running_agents();

// Asks agent `pid` of this user. Throws ConfigError when it refuses, or is not there, and CommError
// when it does not answer within `limit`.
JobStatus ask_status(pid_t pid, std::chrono::milliseconds limit);
// For kDrain and kResize; returns what the agent says it has done.
std::string ask_change(pid_t pid, const ControlRequest& request, std::chrono::milliseconds limit);

}  // namespace tandem::launch
