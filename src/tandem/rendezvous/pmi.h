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
  // `descriptor` stays the caller's (the process inherited it). Throws CommError if the manager
  // does not answer before `timeout` or uses another protocol; the same timeout bounds every later
  // request.
  PmiClient(int descriptor, std::chrono::milliseconds timeout);
  // Puts become visible to all ranks with the next barrier. Throws CommError.
  void put(std::string_view key, std::string_view value);
  // A barrier in two parts: arrive, and wait at most `timeout` for the others.
  void enter_barrier();
  bool passed_barrier(std::chrono::milliseconds timeout);
  std::string get(std::string_view key);
  // Reports that this process may exit on its own from now on. No request may follow.
  void finalize();

 private:
  using Fields = std::map<std::string, std::string>;
  Fields request(const std::string& line, std::string_view expected_command);
  // Throws CommError unless `answer` is the expected answer to `asked`.
  Fields fields_of(const std::string& answer, std::string_view asked,
                   std::string_view expected_command) const;
  // Returns nothing at the deadline.
  std::optional<std::string> next_line(std::string_view asked, std::chrono::milliseconds timeout);

  int descriptor_;
  std::chrono::milliseconds timeout_;
  std::string buffer_;
  std::string space_;  // name of the key-value space
};

// A process's membership in the job of a process manager. Until leave() the manager treats the exit
// of the process as a crash and ends the whole job; destruction alone does not leave. Movable; one
// thread at a time.
class Membership {
 public:
  Membership() = default;  // not in a manager's job
  explicit Membership(PmiClient client) : client_(std::move(client)) {}
  Membership(Membership&& other) noexcept : client_(std::exchange(other.client_, std::nullopt)) {}
  Membership& operator=(Membership&& other) noexcept {
    client_ = std::exchange(other.client_, std::nullopt);
    return *this;
  }
  // Lets this process exit on its own. Waits at most a second; a lost manager is ignored.
  void leave() noexcept;

 private:
  std::optional<PmiClient> client_;
};

// Asks the process manager of this process, if it has one (PMI_FD in `environment`), to end all
// ranks of the job and to exit with `exit_code`. A short delay lets the other ranks log what they
// know. Without it the job would wait forever for a stopped rank or a silent host. Any thread;
// throws nothing.
void end_job(const Environment& environment, int exit_code) noexcept;

}  // namespace tandem::rendezvous
