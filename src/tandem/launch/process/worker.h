// One worker: a process in a separate session, watched through a descriptor.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tandem/net/socket.h"

namespace tandem::launch {

struct WorkerStart {
  std::vector<std::string> command;                             // the first is a path
  std::map<std::string, std::string, std::less<>> environment;  // the complete environment
  int out = -1;                                                 // its stdout; -1: this process's
  int err = -1;
  int in = -1;                 // its stdin
  int kept = -1;               // a descriptor that it inherits under the same number; -1: none
  std::string directory;       // its working directory; empty: that of this process
  std::vector<int> cpus;       // CPUs that it may use; empty: those of this process
  std::vector<int> inherited;  // more such descriptors
  // Timeout of the program's start: a worker that is stopped before is killed, and has ended.
  std::chrono::milliseconds timeout{10000};
};

// The end of a process: one of the two is 0.
struct Ending {
  int code = 0;
  int signal = 0;
  bool ok() const { return code == 0 && signal == 0; }
  // As a shell shows it: 128 + the signal.
  int exit_code() const { return signal != 0 ? 128 + signal : code; }
  // True for a signal of the process's own making, like SIGSEGV, not a kill from outside.
  bool is_fault() const;
  // True for an exit code of a tandem job between 1 and 127: a restart would fail again.
  bool is_final() const { return signal == 0 && code < 128; }
  std::string text() const;  // "exited with 3", "was killed by SIGKILL"
};

// "SIGKILL"; "signal 40" without a name.
std::string signal_name(int number);

// The destructor kills the process and all descendants in its session. If the creating process
// dies, the worker gets SIGKILL: a stopped process acts on no other signal. One thread.
class Worker {
 public:
  // Throws ConfigError if the program cannot be started, IoError without a free process.
  explicit Worker(const WorkerStart& start);
  ~Worker();
  Worker(Worker&& other) noexcept;
  Worker& operator=(Worker&&) = delete;

  pid_t pid() const { return pid_; }
  // Readable once the worker has ended.
  const net::FileDescriptor& end_signal() const { return descriptor_; }
  // Its status; empty while it runs. Processes that it left behind after a failure are killed.
  const std::optional<Ending>& poll();
  // Sends a signal to the worker and its descendants; no effect after its end. A signal that
  // requests the end is followed by SIGCONT, because a stopped process acts on nothing but SIGKILL.
  void signal(int number);

 private:
  pid_t pid_ = -1;
  net::FileDescriptor descriptor_;
  std::optional<Ending> ending_;
};

}  // namespace tandem::launch
