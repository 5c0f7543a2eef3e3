#include "tandem/comm/collectives/progress_thread.h"

#include <algorithm>

#include "tandem/comm/collectives/communicator_state.h"
#include "tandem/core/error.h"

namespace tandem::comm {

void ProgressThread::start(int core, std::string text) {
  text_ = std::move(text);
  if (core < 0) return;
  worker_ = std::make_unique<Worker>([this] { return advance_all(); },
                                     [this] { return has_work(); }, core);
}

bool ProgressThread::has_work() {
  if (comm_context_.failure.is_set()) return false;
  std::erase_if(messages_, [](const auto& message) { return message->done.load(); });
  return !messages_.empty() || std::any_of(states_.begin(), states_.end(), [](const auto* state) {
    return !state->pending.empty();
  });
}

// One pass of the progress thread over all started operations. Errors have been reported: the
// caller's next call throws them.
Progress ProgressThread::advance_all() {
  if (!has_work()) return Progress::kDone;
  inside_ = true;
  bool moved = false;
  try {
    for (Communicator::State* state : states_) {
      if (!state->pending.empty()) moved = state->advance_pending() != Progress::kWaiting || moved;
    }
    if (!messages_.empty()) moved = comm_context_.transport->progress({}) || moved;
  } catch (const std::exception& error) {
    comm_context_.monitor->report(fmt::format("{}", error.what()));
  }
  inside_ = false;
  return moved ? Progress::kMoved : Progress::kWaiting;
}

}  // namespace tandem::comm
