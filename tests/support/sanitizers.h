// Whether this build runs under a sanitizer, which looks for other faults than tests of bits, and is
// tens of times slower.
#pragma once

namespace tandem::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace tandem::testing
