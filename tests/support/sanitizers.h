// Whether this build runs under a sanitizer, which looks for other faults than tests of bits, and
// is tens of times slower.
#pragma once

#include <cstdlib>
#include <string>

namespace tandem::testing {

// gcc defines __SANITIZE_*, clang 14 answers __has_feature.
#if defined(__has_feature)
inline constexpr bool kAddressSanitized = __has_feature(address_sanitizer);
inline constexpr bool kThreadSanitized = __has_feature(thread_sanitizer);
#else
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitized = true;
#else
inline constexpr bool kAddressSanitized = false;
#endif
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitized = true;
#else
inline constexpr bool kThreadSanitized = false;
#endif
#endif

inline constexpr bool kSanitized = kAddressSanitized || kThreadSanitized;

// For programs started from now on: MPI libraries leave a kilobyte behind in modules that are
// unloaded when the leak checker looks, so that no suppression can name them.
inline void expect_leaks_of_mpi() {
  if (kAddressSanitized) ::setenv("LSAN_OPTIONS", "detect_leaks=0", 1);
}

// For programs started from now on: a signal of a fault that a test sends ends them. A sanitizer
// would catch it, report it as a fault of theirs and exit.
inline void let_faults_kill() {
  if (!kSanitized) return;
  for (const char* variable : {"ASAN_OPTIONS", "TSAN_OPTIONS"}) {
    const char* const options = std::getenv(variable);
    ::setenv(variable, (std::string(options == nullptr ? "" : options) + " handle_segv=0").c_str(),
             1);
  }
}

}  // namespace tandem::testing
