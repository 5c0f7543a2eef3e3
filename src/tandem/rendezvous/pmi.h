// A client of PMI-1, the line protocol between Hydra (MPICH's and Intel MPI's launcher) and the processes it starts, over the
// descriptor PMI_FD. tandem uses only its key-value space, to publish where rank 0 listens.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <string_view>

namespace tandem::rendezvous {

class PmiClient {
 public:
  // `descriptor` stays the caller's (the process inherited it). Throws CommError when the manager does not answer before
  // `timeout` or speaks something else; the same timeout bounds every later request.
  PmiClient(int descriptor, std::chrono::milliseconds timeout);
  // Puts become visible to all ranks with the next barrier. Throws CommError.
  void put(std::string_view key, std::string_view value);
  void barrier();
  std::string get(std::string_view key);
  // Tells the manager that this process may end on its own from now on.
  void finalize();

 private:
  using Fields = std::map<std::string, std::string>;
  Fields request(const std::string& line, std::string_view expected_command);
  std::string read_line(std::string_view asked);

  int descriptor_;
  std::chrono::milliseconds timeout_;
  std::string buffer_;
  std::string space_;  // name of the key-value space
};

}  // namespace tandem::rendezvous
