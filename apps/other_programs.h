// Programs that are not tandem's run under the launcher that comes with them: a script of torch
// under torch's torchrun, a program of an MPI under its mpiexec.
#pragma once

#include <string>
#include <vector>

#include "tandem/core/env.h"

namespace tandem::apps {

// `python -m torch.distributed.run WORDS`, with the Python that would run the script: PYTHON_EXEC,
// or python3 in PATH. Throws ConfigError if there is no such Python or if it has no torch.
std::vector<std::string> torchrun_command(const std::vector<std::string>& words,
                                          const Environment& environment);

// The mpiexec of an MPI in PATH: mpiexec.hydra, mpirun.mpich, mpirun or mpiexec, the first that is
// not `self` under another name and not a script that calls tandem. Empty if PATH has no such
// program.
std::string find_mpiexec(const Environment& environment, const std::string& self);

// Returns true if a command starts tandem or a script that tandem replaces (…/run_qa.py), directly
// or within the text of a shell.
bool starts_tandem(const std::vector<std::string>& command);

// Names of the commands that are jobs, like run_qa.
std::vector<std::string> job_command_names();

// Replaces this process. Throws IoError if the program cannot be executed.
[[noreturn]] void execute(const std::vector<std::string>& command);

}  // namespace tandem::apps
