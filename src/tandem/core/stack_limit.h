// The limit of stacks (RLIMIT_STACK), from which the main thread's stack and those of new threads
// follow.
#pragma once

#include <cstddef>

namespace tandem {

// Less ends a thread by a signal, without a word.
inline constexpr std::size_t kLeastStack = std::size_t{1} << 20;

// For the beginning of main(), before there are threads: where the soft limit is below kLeastStack,
// raises it, for this process and what it starts, as far as the hard limit allows. Throws
// ConfigError, which names the limit, where that is too low itself.
void ensure_stack();

}  // namespace tandem
