#include "tandem/core/interruption.h"

namespace tandem {
namespace {

thread_local const std::atomic<bool>* innermost =  // NOLINT(cppcoreguidelines-avoid-non-const-
    nullptr;                                       // global-variables): see InterruptionScope

}  // namespace

InterruptionScope::InterruptionScope(const std::atomic<bool>& flag) : outer_(innermost) {
  innermost = &flag;
}

InterruptionScope::~InterruptionScope() { innermost = outer_; }

const std::atomic<bool>* interruption_flag() { return innermost; }

void throw_if_interrupted() {
  if (innermost != nullptr && innermost->load(std::memory_order_relaxed))
    raise<Interrupted>("the computation was interrupted");
}

}  // namespace tandem
