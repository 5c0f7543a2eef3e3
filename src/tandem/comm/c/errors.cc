// Result codes and messages of the C interface.
#include <new>
#include <utility>

#include "tandem/comm/c/handle.h"

namespace tandem::comm::c {
namespace {

// The last failure of calls without a communicator.
thread_local std::string last_error_of_thread;

std::pair<tdmResult_t, std::string> describe_exception() {
  try {
    throw;
  } catch (const InvalidUsage& error) {
    return {tdmInvalidUsage, error.what()};
  } catch (const InvalidArgument& error) {
    return {tdmInvalidArgument, error.what()};
  } catch (const ConfigError& error) {
    return {tdmInvalidUsage, error.what()};
  } catch (const CommError& error) {
    return {tdmRemoteError, error.what()};
  } catch (const IoError& error) {
    return {tdmSystemError, error.what()};
  } catch (const std::bad_alloc&) {
    return {tdmSystemError, "no memory left"};
  } catch (const std::exception& error) {
    return {tdmInternalError, error.what()};
  } catch (...) {
    return {tdmInternalError, "an exception of unknown type"};
  }
}

}  // namespace

tdmResult_t report_exception(tdmComm_t comm) noexcept {
  try {
    auto [code, text] = describe_exception();
    if (comm == nullptr) {
      last_error_of_thread = std::move(text);
    } else {
      const std::lock_guard lock(comm->error_mutex);
      comm->last_error = std::move(text);
    }
    return code;
  } catch (...) {
    return tdmSystemError;  // no memory even for the message
  }
}

Communicator& communicator_of(tdmComm_t comm) {
  if (comm == nullptr) raise<InvalidArgument>("the communicator is null");
  if (comm->finalized) {
    raise<InvalidUsage>("the communicator is finalized; only tdmCommDestroy may follow");
  }
  return *comm->communicator;
}

void require_no_group(tdmComm_t comm, const char* function) {
  if (comm->group_depth > 0) {
    raise<InvalidUsage>("{} inside a group: {} tdmGroupBegin without tdmGroupEnd", function,
                        comm->group_depth);
  }
}

void require_not_null(const void* pointer, const char* name) {
  if (pointer == nullptr) raise<InvalidArgument>("the argument '{}' is null", name);
}

}  // namespace tandem::comm::c

const char* tdmGetErrorString(tdmResult_t result) {
  switch (result) {
    case tdmSuccess:
      return "no error";
    case tdmSystemError:
      return "the operating system refused memory, a descriptor or a file";
    case tdmInternalError:
      return "an unexpected error inside tandem";
    case tdmInvalidArgument:
      return "an argument of the call is wrong";
    case tdmInvalidUsage:
      return "the environment, the configuration or the order of calls is wrong";
    case tdmRemoteError:
      return "a rank or the network failed, or a wait passed its deadline";
  }
  return "not a result code of tandem";
}

const char* tdmGetLastError(tdmComm_t comm) {
  using namespace tandem::comm::c;
  if (comm == nullptr) return last_error_of_thread.c_str();
  thread_local std::string copy;
  try {
    const std::lock_guard lock(comm->error_mutex);
    copy = comm->last_error;
  } catch (...) {
    return "no memory left for the message";
  }
  return copy.c_str();
}
