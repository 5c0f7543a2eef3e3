// Internal: a vector of 16 f32 for AVX-512 (F, BW, DQ, VL), with the interface of simd/avx2.h.
// Include it only from sources compiled with those instructions. Everything is always inlined: no
// symbol of this header can reach code that runs on other processors.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "tandem/core/bfloat16.h"
#include "tandem/core/float16.h"
#include "tandem/kernels/simd/transpose.h"

#define TANDEM_SIMD [[gnu::always_inline]] static inline

namespace tandem::kernels::avx512 {

struct Vec {
  static constexpr std::size_t kLanes = 16;
  using Mask = __mmask16;
  using Words = __m512i;  // 16 unsigned 32-bit integers

  __m512 v;

  // --- memory; "partial" touches the first n < 16 elements and reads zeros beyond ---
  TANDEM_SIMD Vec zero() { return {_mm512_setzero_ps()}; }
  TANDEM_SIMD Vec set1(float x) { return {_mm512_set1_ps(x)}; }
  TANDEM_SIMD Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
  TANDEM_SIMD Vec load_partial(const float* p, std::size_t n) {
    return {_mm512_maskz_loadu_ps(first(n), p)};
  }
  TANDEM_SIMD Vec load(const bfloat16* p) {
    return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  TANDEM_SIMD Vec load_partial(const bfloat16* p, std::size_t n) {
    return widen(_mm256_maskz_loadu_epi16(first(n), p));
  }
  TANDEM_SIMD void store(Vec a, float* p) { _mm512_storeu_ps(p, a.v); }
  TANDEM_SIMD void store_partial(Vec a, float* p, std::size_t n) {
    _mm512_mask_storeu_ps(p, first(n), a.v);
  }
  TANDEM_SIMD void store(Vec a, bfloat16* p) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(a));
  }
  TANDEM_SIMD void store_partial(Vec a, bfloat16* p, std::size_t n) {
    _mm256_mask_storeu_epi16(p, first(n), narrow(a));
  }
  TANDEM_SIMD Vec load(const float16* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  }
  TANDEM_SIMD Vec load_partial(const float16* p, std::size_t n) {
    return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), p))};
  }
  TANDEM_SIMD void store(Vec a, float16* p) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_half(a));
  }
  TANDEM_SIMD void store_partial(Vec a, float16* p, std::size_t n) {
    _mm256_mask_storeu_epi16(p, first(n), to_half(a));
  }

  // 32 elements past the caches; p: 64-byte aligned. finish_streams() before other threads read.
  TANDEM_SIMD void stream_two(Vec a, Vec b, float* p) {
    _mm512_stream_ps(p, a.v);
    _mm512_stream_ps(p + kLanes, b.v);
  }
  TANDEM_SIMD void stream_two(Vec a, Vec b, bfloat16* p) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(p),
                        _mm512_inserti64x4(_mm512_castsi256_si512(narrow(a)), narrow(b), 1));
  }
  TANDEM_SIMD void finish_streams() { _mm_sfence(); }

  // --- arithmetic ---
  [[gnu::always_inline]] friend inline Vec operator+(Vec a, Vec b) {
    return {_mm512_add_ps(a.v, b.v)};
  }
  [[gnu::always_inline]] friend inline Vec operator-(Vec a, Vec b) {
    return {_mm512_sub_ps(a.v, b.v)};
  }
  [[gnu::always_inline]] friend inline Vec operator*(Vec a, Vec b) {
    return {_mm512_mul_ps(a.v, b.v)};
  }
  [[gnu::always_inline]] friend inline Vec operator/(Vec a, Vec b) {
    return {_mm512_div_ps(a.v, b.v)};
  }
  TANDEM_SIMD Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }  // a b + c
  TANDEM_SIMD Vec fnma(Vec a, Vec b, Vec c) {
    return {_mm512_fnmadd_ps(a.v, b.v, c.v)};
  }  // c - a b
  TANDEM_SIMD Vec sqrt(Vec a) { return {_mm512_sqrt_ps(a.v)}; }
  // b where either is NaN: min(limit, x) and max(limit, x) let the NaN of x through.
  TANDEM_SIMD Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
  TANDEM_SIMD Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
  TANDEM_SIMD Vec abs(Vec a) { return {_mm512_abs_ps(a.v)}; }
  TANDEM_SIMD Vec copy_sign(Vec magnitude, Vec sign) {
    const __m512 bit = _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(0x80000000u)));
    return {_mm512_or_ps(_mm512_andnot_ps(bit, magnitude.v), _mm512_and_ps(bit, sign.v))};
  }
  TANDEM_SIMD Vec round(Vec a) {
    return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  }
  // a 2^n for integral n, with correct overflow and gradual underflow.
  TANDEM_SIMD Vec scale_by_power(Vec a, Vec n) { return {_mm512_scalef_ps(a.v, n.v)}; }
  // The same where a and the result are normal numbers, or a is NaN.
  TANDEM_SIMD Vec scale_normal(Vec a, Vec n) { return scale_by_power(a, n); }
  // a 2^floor(n), 0 for n = -infinity. n - floor(n), rounded down, 0 for an infinite n.
  TANDEM_SIMD Vec scale_by_floor(Vec a, Vec n) { return {_mm512_scalef_ps(a.v, n.v)}; }
  TANDEM_SIMD Vec above_floor(Vec n) {
    return {_mm512_reduce_ps(n.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};
  }
  TANDEM_SIMD Mask less(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ); }
  TANDEM_SIMD Mask less_equal(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ); }
  TANDEM_SIMD Mask lanes_below(std::size_t n) { return first(n); }
  TANDEM_SIMD Vec select(Mask m, Vec yes, Vec no) { return {_mm512_mask_blend_ps(m, no.v, yes.v)}; }

  // --- across lanes, in a fixed order ---
  TANDEM_SIMD float sum(Vec a) {
    const __m256 halves =
        _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
    __m128 quarters = _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
    quarters = _mm_add_ps(quarters, _mm_movehl_ps(quarters, quarters));
    return _mm_cvtss_f32(_mm_add_ss(quarters, _mm_movehdup_ps(quarters)));
  }
  TANDEM_SIMD float largest(Vec a) { return _mm512_reduce_max_ps(a.v); }
  // The sum of the squares of the lanes, in f64, added to the 8 lanes of `total`.
  using Doubles = __m512d;
  TANDEM_SIMD Doubles zero_doubles() { return _mm512_setzero_pd(); }
  TANDEM_SIMD Doubles add_squares(Vec a, Doubles total) {
    const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(a.v));
    const __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(a.v, 1));
    return _mm512_fmadd_pd(high, high, _mm512_fmadd_pd(low, low, total));
  }
  TANDEM_SIMD double sum(Doubles a) { return _mm512_reduce_add_pd(a); }

  // --- 32-bit integers, for the dropout generator and tests of bits ---
  TANDEM_SIMD Words words(std::uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }
  // The lanes of the next 16 words of a row, as kept() takes them.
  TANDEM_SIMD Words word_order() {
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  }
  TANDEM_SIMD Words add(Words a, Words b) { return _mm512_add_epi32(a, b); }
  TANDEM_SIMD Words multiply(Words a, Words b) { return _mm512_mullo_epi32(a, b); }
  TANDEM_SIMD Words exclusive_or(Words a, Words b) { return _mm512_xor_si512(a, b); }
  TANDEM_SIMD Words inclusive_or(Words a, Words b) { return _mm512_or_si512(a, b); }
  TANDEM_SIMD bool all_zero(Words a) { return _mm512_test_epi32_mask(a, a) == 0; }
  template <int kBits>
  TANDEM_SIMD Words shift_right(Words a) {
    return _mm512_srli_epi32(a, kBits);
  }
  // Each word decides two neighbouring elements, the low half first: which of 2 x 16 elements, in
  // order, are kept.
  using Kept = __mmask32;
  TANDEM_SIMD Kept kept(Words word, std::uint32_t threshold) {
    return _mm512_cmpge_epu16_mask(word, _mm512_set1_epi16(static_cast<short>(threshold)));
  }
  // The kept ones of the first or second 16 elements; zeros for the others.
  TANDEM_SIMD Vec keep_first(Kept kept, Vec a) {
    return {_mm512_maskz_mov_ps(static_cast<__mmask16>(kept), a.v)};
  }
  TANDEM_SIMD Vec keep_second(Kept kept, Vec a) {
    return {_mm512_maskz_mov_ps(static_cast<__mmask16>(kept >> 16), a.v)};
  }

  // --- units of packed products: 32 bits, one f32 or a pair of bf16 ---
  TANDEM_SIMD Words load_words(const void* p) { return _mm512_loadu_si512(p); }
  TANDEM_SIMD void store_words(Words a, void* p) { _mm512_storeu_si512(p, a); }
  TANDEM_SIMD void store_word_halves(Words a, void* low, void* high) {
    _mm256_storeu_si256(static_cast<__m256i*>(low), _mm512_castsi512_si256(a));
    _mm256_storeu_si256(static_cast<__m256i*>(high), _mm512_extracti64x4_epi64(a, 1));
  }
  TANDEM_SIMD Words broadcast(const void* unit) {
    int bits;
    __builtin_memcpy(&bits, unit, sizeof(bits));
    return _mm512_set1_epi32(bits);
  }
  TANDEM_SIMD Words as_words(Vec a) { return _mm512_castps_si512(a.v); }
  TANDEM_SIMD Vec from_words(Words a) { return {_mm512_castsi512_ps(a)}; }
  // 8 elements as f32 words, and 8 such rows stored as columns.
  using Eight = __m256;
  TANDEM_SIMD __m256 load_8(const float* p) { return _mm256_loadu_ps(p); }
  TANDEM_SIMD __m256 load_8(const bfloat16* p) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  TANDEM_SIMD void store_transposed(Eight (&rows)[8], std::uint32_t* to, std::size_t ld) {
    simd::transpose_8x8(rows, to, ld);
  }
  // 16 rows of 16 words, 16 apart, become 16 rows that are ld_to words apart. The pieces of 4 words
  // are put in place by loads, so that only the transpositions within them are left to shuffle.
  TANDEM_SIMD void transpose_16(const std::uint32_t* from, std::uint32_t* to, std::size_t ld_to) {
    for (std::size_t column = 0; column < kLanes; column += 4) {
      const auto four_rows = [&](std::size_t row) __attribute__((always_inline)) {
        const auto piece = [&](std::size_t i) __attribute__((always_inline)) {
          return _mm_load_ps(reinterpret_cast<const float*>(from + i * kLanes + column));
        };
        __m512 rows = _mm512_castps128_ps512(piece(row));
        rows = _mm512_insertf32x4(rows, piece(row + 4), 1);
        rows = _mm512_insertf32x4(rows, piece(row + 8), 2);
        return _mm512_insertf32x4(rows, piece(row + 12), 3);
      };
      const __m512 a = four_rows(0), b = four_rows(1), c = four_rows(2), d = four_rows(3);
      const auto store = [&](std::size_t i, __m512d row) __attribute__((always_inline)) {
        _mm512_storeu_pd(to + (column + i) * ld_to, row);
      };
      const __m512d ab_low = _mm512_castps_pd(_mm512_unpacklo_ps(a, b));
      const __m512d ab_high = _mm512_castps_pd(_mm512_unpackhi_ps(a, b));
      const __m512d cd_low = _mm512_castps_pd(_mm512_unpacklo_ps(c, d));
      const __m512d cd_high = _mm512_castps_pd(_mm512_unpackhi_ps(c, d));
      store(0, _mm512_unpacklo_pd(ab_low, cd_low));
      store(1, _mm512_unpackhi_pd(ab_low, cd_low));
      store(2, _mm512_unpacklo_pd(ab_high, cd_high));
      store(3, _mm512_unpackhi_pd(ab_high, cd_high));
    }
  }
  // The f32 of the bf16 in the low or high halves of words.
  TANDEM_SIMD Words low_half(Words pairs) { return _mm512_slli_epi32(pairs, 16); }
  TANDEM_SIMD Words high_half(Words pairs) {
    return _mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u)));
  }
  // Pairs (even[i], odd[i]) of the first n elements of two rows of bf16; odd may be null: zeros.
  TANDEM_SIMD Words interleave(const bfloat16* even, const bfloat16* odd, std::size_t n) {
    const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first(n), even));
    if (odd == nullptr) return low;
    const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first(n), odd));
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
  }

  // The same for whole 32 elements: `first` gets the pairs 0 to 15, `second` 16 to 31.
  TANDEM_SIMD void interleave_two(const bfloat16* even, const bfloat16* odd, Words& first,
                                  Words& second) {
    alignas(64) static constexpr std::uint16_t kFirst[32] = {
        0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
        8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    const __m512i pick = _mm512_load_si512(kFirst);
    const __m512i low = _mm512_loadu_si512(even);
    const __m512i high = odd == nullptr ? _mm512_setzero_si512() : _mm512_loadu_si512(odd);
    first = _mm512_permutex2var_epi16(low, pick, high);
    second = _mm512_permutex2var_epi16(low, _mm512_add_epi16(pick, _mm512_set1_epi16(16)), high);
  }

 private:
  TANDEM_SIMD __mmask16 first(std::size_t n) { return static_cast<__mmask16>((1u << n) - 1u); }
  TANDEM_SIMD __m256i to_half(Vec a) {
    return _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  TANDEM_SIMD Vec widen(__m256i bits) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
  }
  // Round to nearest even; NaN becomes a quiet NaN of the same sign (as to_bfloat16). The remaining
  // bits are the upper halves of the words; one permutation of halves collects them.
  TANDEM_SIMD __m256i narrow(Vec a) {
    alignas(64) static constexpr std::uint16_t kUpper[32] = {1,  3,  5,  7,  9,  11, 13, 15,
                                                             17, 19, 21, 23, 25, 27, 29, 31};
    const __m512i bits = _mm512_castps_si512(a.v);
    const __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
    const __mmask16 nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
    __m512i rounded = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF));
    rounded = _mm512_mask_add_epi32(rounded, odd, rounded, _mm512_set1_epi32(1));
    rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
    return _mm512_castsi512_si256(_mm512_permutexvar_epi16(_mm512_load_si512(kUpper), rounded));
  }
};

}  // namespace tandem::kernels::avx512

#undef TANDEM_SIMD
