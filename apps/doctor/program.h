// Other programs that the doctor asks: ssh, mpirun --version.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace tandem::apps::doctor {

struct ProgramOutput {
  bool started = false;
  bool in_time = false;  // it ended before the limit; otherwise it was killed
  int exit_code = -1;    // 128 + signal when one ended it
  std::string out;
  std::string err;
};

// Runs a program (found in PATH) without input, in a process group of its own, and kills the group
// at the limit.
ProgramOutput run_program(const std::vector<std::string>& words, std::chrono::milliseconds limit);

// The first line of a text, without the newline.
std::string first_line(const std::string& text);

}  // namespace tandem::apps::doctor
