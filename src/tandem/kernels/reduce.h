// Sums, scalings and conversions over flat arrays. All are element by element, so a range may be
// cut anywhere without changing a bit, except the squared norm and the column sums, which have
// fixed orders of their own.
#pragma once

#include <cstddef>

#include "tandem/core/bfloat16.h"
#include "tandem/kernels/context.h"
#include "tandem/kernels/kernel_set.h"

namespace tandem::kernels {

// sums[c] = the sum over the rows of column c of x, in f32, or += when `accumulate`: the gradient
// of a bias.   x: [rows, columns] T (float or bfloat16).   sums: [columns].
template <class T>
void column_sums(const Context& ctx, std::size_t rows, std::size_t columns, const T* x, float* sums,
                 bool accumulate);

// Round to nearest even; NaN stays NaN.
void convert(const Context& ctx, std::size_t count, const float* from, bfloat16* to);
void convert(const Context& ctx, std::size_t count, const bfloat16* from, float* to);

// --- serial pieces, for a caller that cuts its own chunks and keeps them in the cache ---

// dst = a + b. dst may be a or b.
void add(const KernelSet& kernels, std::size_t count, const float* a, const float* b, float* dst);

// Round to nearest even, and back; the arrays do not overlap.
void convert(const KernelSet& kernels, std::size_t count, const float* from, bfloat16* to);
void convert(const KernelSet& kernels, std::size_t count, const bfloat16* from, float* to);

// y = factor x. y may be x.
void scale(const KernelSet& kernels, std::size_t count, float factor, const float* x, float* y);

// Parts of a softmax. The largest value; a NaN may be skipped.
float largest(const KernelSet& kernels, std::size_t count, const float* x);
// The sum of e^(x - shift), in f32. No x is above shift; a NaN makes it NaN.
float exp_sum(const KernelSet& kernels, std::size_t count, float shift, const float* x);
// y = factor e^(x - shift). No x is above shift. y may be x.
void scaled_exp(const KernelSet& kernels, std::size_t count, float shift, float factor,
                const float* x, float* y);

// The sum of x^2, in f64. Its order depends on `count` and the kernels only: ranks that sum the
// same chunks get the same partial sums.
double squared_norm(const KernelSet& kernels, std::size_t count, const float* x);

}  // namespace tandem::kernels
