// Internal: loops that are certainly unrolled, so that arrays of vectors stay in registers.
#pragma once

#include <utility>

namespace tandem::kernels {

template <class F, int... kIndex>
[[gnu::always_inline]] inline void unroll(F&& f, std::integer_sequence<int, kIndex...>) {
  (f(std::integral_constant<int, kIndex>{}), ...);
}

// f(integral_constant<0>), ..., f(integral_constant<kCount - 1>). f must be an always-inlined
// lambda over the ISA's vector type.
template <int kCount, class F>
[[gnu::always_inline]] inline void unroll(F&& f) {
  unroll(f, std::make_integer_sequence<int, kCount>{});
}

}  // namespace tandem::kernels
