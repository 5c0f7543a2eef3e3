// Whether this build runs under a sanitizer, which looks for other faults than tests of bits, and is
// tens of times slower.
#pragma once

namespace tandem::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// The address sanitizer checks every access of a micro-kernel: a training step of a real model takes minutes.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitized = true;
#else
inline constexpr bool kAddressSanitized = false;
#endif

}  // namespace tandem::testing
