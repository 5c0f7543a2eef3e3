// The reference of int8.h: one element of y after the other, in the order that the header gives.
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "tandem/kernels/kernel_tables.h"

namespace tandem::kernels {
namespace {

template <class T>
void min_max(std::size_t count, const T* x, float* min, float* max) {
  *min = 0;
  *max = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const float value = to_float(x[i]);
    if (value < *min) *min = value;
    if (value > *max) *max = value;
  }
}

// Clamped before it is rounded: the limits are whole numbers, and the quotient may be too large for
// an integer.
std::uint8_t quantized(float x, Int8Range range) {
  const float low = -static_cast<float>(range.zero_point);
  const float high = 255.0f + low;
  const float quotient = x / range.scale;
  const float clamped = std::min(quotient > low ? quotient : low, high);
  return static_cast<std::uint8_t>(std::lrint(clamped) + range.zero_point);
}

template <class T>
bool quantize(std::size_t count, const T* x, Int8Range range, std::byte* q) {
  bool has_nan = false;
  for (std::size_t i = 0; i < count; ++i) {
    const float value = to_float(x[i]);
    q[i] = std::byte{quantized(value, range)};
    has_nan = has_nan || std::isnan(value);
  }
  return has_nan;
}

template <class T>
std::int32_t weight_at(const Int8Product<T>& p, std::size_t n, std::size_t k) {
  return p.panels[n / kInt8Panel * p.panel_bytes + k / kInt8Group * kInt8GroupBytes +
                  n % kInt8Panel * kInt8Group + k % kInt8Group];
}

template <class T>
void multiply(const Int8Product<T>& p) {
  for (std::size_t r = 0; r < p.rows; ++r) {
    const std::byte* x = p.x + r * p.row_bytes;
    for (std::size_t n = 0; n < p.columns; ++n) {
      std::int32_t sum = 0;
      for (std::size_t k = 0; k < p.groups * kInt8Group; ++k) {
        sum += std::to_integer<std::int32_t>(x[k]) * weight_at(p, n, k);
      }
      sum -= p.row[r].zero_point * p.row_sums[n];
      const float y = static_cast<float>(sum) * (p.row[r].scale * p.scale[n]);
      p.y[r * p.ld + n] = to_storage<T>(p.bias == nullptr ? y : y + p.bias[n]);
    }
  }
}

// Eight independent chains of multiply and add, as in gemm_ref.cc.
double peak(std::size_t iterations) {
  volatile std::uint32_t sink = 0;
  std::uint32_t chain[8] = {};
  for (std::size_t i = 0; i < iterations; ++i) {
    for (std::uint32_t& x : chain) x = x * 3u + 1u;
  }
  for (const std::uint32_t x : chain) sink = sink + x;
  return 16.0 * static_cast<double>(iterations);
}

}  // namespace

const Int8Kernels kInt8Reference = {
    .element_bytes = 1,
    .row_block = 1,
    .f32 = {.min_max = min_max, .quantize = quantize, .multiply = multiply},
    .bf16 = {.min_max = min_max, .quantize = quantize, .multiply = multiply},
    .peak = peak,
};

}  // namespace tandem::kernels
