// One worker: a process in a session of its own, watched through a descriptor.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tandem/rendezvous/socket.h"

namespace tandem::launch {

struct WorkerStart {
  std::vector<std::string> command;                             // the first is a path
  std::map<std::string, std::string, std::less<>> environment;  // all of it
  int out = -1;                                                 // its stdout; -1: this process's
  int err = -1;
  int in = -1;                 // its stdin
  int kept = -1;               // a descriptor that it has under the same number; -1: none
  std::string directory;       // where it begins; empty: where this process is
  std::vector<int> cpus;       // that it may run on; empty: those of this process
  std::vector<int> inherited;  // more such descriptors
  // Until its program runs: who is stopped before is killed then, and has ended.
  std::chrono::milliseconds patience{10000};
};

// How a process ended: one of the two is 0.
struct Ending {
  int code = 0;
  int signal = 0;
  bool ok() const { return code == 0 && signal == 0; }
  // As a shell shows it: 128 + the signal.
  int exit_code() const { return signal != 0 ? 128 + signal : code; }
  // The process's own doing, and not somebody's who killed it: SIGSEGV and its like.
  bool is_fault() const;
  // What a job of tandem ends with between 1 and 127 is wrong again the next time.
  bool is_final() const { return signal == 0 && code < 128; }
  std::string text() const;  // "exited with 3", "was killed by SIGKILL"
};

// "SIGKILL"; "signal 40" where there is no name.
std::string signal_name(int number);

// The destructor kills what is left of it, with all that it started and that stayed in its session.
// When the process that made it dies, the worker gets SIGKILL: a stopped process acts on no other
// signal. One thread.
class Worker {
 public:
  // Throws ConfigError when the program cannot be started, IoError when there is no process left.
  explicit Worker(const WorkerStart& start);
  ~Worker();
  Worker(Worker&& other) noexcept;
  Worker& operator=(Worker&&) = delete;

  pid_t pid() const { return pid_; }
  // Readable once the worker has ended.
  const rendezvous::FileDescriptor& end_signal() const { return descriptor_; }
  // How it ended; nothing while it runs. What it started and left behind after a failure is killed.
  const std::optional<Ending>& poll();
  // To the worker and its descendants; nothing when it has ended. A signal that asks it to end is
  // followed by SIGCONT, for a stopped process acts on nothing but SIGKILL.
  void signal(int number);

 private:
  pid_t pid_ = -1;
  rendezvous::FileDescriptor descriptor_;
  std::optional<Ending> ending_;
};

}  // namespace tandem::launch
