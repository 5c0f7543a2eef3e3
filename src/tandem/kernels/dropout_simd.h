// Internal: dropout masks in vectors.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tandem/kernels/dropout.h"
#include "tandem/kernels/simd/loop.h"
#include "tandem/kernels/simd/sixteen_lanes.h"

namespace tandem::kernels::simd {

// Which columns of a row of a dropout mask are kept, from column `first` on, which is even; see
// dropout_word() for the specification.
template <class V>
class KeptColumns {
 public:
  [[gnu::always_inline]] KeptColumns(const DropoutMask& mask, std::uint32_t row, std::size_t first)
      : key1_(V::words(mask.key1)), threshold_(mask.threshold) {
    const std::uint32_t pair = (row << 15) + static_cast<std::uint32_t>(first / 2);
    counter_ =
        V::add(V::words(pair * kStep + mask.key0), V::multiply(V::word_order(), V::words(kStep)));
  }

  // The decisions about the next two vectors.
  [[gnu::always_inline]] typename V::Kept draw() {
    Words word = V::exclusive_or(counter_, V::template shift_right<16>(counter_));
    word = V::exclusive_or(V::multiply(word, V::words(0x7FEB352Du)), key1_);
    word = V::exclusive_or(word, V::template shift_right<15>(word));
    word = V::multiply(word, V::words(0x846CA68Bu));
    word = V::exclusive_or(word, V::template shift_right<16>(word));
    counter_ = V::add(counter_, V::words(static_cast<std::uint32_t>(V::kLanes) * kStep));
    return V::kept(word, threshold_);
  }

 private:
  static constexpr std::uint32_t kStep = 0x9E3779B9u;
  using Words = typename V::Words;
  Words counter_, key1_;
  std::uint32_t threshold_;
};

// loop(body(place)) with body(place, kept) for the columns of a row of a dropout mask, from column
// `first` on, which is even. Places have two vectors of V; zero_unless(kept) drops elements of one.
template <class V, class Loop, class Body>
[[gnu::always_inline]] inline void draw_along(const DropoutMask& mask, std::uint32_t row,
                                              std::size_t first, Loop loop, Body body) {
  if (mask.threshold == 0)
    return loop([&](auto at) __attribute__((always_inline)) { body(at, AllKept{}); });
  KeptColumns<V> columns(mask, row, first);
  loop([&](auto at) __attribute__((always_inline)) { body(at, columns.draw()); });
}

// body(place, kept) for `count` columns. Places count from 0.
template <class V, class Body>
[[gnu::always_inline]] inline void for_each_kept_pair(const DropoutMask& mask, std::uint32_t row,
                                                      std::size_t count, Body body) {
  draw_along<V>(
      mask, row,
      0, [&](auto f) __attribute__((always_inline)) { for_each_vector<Twice<V>>(count, f); }, body);
}

// The same from column `first` on. has_room: the last place may be Padded.
template <class V, class Body>
[[gnu::always_inline]] inline void for_each_kept_pair(const DropoutMask& mask, std::uint32_t row,
                                                      std::size_t first, std::size_t count,
                                                      bool has_room, Body body) {
  draw_along<V>(
      mask, row, first,
      [&](auto f)
          __attribute__((always_inline)) { for_each_padded_vector<Twice<V>>(count, has_room, f); },
      body);
}

// body(place, half) for the places of a pair.
template <class V, class Body>
[[gnu::always_inline]] inline void for_each_half(Whole<Twice<V>> at, Twice<V> pair, Body body) {
  body(Whole<V>{at.index}, pair.low);
  body(Whole<V>{at.index + V::kLanes}, pair.high);
}
template <class V, class Body>
[[gnu::always_inline]] inline void for_each_half(Ragged<Twice<V>> at, Twice<V> pair, Body body) {
  if (at.count < V::kLanes) return body(Ragged<V>{at.index, at.count}, pair.low);
  body(Whole<V>{at.index}, pair.low);
  if (at.count > V::kLanes) body(Ragged<V>{at.index + V::kLanes, at.count - V::kLanes}, pair.high);
}

// body(place, factors) for all vectors of `count` columns of a row; the factors are 0 or 1/(1-p).
template <class V, class Body>
[[gnu::always_inline]] inline void for_each_masked_vector(const DropoutMask& mask,
                                                          std::uint32_t row, std::size_t count,
                                                          Body body) {
  if constexpr (requires { typename V::Half; }) {
    const V scale = V::set1(mask.scale);
    for_each_kept_pair<typename V::Half>(
        mask, row, count, [&](auto at, const auto& kept) __attribute__((always_inline)) {
          body(at, scale.zero_unless(kept));
        });
  } else {
    const Twice<V> scale = Twice<V>::set1(mask.scale);
    for_each_kept_pair<V>(
        mask, row, count, [&](auto at, const auto& kept) __attribute__((always_inline)) {
          for_each_half(at, scale.zero_unless(kept), body);
        });
  }
}

}  // namespace tandem::kernels::simd
