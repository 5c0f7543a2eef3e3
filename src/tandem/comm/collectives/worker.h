// A progress thread that advances its rank's started operations while the rank computes.
//
// The communicator is used by one thread at a time: the caller, whose calls hold an Entry, or the
// progress thread for one pass. The caller has priority. The thread never waits for it, and the
// caller waits for one pass at most: a piece of an operation. Between entry and exit of the caller,
// waiting or not, the caller drives all operations.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

#include "tandem/comm/algorithms/task.h"
#include "tandem/net/socket.h"

namespace tandem::comm {

class Worker {
 public:
  // `pass` advances as much as possible and returns kDone if nothing is left to advance. It is
  // called by one thread at a time, never while an Entry exists, and throws nothing. `has_work`
  // reports the same without advancing.
  // `core`: the core to which the thread is bound; negative: none. Throws ConfigError if the system
  // does not allow that core.
  Worker(std::function<Progress()> pass, std::function<bool()> has_work, int core);
  ~Worker();  // stops the thread, after its present pass; no Entry may exist
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Reserves the communicator for the calling thread; may be nested. Without a worker it does
  // nothing.
  class Entry {
   public:
    explicit Entry(Worker* worker) : worker_(worker) {
      if (worker_ != nullptr) worker_->enter();
    }
    ~Entry() {
      if (worker_ != nullptr) worker_->leave();
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    Worker* worker_;
  };

 private:
  void stop();
  void enter();
  void leave();
  void run();
  Progress try_pass();
  void sleep_until_work();

  const std::function<Progress()> pass_;
  const std::function<bool()> has_work_;
  std::recursive_mutex inside_;
  int depth_ = 0;  // depth of entries; guarded by inside_
  std::atomic<int> callers_{0};
  std::atomic<bool> asleep_{false};
  std::atomic<bool> stop_{false};
  net::FileDescriptor event_;
  std::thread thread_;
};

}  // namespace tandem::comm
