// Effect of SIGTERM, SIGINT (Ctrl-C), SIGHUP (a closed terminal) and SIGQUIT on a job. Outside of
// training it ends within a second. In training it ends after the step and a checkpoint; a second
// signal ends it at once. Signals within a quarter of a second of the first one are the same
// request: `timeout` sends two, and Slurm and systemd signal every process of a job as well as its
// launcher. A SIGHUP that is ignored when the job starts, as under nohup, stays ignored.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string_view>
#include <thread>

#include "apps/command/log_prefix.h"
#include "tandem/core/interruption.h"

namespace tandem::apps {

// While it lives, the signals are its own. Computations of the thread that made it throw
// Interrupted when one has come; what does not come to an end that way (a download, a wait for
// other ranks) is ended by a thread with _exit(). Files are whole then, because they get their
// names when they are: what was being written keeps a temporary name, and the next run removes it.
// One at a time in a process.
class StopSignals {
 public:
  explicit StopSignals(LogPrefix log_prefix = {});
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // True once a signal has come.
  const std::atomic<bool>& requested() const;
  // Name and code of the received signal: "SIGTERM", 143. Also if only another rank received it.
  static std::string_view name();
  static int exit_code();

  // While it lives, a first signal only sets requested().
  class Training {
   public:
    explicit Training(StopSignals& signals);
    ~Training();
    Training(const Training&) = delete;
    Training& operator=(const Training&) = delete;

   private:
    StopSignals& signals_;
    InterruptionScope uninterrupted_;
  };
  // The job is ending by itself because of the signal: the thread lets it.
  void let_end() { watching_.store(false); }

 private:
  void watch();

  const LogPrefix log_prefix_;
  InterruptionScope interruption_;
  std::atomic<bool> watching_{true};
  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  std::thread thread_;
};

}  // namespace tandem::apps
