// The object behind a tdmComm_t, and the conversion of exceptions to result codes.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tandem/comm/c/mailbox.h"
#include "tandem/comm/communicator.h"
#include "tandem/comm/memory.h"
#include "tandem/comm/tandem_comm.h"
#include "tandem/core/error.h"

namespace tandem::comm::c {

// Mutual exclusion of threads that start operations and threads that wait, for a communicator and
// those split from it.
class EntryLock {
 public:
  class Entry {
   public:
    explicit Entry(EntryLock& entry_lock) : lock_(entry_lock) {
      lock_.outside_.fetch_add(1);
      lock_.mutex_.lock();
      lock_.outside_.fetch_sub(1);
    }
    ~Entry() { lock_.mutex_.unlock(); }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    EntryLock& lock_;
  };
  // True if another thread wants to enter.
  bool is_wanted() const { return outside_.load() > 0; }

 private:
  std::mutex mutex_;
  std::atomic<int> outside_{0};
};

}  // namespace tandem::comm::c

struct tdmComm {
  std::unique_ptr<tandem::comm::Communicator> communicator;
  tdmComm* parent = nullptr;
  int children = 0;  // split from this one, not yet destroyed
  bool finalized = false;
  std::vector<tandem::comm::CommunicatorMemory> memory;
  int group_depth = 0;
  std::vector<tandem::comm::Request> messages;             // messages of the open group
  std::shared_ptr<tandem::comm::c::EntryLock> entry_lock;  // shared with those split from it
  std::unique_ptr<tandem::comm::c::Mailbox> mailbox;
  // Guarded by the mutex, because any thread may read it.
  std::mutex error_mutex;
  std::string last_error;
};

namespace tandem::comm::c {

// The order of calls is wrong, not a value: tdmInvalidUsage.
class InvalidUsage : public Error {
 public:
  using Error::Error;
};

// Call in a catch clause: records the message of the exception (with `comm`, or for this thread)
// and returns its code.
tdmResult_t report_exception(tdmComm_t comm) noexcept;

// Runs `body`; any exception becomes a code and a message.
template <class Body>
tdmResult_t guarded(tdmComm_t comm, Body body) noexcept {
  try {
    body();
    return tdmSuccess;
  } catch (...) {
    return report_exception(comm);
  }
}

// The communicator behind a handle. Throws InvalidArgument for null, InvalidUsage after
// tdmCommFinalize.
Communicator& communicator_of(tdmComm_t comm);
// Throws InvalidUsage between tdmGroupBegin and tdmGroupEnd.
void require_no_group(tdmComm_t comm, const char* function);
// Throws InvalidArgument that names the null argument.
void require_not_null(const void* pointer, const char* name);
// Throws InvalidArgument for an invalid rank.
void check_rank(const Communicator& communicator, const char* name, int rank);

}  // namespace tandem::comm::c
