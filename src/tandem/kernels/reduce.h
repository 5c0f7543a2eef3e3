// Sums, scalings and conversions over flat arrays. All are element by element, so a range may be
// cut anywhere without changing a bit, except the squared norm and the column sums, which have
// fixed orders of their own.
#pragma once

#include <cstddef>
#include <span>

#include "tandem/core/bfloat16.h"
#include "tandem/kernels/context.h"

namespace tandem::kernels {

// Elements of one partial sum of the squared norm.
inline constexpr std::size_t kNormChunk = 65536;

// partials[i] = sum of x^2 over elements [i kNormChunk, (i+1) kNormChunk) of x, in f64; partials
// has num_chunks(count, kNormChunk) entries. Ranks that own ranges beginning at multiples of
// kNormChunk get the partials that one rank alone would get.
void squared_norm_partials(const Context& ctx, std::size_t count, const float* x, double* partials);

// The sum in index order.
double sum_in_order(std::span<const double> partials);

// sums[c] = the sum over the rows of column c of x, in f32, or += when `accumulate`: the gradient
// of a bias.   x: [rows, columns] T (float or bfloat16).   sums: [columns].
template <class T>
void column_sums(const Context& ctx, std::size_t rows, std::size_t columns, const T* x, float* sums,
                 bool accumulate);

// dst = a + b. dst may be a or b.
void add_arrays(const Context& ctx, std::size_t count, const float* a, const float* b, float* dst);

// x *= factor.
void scale_array(const Context& ctx, std::size_t count, float factor, float* x);

// Round to nearest even; NaN stays NaN.
void convert(const Context& ctx, std::size_t count, const float* from, bfloat16* to);
void convert(const Context& ctx, std::size_t count, const bfloat16* from, float* to);

}  // namespace tandem::kernels
