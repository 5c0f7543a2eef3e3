// Internal: what a 32-bit unit of the reduction of a packed product is, how units are brought from
// memory and how they are multiplied: an f32, or a pair of bf16. Written once over an instruction
// set's vector type V.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "tandem/kernels/gemm_packed.h"
#include "tandem/kernels/simd/loop.h"
#include "tandem/kernels/simd/math.h"
#include "tandem/kernels/simd/sixteen_lanes.h"

namespace tandem::kernels::simd {

// How pairs of bf16 that follow one another in the reduction, the first one in the low half, are
// packed.
template <class Vector>
struct StoredPairs {
  using V = Vector;
  using T = bfloat16;
  using Words = typename V::Words;
  static constexpr std::size_t kReduced = 2;

  [[gnu::always_inline]] static inline Words across(const bfloat16* row, std::size_t ld, bool last,
                                                    std::size_t n) {
    return V::interleave(row, last ? nullptr : row + ld, n);
  }
  [[gnu::always_inline]] static inline void across_two(const bfloat16* row, std::size_t ld,
                                                       bool last, Words& first, Words& second) {
    V::interleave_two(row, last ? nullptr : row + ld, first, second);
  }
  static GemmUnit unit(const bfloat16* p, std::size_t count) {
    return p[0].bits | (count < 2 ? 0u : static_cast<GemmUnit>(p[1].bits) << 16);
  }
  [[gnu::always_inline]] static inline void transpose_8x8(const bfloat16* rows, std::size_t ld,
                                                          GemmUnit* to, std::size_t ld_to) {
    typename V::Eight block[8];
    for (std::size_t i = 0; i < 8; ++i)
      block[i] = V::load_8(reinterpret_cast<const float*>(rows + i * ld));
    V::store_transposed(block, to, ld_to);
  }
};

// A unit is one f32; bf16 operands are widened on the way in, those of kept weights when they are
// multiplied.
template <class Vector, class Stored>
struct FloatUnit {
  using V = Vector;
  using T = Stored;
  using Words = typename V::Words;
  static constexpr std::size_t kReduced = 1;
  // How a weight is kept: bf16 in pairs, which take half the memory.
  using Kept = std::conditional_t<sizeof(T) == sizeof(float), FloatUnit, StoredPairs<Vector>>;

  [[gnu::always_inline]] static inline Words broadcast(const GemmUnit* p) {
    return V::broadcast(p);
  }
  [[gnu::always_inline]] static inline V multiply_add(Words a, Words b, V sum) {
    return V::fma(V::from_words(a), V::from_words(b), sum);
  }
  static void stage_row(const T* from, std::size_t count, GemmUnit* to) {
    auto* floats = reinterpret_cast<float*>(to);
    std::size_t i = 0;
    for (; i + V::kLanes <= count; i += V::kLanes) V::store(V::load(from + i), floats + i);
    if (i < count) V::store_partial(V::load_partial(from + i, count - i), floats + i, count - i);
  }
  [[gnu::always_inline]] static inline Words across(const T* row, std::size_t, bool,
                                                    std::size_t n) {
    return V::as_words(n == V::kLanes ? V::load(row) : V::load_partial(row, n));
  }
  [[gnu::always_inline]] static inline void across_two(const T* row, std::size_t, bool,
                                                       Words& first, Words& second) {
    first = V::as_words(V::load(row));
    second = V::as_words(V::load(row + V::kLanes));
  }
  // Two vectors of elements that a later product reads as operands.
  template <class Lanes>
  [[gnu::always_inline]] static inline void store_operand(Lanes at, Twice<V> x, float* to) {
    at.store(x, to);
  }
  // The same with zeros for those that dropout drops.
  template <class Lanes, class Kept>
  [[gnu::always_inline]] static inline void store_kept(Lanes at, const Kept& kept, Twice<V> x,
                                                       float* to) {
    at.store(x.zero_unless(kept), to);
  }
  // 2^y for y < 128, as exact as an operand.
  [[gnu::always_inline]] static inline V exp2(V y) { return exp2_below(y); }
  static GemmUnit unit(const T* p, std::size_t) {
    GemmUnit u = 0;
    if constexpr (sizeof(T) == sizeof(u)) {
      std::memcpy(&u, p, sizeof(u));
    } else {
      u = static_cast<GemmUnit>(p->bits) << 16;
    }
    return u;
  }
  [[gnu::always_inline]] static inline void transpose_8x8(const T* rows, std::size_t ld,
                                                          GemmUnit* to, std::size_t ld_to) {
    typename V::Eight block[8];
    for (std::size_t i = 0; i < 8; ++i) block[i] = V::load_8(rows + i * ld);
    V::store_transposed(block, to, ld_to);
  }
};

// A unit is such a pair.
// `Dot` is the instruction: Dot::dot(a, b, sum) adds both products of every lane to its f32 sum, or
// the tiles of amx/tile_config.h. Dot::rounded(x), of two vectors, is what store() writes as
// operands.
template <class Vector, class Dot>
struct PairUnit : StoredPairs<Vector> {
  using V = Vector;
  using T = bfloat16;
  using Words = typename V::Words;
  using Instruction = Dot;
  using Kept = PairUnit;

  [[gnu::always_inline]] static inline Words broadcast(const GemmUnit* p) {
    return V::broadcast(p);
  }
  [[gnu::always_inline]] static inline V multiply_add(Words a, Words b, V sum) {
    return Dot::dot(a, b, sum);
  }
  static void stage_row(const bfloat16* from, std::size_t count, GemmUnit* to) {
    std::memcpy(to, from, count * sizeof(bfloat16));
    if (count % 2 != 0) reinterpret_cast<bfloat16*>(to)[count] = {};
  }
  template <class Lanes>
  [[gnu::always_inline]] static inline void store_operand(Lanes at, Twice<V> x, bfloat16* to) {
    at.store(Dot::rounded(x), to);
  }
  template <class Lanes, class Kept>
  [[gnu::always_inline]] static inline void store_kept(Lanes at, const Kept& kept, Twice<V> x,
                                                       bfloat16* to) {
    at.store(Dot::rounded(x).zero_unless(kept), to);
  }
  [[gnu::always_inline]] static inline V exp2(V y) { return short_exp2_below(y); }
};

}  // namespace tandem::kernels::simd
