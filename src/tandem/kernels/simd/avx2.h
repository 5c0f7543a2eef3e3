// Internal: a vector of 8 f32 for AVX2 with FMA, with the interface of simd/avx512.h. Include it
// only from sources compiled with those instructions. Everything is always inlined: no symbol of
// this header can reach code that runs on other processors.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "tandem/core/bfloat16.h"
#include "tandem/core/float16.h"
#include "tandem/kernels/simd/transpose.h"

#define TANDEM_SIMD [[gnu::always_inline]] static inline

namespace tandem::kernels::avx2 {

struct Vec {
  static constexpr std::size_t kLanes = 8;
  using Mask = __m256;
  using Words = __m256i;  // 8 unsigned 32-bit integers

  __m256 v;

  // --- memory; "partial" touches the first n < 8 elements and reads zeros beyond ---
  TANDEM_SIMD Vec zero() { return {_mm256_setzero_ps()}; }
  TANDEM_SIMD Vec set1(float x) { return {_mm256_set1_ps(x)}; }
  TANDEM_SIMD Vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
  TANDEM_SIMD Vec load_partial(const float* p, std::size_t n) {
    return {_mm256_maskload_ps(p, first(n))};
  }
  TANDEM_SIMD Vec load(const bfloat16* p) {
    return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  TANDEM_SIMD Vec load_partial(const bfloat16* p, std::size_t n) {
    return widen(load_halves(p, n));
  }
  TANDEM_SIMD void store(Vec a, float* p) { _mm256_storeu_ps(p, a.v); }
  TANDEM_SIMD void store_partial(Vec a, float* p, std::size_t n) {
    _mm256_maskstore_ps(p, first(n), a.v);
  }
  TANDEM_SIMD void store(Vec a, bfloat16* p) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow(a));
  }
  TANDEM_SIMD void store_partial(Vec a, bfloat16* p, std::size_t n) {
    alignas(16) bfloat16 all[kLanes];
    _mm_store_si128(reinterpret_cast<__m128i*>(all), narrow(a));
    for (std::size_t i = 0; i < n; ++i) p[i] = all[i];
  }
  TANDEM_SIMD Vec load(const float16* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
  }
  TANDEM_SIMD Vec load_partial(const float16* p, std::size_t n) {
    return {_mm256_cvtph_ps(load_halves(p, n))};
  }
  TANDEM_SIMD void store(Vec a, float16* p) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), to_half(a));
  }
  TANDEM_SIMD void store_partial(Vec a, float16* p, std::size_t n) {
    alignas(16) float16 all[kLanes];
    _mm_store_si128(reinterpret_cast<__m128i*>(all), to_half(a));
    for (std::size_t i = 0; i < n; ++i) p[i] = all[i];
  }

  // --- arithmetic ---
  [[gnu::always_inline]] friend inline Vec operator+(Vec a, Vec b) {
    return {_mm256_add_ps(a.v, b.v)};
  }
  [[gnu::always_inline]] friend inline Vec operator-(Vec a, Vec b) {
    return {_mm256_sub_ps(a.v, b.v)};
  }
  [[gnu::always_inline]] friend inline Vec operator*(Vec a, Vec b) {
    return {_mm256_mul_ps(a.v, b.v)};
  }
  [[gnu::always_inline]] friend inline Vec operator/(Vec a, Vec b) {
    return {_mm256_div_ps(a.v, b.v)};
  }
  TANDEM_SIMD Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }  // a b + c
  TANDEM_SIMD Vec fnma(Vec a, Vec b, Vec c) {
    return {_mm256_fnmadd_ps(a.v, b.v, c.v)};
  }  // c - a b
  TANDEM_SIMD Vec sqrt(Vec a) { return {_mm256_sqrt_ps(a.v)}; }
  // b where either is NaN: min(limit, x) and max(limit, x) let the NaN of x through.
  TANDEM_SIMD Vec min(Vec a, Vec b) { return {_mm256_min_ps(a.v, b.v)}; }
  TANDEM_SIMD Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.v, b.v)}; }
  TANDEM_SIMD Vec abs(Vec a) { return {_mm256_andnot_ps(sign_bit(), a.v)}; }
  TANDEM_SIMD Vec copy_sign(Vec magnitude, Vec sign) {
    return {
        _mm256_or_ps(_mm256_andnot_ps(sign_bit(), magnitude.v), _mm256_and_ps(sign_bit(), sign.v))};
  }
  TANDEM_SIMD Vec round(Vec a) {
    return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  }
  // a 2^n for integral |n| < 250, with correct overflow and gradual underflow: two factors, since
  // 2^n itself may be out of range.
  TANDEM_SIMD Vec scale_by_power(Vec a, Vec n) {
    const __m256i whole = _mm256_cvtps_epi32(n.v);
    const __m256i half = _mm256_srai_epi32(whole, 1);
    return a * power_of_two(half) * power_of_two(_mm256_sub_epi32(whole, half));
  }
  // The same where a and the result are normal numbers, or a is NaN.
  TANDEM_SIMD Vec scale_normal(Vec a, Vec n) {
    const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n.v), 23);
    return {_mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a.v), exponent))};
  }
  TANDEM_SIMD Mask less(Vec a, Vec b) { return _mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ); }
  TANDEM_SIMD Mask less_equal(Vec a, Vec b) { return _mm256_cmp_ps(a.v, b.v, _CMP_LE_OQ); }
  TANDEM_SIMD Mask lanes_below(std::size_t n) { return _mm256_castsi256_ps(first(n)); }
  TANDEM_SIMD Vec select(Mask m, Vec yes, Vec no) { return {_mm256_blendv_ps(no.v, yes.v, m)}; }

  // --- across lanes, in a fixed order ---
  TANDEM_SIMD float sum(Vec a) {
    __m128 quarters = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
    quarters = _mm_add_ps(quarters, _mm_movehl_ps(quarters, quarters));
    return _mm_cvtss_f32(_mm_add_ss(quarters, _mm_movehdup_ps(quarters)));
  }
  TANDEM_SIMD float largest(Vec a) {
    __m128 quarters = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
    quarters = _mm_max_ps(quarters, _mm_movehl_ps(quarters, quarters));
    return _mm_cvtss_f32(_mm_max_ss(quarters, _mm_movehdup_ps(quarters)));
  }
  // The squares of half the lanes, in f64, added to the 4 lanes of `total`.
  using Doubles = __m256d;
  TANDEM_SIMD Doubles zero_doubles() { return _mm256_setzero_pd(); }
  TANDEM_SIMD Doubles add(Doubles a, Doubles b) { return _mm256_add_pd(a, b); }
  TANDEM_SIMD Doubles add_low_squares(Vec a, Doubles total) {
    const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(a.v));
    return _mm256_fmadd_pd(low, low, total);
  }
  TANDEM_SIMD Doubles add_high_squares(Vec a, Doubles total) {
    const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(a.v, 1));
    return _mm256_fmadd_pd(high, high, total);
  }
  TANDEM_SIMD double sum(Doubles a) {
    const __m128d halves = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
    return _mm_cvtsd_f64(_mm_add_sd(halves, _mm_unpackhi_pd(halves, halves)));
  }

  // --- 32-bit integers, for the dropout generator and tests of bits ---
  TANDEM_SIMD Words words(std::uint32_t x) { return _mm256_set1_epi32(static_cast<int>(x)); }
  // The lanes of the next 8 words of a row, as kept() takes them.
  TANDEM_SIMD Words word_order() { return _mm256_setr_epi32(0, 1, 4, 5, 2, 3, 6, 7); }
  TANDEM_SIMD Words add(Words a, Words b) { return _mm256_add_epi32(a, b); }
  TANDEM_SIMD Words multiply(Words a, Words b) { return _mm256_mullo_epi32(a, b); }
  TANDEM_SIMD Words exclusive_or(Words a, Words b) { return _mm256_xor_si256(a, b); }
  TANDEM_SIMD Words inclusive_or(Words a, Words b) { return _mm256_or_si256(a, b); }
  TANDEM_SIMD bool all_zero(Words a) { return _mm256_testz_si256(a, a) != 0; }
  template <int kBits>
  TANDEM_SIMD Words shift_right(Words a) {
    return _mm256_srli_epi32(a, kBits);
  }
  // Each word decides two neighbouring elements, the low half first: which of 2 x 8 elements, in
  // order, are kept (all ones). Unpacking stays within the halves of a vector, hence word_order().
  struct Kept {
    __m256 first, second;
  };
  TANDEM_SIMD Kept kept(Words word, std::uint32_t threshold) {
    const __m256i limit = _mm256_set1_epi16(static_cast<short>(threshold));
    const __m256i keep = _mm256_cmpeq_epi16(_mm256_max_epu16(word, limit), word);
    return {_mm256_castsi256_ps(_mm256_unpacklo_epi16(keep, keep)),
            _mm256_castsi256_ps(_mm256_unpackhi_epi16(keep, keep))};
  }
  // The kept ones of the first or second 8 elements; zeros for the others.
  TANDEM_SIMD Vec keep_first(Kept kept, Vec a) { return {_mm256_and_ps(kept.first, a.v)}; }
  TANDEM_SIMD Vec keep_second(Kept kept, Vec a) { return {_mm256_and_ps(kept.second, a.v)}; }

  // --- units of packed products: 32 bits, one f32 or a pair of bf16 ---
  TANDEM_SIMD Words load_words(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  }
  TANDEM_SIMD void store_words(Words a, void* p) {
    _mm256_storeu_si256(static_cast<__m256i*>(p), a);
  }
  TANDEM_SIMD void store_word_halves(Words a, void* low, void* high) {
    _mm_storeu_si128(static_cast<__m128i*>(low), _mm256_castsi256_si128(a));
    _mm_storeu_si128(static_cast<__m128i*>(high), _mm256_extracti128_si256(a, 1));
  }
  TANDEM_SIMD Words broadcast(const void* unit) {
    int bits;
    __builtin_memcpy(&bits, unit, sizeof(bits));
    return _mm256_set1_epi32(bits);
  }
  // The f32 of the bf16 in the low or high halves of words.
  TANDEM_SIMD Words low_half(Words pairs) { return _mm256_slli_epi32(pairs, 16); }
  TANDEM_SIMD Words high_half(Words pairs) {
    return _mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xFFFF0000u)));
  }
  // Pairs (even[i], odd[i]) of the first n elements of two rows of bf16; odd may be null: zeros.
  TANDEM_SIMD Words interleave(const bfloat16* even, const bfloat16* odd, std::size_t n) {
    const __m256i low = _mm256_cvtepu16_epi32(load_halves(even, n));
    if (odd == nullptr) return low;
    return _mm256_or_si256(low, _mm256_slli_epi32(_mm256_cvtepu16_epi32(load_halves(odd, n)), 16));
  }
  // The same for whole 16 elements: `first` gets the pairs 0 to 7, `second` 8 to 15.
  TANDEM_SIMD void interleave_two(const bfloat16* even, const bfloat16* odd, Words& first,
                                  Words& second) {
    const __m256i low = load_words(even);
    const __m256i high = odd == nullptr ? _mm256_setzero_si256() : load_words(odd);
    const __m256i outer = _mm256_unpacklo_epi16(low, high);  // pairs 0 to 3, 8 to 11
    const __m256i inner = _mm256_unpackhi_epi16(low, high);  // 4 to 7, 12 to 15
    first = _mm256_permute2x128_si256(outer, inner, 0x20);
    second = _mm256_permute2x128_si256(outer, inner, 0x31);
  }
  TANDEM_SIMD Words as_words(Vec a) { return _mm256_castps_si256(a.v); }
  TANDEM_SIMD Vec from_words(Words a) { return {_mm256_castsi256_ps(a)}; }
  // 8 elements as f32 words, and 8 such rows stored as columns.
  using Eight = __m256;
  TANDEM_SIMD __m256 load_8(const float* p) { return _mm256_loadu_ps(p); }
  TANDEM_SIMD __m256 load_8(const bfloat16* p) { return load(p).v; }
  TANDEM_SIMD void store_transposed(Eight (&rows)[8], std::uint32_t* to, std::size_t ld) {
    simd::transpose_8x8(rows, to, ld);
  }

 private:
  TANDEM_SIMD __m256 sign_bit() {
    return _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(0x80000000u)));
  }
  TANDEM_SIMD __m256i first(std::size_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  TANDEM_SIMD Vec power_of_two(__m256i n) {
    return {
        _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23))};
  }
  template <class Half>
  TANDEM_SIMD __m128i load_halves(const Half* p, std::size_t n) {
    alignas(16) Half all[kLanes] = {};
    for (std::size_t i = 0; i < n; ++i) all[i] = p[i];
    return _mm_load_si128(reinterpret_cast<const __m128i*>(all));
  }
  TANDEM_SIMD __m128i to_half(Vec a) {
    return _mm256_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  TANDEM_SIMD Vec widen(__m128i bits) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16))};
  }
  // Round to nearest even; NaN becomes a quiet NaN of the same sign (as to_bfloat16).
  TANDEM_SIMD __m128i narrow(Vec a) {
    const __m256i bits = _mm256_castps_si256(a.v);
    const __m256i upper = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_srli_epi32(
        _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd), 16);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q));
    const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    const __m256i halves = _mm256_blendv_epi8(rounded, quiet, nan);
    const __m256i packed = _mm256_packus_epi32(halves, halves);  // 0-3 0-3 | 4-7 4-7
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
  }
};

}  // namespace tandem::kernels::avx2

#undef TANDEM_SIMD
