// The program that every worker of a job executes.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/launch/run_options.h"

namespace tandem::launch {

struct WorkerProgram {
  std::vector<std::string> command;  // the first is the path of an executable
  // A job of tandem: its processes can share cores, resume, and end with documented exit codes. Any
  // other program is treated as by torchrun.
  bool own_job = false;
};

struct ProgramPaths {
  std::string self;                       // path of the running tandem
  std::vector<std::string> job_commands;  // run_qa and similar commands
  std::string python;                     // name or path of an interpreter
  std::string search_path;                // PATH
};

// A script …/run_qa.py means `tandem run_qa`, for each of `job_commands`; so does the bare name if
// no such file exists, and `--no-python tandem run_qa`. Any other script is run by Python, or with
// --no-python is a program. Throws ConfigError for a missing file.
WorkerProgram worker_program(const RunOptions& options, const ProgramPaths& paths);

// The file that a shell would execute for `name`, relative to the current folder; empty: none.
std::string find_executable(const std::string& name, const std::string& search_path);

// The program's command for one worker. Like torchrun, it replaces ${local_rank} in arguments,
// except for tandem's own jobs.
std::vector<std::string> command_of(const WorkerProgram& program, int local_rank);

// Python's string.Template(text).safe_substitute(values): $name and ${name} of `values`, $$ for $;
// unknown names stay.
std::string substitute(std::string_view text,
                       const std::map<std::string, std::string, std::less<>>& values);

}  // namespace tandem::launch
