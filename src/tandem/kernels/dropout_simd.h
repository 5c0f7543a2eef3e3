// Internal: dropout masks in vectors.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tandem/kernels/dropout.h"
#include "tandem/kernels/simd/loop.h"

namespace tandem::kernels::simd {

// body(place, factors) for all vectors of `count` columns of one row of a dropout mask, from column
// `first` on, which is even. Places count from 0; the factors are 0 or 1/(1-p).
// The generator makes 2 vectors of factors from 1 vector of words; see dropout_word() for the
// specification.
template <class V, class Body>
[[gnu::always_inline]] inline void for_each_masked_vector(const DropoutMask& mask,
                                                          std::uint32_t row, std::size_t first,
                                                          std::size_t count, Body body) {
  const V scale = V::set1(mask.scale);
  // Once, before the body stores what may alias the mask.
  const std::uint32_t threshold = mask.threshold;
  if (threshold == 0) {
    for_each_vector<V>(
        count, [&](auto at) __attribute__((always_inline)) { body(at, scale); });
    return;
  }
  constexpr std::uint32_t kStep = 0x9E3779B9u;
  constexpr std::size_t kLanes = V::kLanes;
  using Words = typename V::Words;
  const std::uint32_t pair = (row << 15) + static_cast<std::uint32_t>(first / 2);
  Words counter =
      V::add(V::words(pair * kStep + mask.key0), V::multiply(V::iota(), V::words(kStep)));
  const Words key1 = V::words(mask.key1);
  const Words advance = V::words(static_cast<std::uint32_t>(kLanes) * kStep);
  const auto draw = [&](V & low, V & high) __attribute__((always_inline)) {
    Words word = V::exclusive_or(counter, V::template shift_right<16>(counter));
    word = V::exclusive_or(V::multiply(word, V::words(0x7FEB352Du)), key1);
    word = V::exclusive_or(word, V::template shift_right<15>(word));
    word = V::multiply(word, V::words(0x846CA68Bu));
    word = V::exclusive_or(word, V::template shift_right<16>(word));
    V::keep_factors(word, threshold, scale, low, high);
    counter = V::add(counter, advance);
  };
  V low;
  V high;
  std::size_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    draw(low, high);
    body(Whole<V>{i}, low);
    body(Whole<V>{i + kLanes}, high);
  }
  if (i == count) return;
  draw(low, high);
  if (i + kLanes <= count) {
    body(Whole<V>{i}, low);
    i += kLanes;
    low = high;
  }
  if (i < count) body(Ragged<V>{i, count - i}, low);
}

template <class V, class Body>
[[gnu::always_inline]] inline void for_each_masked_vector(const DropoutMask& mask,
                                                          std::uint32_t row, std::size_t count,
                                                          Body body) {
  for_each_masked_vector<V>(mask, row, 0, count, body);
}

}  // namespace tandem::kernels::simd
