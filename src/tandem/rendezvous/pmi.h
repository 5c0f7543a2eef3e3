// A client of PMI-1, the line protocol between Hydra (MPICH's and Intel MPI's launcher) and the
// processes it starts, over the descriptor PMI_FD. tandem uses only its key-value space, to publish
// where rank 0 listens.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tandem/core/env.h"

namespace tandem::rendezvous {

class PmiClient {
 public:
  // `descriptor` stays the caller's (the process inherited it). Throws CommError when the manager
  // does not answer before `timeout` or speaks something else; the same timeout bounds every later
  // request.
  PmiClient(int descriptor, std::chrono::milliseconds timeout);
  // Puts become visible to all ranks with the next barrier. Throws CommError.
  void put(std::string_view key, std::string_view value);
  // A barrier in two parts: this rank has come, and whether all have, within `patience`.
  void enter_barrier();
  bool passed_barrier(std::chrono::milliseconds patience);
  std::string get(std::string_view key);
  // Tells the manager that this process may end on its own from now on. Nothing may follow.
  void finalize();

 private:
  using Fields = std::map<std::string, std::string>;
  Fields request(const std::string& line, std::string_view expected_command);
  // Throws CommError unless `answer` to `asked` is the expected one.
  Fields fields_of(const std::string& answer, std::string_view asked,
                   std::string_view expected_command) const;
  // Nothing when the time is over.
  std::optional<std::string> next_line(std::string_view asked, std::chrono::milliseconds patience);

  int descriptor_;
  std::chrono::milliseconds timeout_;
  std::string buffer_;
  std::string space_;  // name of the key-value space
};

// A process's place in the job of a process manager. Until leave() the manager takes the process's
// end for a crash and ends the whole job; a place that is only destroyed was not left. Movable; one
// thread at a time.
class Membership {
 public:
  Membership() = default;  // in no manager's job
  explicit Membership(PmiClient client) : client_(std::move(client)) {}
  Membership(Membership&& other) noexcept : client_(std::exchange(other.client_, std::nullopt)) {}
  Membership& operator=(Membership&& other) noexcept {
    client_ = std::exchange(other.client_, std::nullopt);
    return *this;
  }
  // This process may end on its own. Waits a second at most; a manager that has gone has nothing to
  // be told.
  void leave() noexcept;

 private:
  std::optional<PmiClient> client_;
};

// Asks the process manager of this process, if it has one (PMI_FD in `environment`), to end all
// ranks of the job and to exit with `exit_code`, after a moment in which the other ranks can say
// what they know. A rank that is stopped, or whose host is silent, would otherwise be waited for
// without end. Any thread; throws nothing.
void end_job(const Environment& environment, int exit_code) noexcept;

}  // namespace tandem::rendezvous
