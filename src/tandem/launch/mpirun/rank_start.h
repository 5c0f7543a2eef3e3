// mpirun's order to its daemon on a host to start ranks.
#pragma once

#include <string>
#include <vector>

#include "tandem/launch/mpirun/mpi_line.h"

namespace tandem::launch {

struct RankStart {
  struct Program {
    std::vector<std::string> command;
    EnvironmentMap environment;
    std::string directory;
  };
  struct Rank {
    int rank = 0;
    int program = 0;  // index in `programs`
  };
  int size = 1;  // ranks of the job
  std::vector<Program> programs;
  std::vector<Rank> ranks;  // ranks of this host
  bool own_job = false;     // a job of tandem (program.h)
  std::string bind_to, map_by;
  int input_rank = -1;  // the rank that reads stdin; -1: none
};

std::string to_text(const RankStart& start);
// Throws DataError.
RankStart rank_start_from(const std::string& text);

}  // namespace tandem::launch
