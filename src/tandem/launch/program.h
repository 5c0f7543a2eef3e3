// What every worker of a job executes.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/launch/run_options.h"

namespace tandem::launch {

struct WorkerProgram {
  std::vector<std::string> command;  // the first is the path of an executable
  // A job of tandem: its processes know how to share cores, how to resume, and what their exit
  // codes mean. Anything else is treated as torchrun treats it.
  bool own_job = false;
};

struct ProgramPlaces {
  std::string self;                       // path of the tandem that runs
  std::vector<std::string> job_commands;  // run_qa and its like
  std::string python;                     // name or path of an interpreter
  std::string search_path;                // PATH
};

// A script …/run_qa.py means `tandem run_qa`, for each of `job_commands`; so does the bare name
// where no such file exists, and `--no-python tandem run_qa`. Any other script goes to Python, or
// with --no-python is a program. Throws ConfigError when something that must be there is not.
WorkerProgram worker_program(const RunOptions& options, const ProgramPlaces& places);

// The file that a shell would start for `name`, relative to the current folder; empty: none.
std::string find_executable(const std::string& name, const std::string& search_path);

// The program's command for one worker: torchrun replaces ${local_rank} in arguments, so this does,
// except for tandem's own jobs.
std::vector<std::string> command_of(const WorkerProgram& program, int local_rank);

// Python's string.Template(text).safe_substitute(values): $name and ${name} of `values`, $$ for $;
// what is not known stays.
std::string substitute(std::string_view text,
                       const std::map<std::string, std::string, std::less<>>& values);

}  // namespace tandem::launch
