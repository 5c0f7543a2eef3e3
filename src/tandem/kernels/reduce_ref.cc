// The reference sums and conversions.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tandem/kernels/kernel_tables.h"

namespace tandem::kernels {
namespace {

template <class T>
void add_column_sums(std::size_t rows, std::size_t columns, const T* x, std::size_t ld,
                     float* sums) {
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t c = 0; c < columns; ++c) sums[c] += to_float(x[row * ld + c]);
  }
}

double squared_norm(std::size_t count, const float* x) {
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i)
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

void add(std::size_t count, const float* a, const float* b, float* dst) {
  for (std::size_t i = 0; i < count; ++i) dst[i] = a[i] + b[i];
}

void scale(std::size_t count, float factor, const float* x, float* y) {
  for (std::size_t i = 0; i < count; ++i) y[i] = x[i] * factor;
}

void to_bf16(std::size_t count, const float* from, bfloat16* to) {
  for (std::size_t i = 0; i < count; ++i) to[i] = to_bfloat16(from[i]);
}

void to_f32(std::size_t count, const bfloat16* from, float* to) {
  for (std::size_t i = 0; i < count; ++i) to[i] = to_float(from[i]);
}

float largest(std::size_t count, const float* x) {
  float most = -std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < count; ++i) most = std::max(most, x[i]);
  return most;
}

float exp_sum(std::size_t count, float shift, const float* x) {
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += std::exp(static_cast<double>(x[i]) - shift);
  return static_cast<float>(sum);
}

void scaled_exp(std::size_t count, float shift, float factor, const float* x, float* y) {
  for (std::size_t i = 0; i < count; ++i)
    y[i] = static_cast<float>(factor * std::exp(static_cast<double>(x[i]) - shift));
}

}  // namespace

const ReduceKernels kReduceReference = {
    .f32 = {add_column_sums<float>},
    .bf16 = {add_column_sums<bfloat16>},
    .squared_norm = squared_norm,
    .add = add,
    .scale = scale,
    .to_bf16 = to_bf16,
    .to_f32 = to_f32,
    .largest = largest,
    .exp_sum = exp_sum,
    .scaled_exp = scaled_exp,
};

}  // namespace tandem::kernels
