// What a tdmComm_t points to, and how exceptions become result codes.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tandem/comm/api/communicator.h"
#include "tandem/comm/api/memory.h"
#include "tandem/comm/tandem_comm.h"
#include "tandem/core/error.h"

struct tdmComm {
  std::unique_ptr<tandem::comm::Communicator> communicator;
  tdmComm* parent = nullptr;
  int children = 0;  // made by split, not yet destroyed
  bool finalized = false;
  std::vector<tandem::comm::CommunicatorMemory> memory;
  int group_depth = 0;
  std::vector<tandem::comm::Request> messages;  // of the open group
  // Under the mutex, because any thread may ask for it.
  std::mutex error_mutex;
  std::string last_error;
};

namespace tandem::comm::c {

// The order of calls is wrong, not a value: tdmInvalidUsage.
class InvalidUsage : public Error {
 public:
  using Error::Error;
};

// To be called in a catch clause: remembers the message of the exception (with `comm`, or for this
// thread) and returns its code.
tdmResult_t report_exception(tdmComm_t comm) noexcept;

// Runs `body`; whatever it throws becomes a code and a message.
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

}  // namespace tandem::comm::c
