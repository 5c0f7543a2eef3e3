// Whether this build runs under a sanitizer, which looks for other faults than tests of bits, and is
// tens of times slower.
#pragma once

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

}  // namespace tandem::testing
