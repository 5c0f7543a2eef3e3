// Dropout with a counter-based generator: whether an element is kept is a pure function of (seed,
// step, site, sample, row within its sequence, column). Threads, ranks, packing and padding do not
// matter, and backward recomputes the mask instead of reading it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tandem/kernels/context.h"
#include "tandem/kernels/sequences.h"

namespace tandem::kernels {

// One place where a model drops. p = 0: none (seed, step and site are not read). 0 <= p < 1.
struct Dropout {
  float p = 0;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint32_t site = 0;
};

// Numbers of the sites of a model: `site` < 1024 counts the places inside a layer; attention head
// h has place kAttentionSite + h.
inline constexpr std::uint32_t kAttentionSite = 16;
constexpr std::uint32_t dropout_site(std::uint32_t layer, std::uint32_t site) {
  return layer * 1024 + site;
}

// The mask of one sequence at one site: the two words of the key, the threshold below which a
// 16-bit draw drops its element (p * 65536 rounded, at most 65535), and the factor of the kept
// ones, 1/(1-p).
struct DropoutMask {
  std::uint32_t key0 = 0;
  std::uint32_t key1 = 0;
  std::uint32_t threshold = 0;
  float scale = 1;
};

// --- The specification. Vector code repeats these three functions; a test compares them element by
// element. ---

// SplitMix64 (Steele, Lea, Flood 2014): one step of the generator from state x.
constexpr std::uint64_t splitmix64(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Throws InvalidArgument unless 0 <= p < 1.
DropoutMask dropout_mask(const Dropout& dropout, std::uint64_t sample);

// The 32 random bits that columns 2*pair and 2*pair+1 of a row share. row < 2^17, pair < 2^15.
// Multipliers of the integer hash "lowbias32" (Wellons 2018).
constexpr std::uint32_t dropout_word(std::uint32_t key0, std::uint32_t key1, std::uint32_t row,
                                     std::uint32_t pair) {
  std::uint32_t word = ((row << 15) + pair) * 0x9E3779B9u + key0;
  word ^= word >> 16;
  word *= 0x7FEB352Du;
  word ^= key1;
  word ^= word >> 15;
  word *= 0x846CA68Bu;
  word ^= word >> 16;
  return word;
}

// The low half of the word decides the even column, the high half the odd one.
constexpr bool dropout_keeps(const DropoutMask& mask, std::uint32_t row, std::uint32_t column) {
  const std::uint32_t word = dropout_word(mask.key0, mask.key1, row, column / 2);
  return ((column % 2 == 0 ? word : word >> 16) & 0xFFFFu) >= mask.threshold;
}

// The factor of an element: 0 or 1/(1-p).
constexpr float dropout_factor(const DropoutMask& mask, std::uint32_t row, std::uint32_t column) {
  return dropout_keeps(mask, row, column) ? mask.scale : 0.0f;
}

// y = x * factor(row within its sequence, column). It is its own backward: pass the gradient as x.
//   x, y: [rows, columns] T (float or bfloat16), row-major; y may be x. columns <= 65536. With p =
//   0 it copies.
// Throws InvalidArgument for a bad p, columns or sequences without sample numbers.
template <class T>
void dropout_forward(const Context& ctx, const Sequences& sequences, std::size_t columns,
                     const Dropout& dropout, const T* x, T* y);

// sum = dropout(x) + residual: the joint of a layer without a norm behind it.
// dropout_add_layer_norm of layer_norm.h is the one with a norm.
//   x: [rows, columns] T.   residual, sum: [rows, columns] f32; sum may be residual, or x (T =
//   float).
template <class T>
void dropout_add_forward(const Context& ctx, const Sequences& sequences, std::size_t columns,
                         const Dropout& dropout, const T* x, const float* residual, float* sum);

// grad_x = grad_sum * factor, rounded to T. grad_sum is the residual's gradient, too.
//   grad_sum: [rows, columns] f32.   grad_x: [rows, columns] T; may be grad_sum (T = float).
template <class T>
void dropout_add_backward(const Context& ctx, const Sequences& sequences, std::size_t columns,
                          const Dropout& dropout, const float* grad_sum, T* grad_x);

}  // namespace tandem::kernels
