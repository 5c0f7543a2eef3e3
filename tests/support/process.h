// Programs started by tests: with their own environment, output in memory, and always an end.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "support/ports.h"

namespace tandem::testing {

struct ProcessResult {
  int exit_code = -1;  // 128 + signal when one ended it, as in a shell
  std::string out;
  std::string err;
  double seconds = 0;
};

// A child in a process group of its own. The destructor ends what is left of it.
class Process {
 public:
  // `environment` is added to the test's own, without any launcher's variables (RANK, PMI_RANK …);
  // an empty value removes a variable.
  explicit Process(const std::vector<std::string>& command,
                   const std::map<std::string, std::string>& environment = {});
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  bool running();
  // Waits for the end; kills the group and fails the test when `limit` passes.
  ProcessResult wait(std::chrono::seconds limit = std::chrono::seconds(120));
  // Its output so far.
  std::string out_so_far() const;
  std::string err_so_far() const;

 private:
  pid_t pid_ = -1;
  bool reaped_ = false;
  int status_ = 0;
  std::chrono::steady_clock::time_point start_;
  std::filesystem::path out_, err_;
};

// Starts and waits.
ProcessResult run(const std::vector<std::string>& command,
                  const std::map<std::string, std::string>& environment = {},
                  std::chrono::seconds limit = std::chrono::seconds(120));

// Output of tandem with the lines of a long text joined again: tests look for the text, not for its
// line breaks.
std::string unwrapped(const std::string& printed);

// Waits until `process` has printed `text` on either stream; fails the test where it ends without,
// or prints nothing of the kind for a minute.
bool prints(Process& process, const std::string& text);

// The lines of a text, and the last of them, which is empty for an empty text.
std::vector<std::string> lines_of(const std::string& text);
std::string last_line(const std::string& text);

// Full path of a program in PATH, or empty.
std::string find_program(const std::string& name);

}  // namespace tandem::testing
