#include "tandem/job/shared_error.h"

#include <algorithm>
#include <exception>
#include <string>
#include <vector>

#include "tandem/comm/texts.h"
#include "tandem/core/interruption.h"

namespace tandem::job {
namespace {

// Returns true if all ranks have failed with this message. False if a rank is gone.
bool all_failed_with(comm::Communicator& communicator, const std::string& words) {
  try {
    const std::vector<std::string> all = comm::all_gather_texts(communicator, words);
    return std::all_of(all.begin(), all.end(), [&](const auto& text) { return text == words; });
  } catch (const CommError&) {
    return false;
  }
}

}  // namespace

void run_with_shared_errors(comm::Communicator& communicator, const std::function<void()>& work) {
  try {
    work();
  } catch (const CommError&) {
    throw;
  } catch (const Interrupted&) {
    throw;  // a stop request is not an error of the input
  } catch (const Error& error) {
    if (all_failed_with(communicator, error.what())) throw SharedError(error);
    throw;
  }
  comm::all_gather_texts(communicator, "");
}

}  // namespace tandem::job
