// Undisturbed jobs, with whose results tests compare those of others. Each is run once for
// all tests of a build, whichever process asks first.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "support/process.h"

namespace tandem::testing {

struct ReferenceJob {
  std::filesystem::path folder;  // the job's output_dir, which tests only read
  ProcessResult result;          // exit code and output; no time
};

// `output` is the word of `command` that names the job's output_dir. Two jobs are the same if their
// words and variables are, where a file counts by what it holds, and the program by its time of
// building. The results are kept in the build directory. A job that fails fails the test, and is
// run again for the next one.
ReferenceJob reference_job(std::vector<std::string> command, const std::string& output,
                           const std::map<std::string, std::string>& variables = {});

}  // namespace tandem::testing
