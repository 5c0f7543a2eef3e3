// Output of the ranks of an mpirun: to the console with or without a prefix, or to files.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "tandem/launch/mpirun/mpi_line.h"
#include "tandem/launch/process/console_writer.h"
#include "tandem/launch/run/attempt_logs.h"

namespace tandem::launch {

struct PrintingRank {
  int rank = 0;
  int host_number = 0;
  std::string host;
};

// Replaces %r (rank), %g (0), %p (number of the host), %h (its name) and %% in Hydra's patterns.
std::string fill_pattern(const std::string& pattern, const PrintingRank& rank);

class RankOutput {
 public:
  RankOutput(const MpiLine& line, Console console) : line_(line), console_(console) {}

  // Bytes of a rank's stdout or stderr. Throws IoError if a file cannot be created.
  void add(const PrintingRank& rank, bool err, const std::string& bytes);
  // The rank has ended: an unfinished line is written.
  void end(const PrintingRank& rank);
  // True if too much output waits for the console.
  bool crowded() const { return writer_.backlog() > (std::size_t{8} << 20); }
  void drain(std::chrono::milliseconds limit) { writer_.drain(limit); }

 private:
  int descriptor(const PrintingRank& rank, bool err);
  std::string prefix(const PrintingRank& rank) const;

  const MpiLine& line_;
  Console console_;
  std::map<std::string, net::FileDescriptor> files_;
  std::map<std::pair<int, bool>, std::string> unfinished_;
  ConsoleWriter writer_;
};

}  // namespace tandem::launch
