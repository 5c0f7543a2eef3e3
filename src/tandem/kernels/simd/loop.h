// Internal: loops over arrays in vectors, the ragged end included.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tandem/kernels/dropout.h"

namespace tandem::kernels::simd {

// The place of one vector in the arrays of a loop.
template <class V>
struct Whole {
  std::size_t index;
  template <class T>
  [[gnu::always_inline]] V load(const T* p) const {
    return V::load(p + index);
  }
  // X: V, or a type of an instruction set that stores itself in another way.
  template <class X, class T>
  [[gnu::always_inline]] void store(X x, T* p) const {
    X::store(x, p + index);
  }
  // x itself: every lane counts.
  [[gnu::always_inline]] V keep(V x) const { return x; }
  [[gnu::always_inline]] V keep_or(V x, V) const { return x; }
};

// The last, shorter one: lanes at and beyond `count` load as zero and are not stored.
template <class V>
struct Ragged {
  std::size_t index;
  std::size_t count;
  template <class T>
  [[gnu::always_inline]] V load(const T* p) const {
    return V::load_partial(p + index, count);
  }
  template <class X, class T>
  [[gnu::always_inline]] void store(X x, T* p) const {
    X::store_partial(x, p + index, count);
  }
  // Zero in the lanes that do not count.
  [[gnu::always_inline]] V keep(V x) const { return keep_or(x, V::zero()); }
  // `other` in the lanes that do not count.
  [[gnu::always_inline]] V keep_or(V x, V other) const {
    return V::select(V::lanes_below(count), x, other);
  }
};

// body(place) for all vectors of [begin, end).
template <class V, class Body>
[[gnu::always_inline]] inline void for_each_vector(std::size_t begin, std::size_t end, Body body) {
  std::size_t i = begin;
  for (; i + V::kLanes <= end; i += V::kLanes) body(Whole<V>{i});
  if (i < end) body(Ragged<V>{i, end - i});
}

template <class V, class Body>
[[gnu::always_inline]] inline void for_each_vector(std::size_t count, Body body) {
  for_each_vector<V>(0, count, body);
}

// body(place, factors) for all vectors of one row of a dropout mask; the factors are 0 or 1/(1-p).
// The generator makes 2 vectors of factors from 1 vector of words; see dropout_word() for the
// specification.
template <class V, class Body>
[[gnu::always_inline]] inline void for_each_masked_vector(const DropoutMask& mask,
                                                          std::uint32_t row, std::size_t count,
                                                          Body body) {
  const V scale = V::set1(mask.scale);
  if (mask.threshold == 0) {
    for_each_vector<V>(
        count, [&](auto place) __attribute__((always_inline)) { body(place, scale); });
    return;
  }
  constexpr std::uint32_t kStep = 0x9E3779B9u;
  constexpr std::size_t kLanes = V::kLanes;
  using Words = typename V::Words;
  Words counter =
      V::add(V::words((row << 15) * kStep + mask.key0), V::multiply(V::iota(), V::words(kStep)));
  const Words advance = V::words(static_cast<std::uint32_t>(kLanes) * kStep);
  const auto draw = [&](V & low, V & high) __attribute__((always_inline)) {
    Words word = V::exclusive_or(counter, V::template shift_right<16>(counter));
    word = V::exclusive_or(V::multiply(word, V::words(0x7FEB352Du)), V::words(mask.key1));
    word = V::exclusive_or(word, V::template shift_right<15>(word));
    word = V::multiply(word, V::words(0x846CA68Bu));
    word = V::exclusive_or(word, V::template shift_right<16>(word));
    V::keep_factors(word, mask.threshold, scale, low, high);
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

}  // namespace tandem::kernels::simd
