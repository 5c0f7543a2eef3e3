// A helper thread that advances what its rank has started while the rank computes.
//
// Whoever is inside the communicator has it for itself: the caller, whose calls hold an Entry, or
// the thread for one pass. The caller comes first. The thread never waits for it, and the caller
// waits for one pass at most: a piece of an operation. While the caller is inside, waiting or not,
// it drives everything itself.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

#include "tandem/comm/algorithms/task.h"
#include "tandem/rendezvous/socket.h"

namespace tandem::comm {

class Worker {
 public:
  // `pass` advances what can be advanced and returns kDone when there is nothing left to advance.
  // It is called by one thread at a time, never while an Entry exists, and throws nothing.
  // `has_work` tells the same without advancing.
  // `core`: where the thread is bound; negative: nowhere. Throws ConfigError when the system does
  // not allow that core.
  Worker(std::function<Progress()> pass, std::function<bool()> has_work, int core);
  ~Worker();  // stops the thread, which is in a pass at most; no Entry may exist
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // The calling thread is inside for as long as it lives; may be nested. Without a worker it does
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
  int depth_ = 0;  // of entries; guarded by inside_
  std::atomic<int> callers_{0};
  std::atomic<bool> asleep_{false};
  std::atomic<bool> stop_{false};
  rendezvous::FileDescriptor event_;
  std::thread thread_;
};

}  // namespace tandem::comm
