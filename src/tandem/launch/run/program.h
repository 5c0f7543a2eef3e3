// The program that every worker of a job executes.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/launch/run/run_options.h"

namespace tandem::launch {

struct ProgramPaths {
  std::string self;                       // path of the running tandem
  std::vector<std::string> job_commands;  // run_qa and similar commands
};

// Returns true if the word is a script of that name, …/run_qa.py, for one of `job_commands`, or the
// bare name if no such file exists.
bool names_job(const std::string& word, const std::vector<std::string>& job_commands);

// The command of a worker if the options start a job of tandem: a script …/run_qa.py means
// `tandem run_qa`, and so does the program `tandem run_qa`. Empty for any other program.
std::vector<std::string> job_command(const RunOptions& options, const ProgramPaths& paths);

// The file that a shell would execute for `name`, relative to the current folder; empty: none.
std::string find_executable(const std::string& name, const std::string& search_path);

// Python's string.Template(text).safe_substitute(values): $name and ${name} of `values`, $$ for $;
// unknown names stay.
std::string substitute(std::string_view text,
                       const std::map<std::string, std::string, std::less<>>& values);

}  // namespace tandem::launch
