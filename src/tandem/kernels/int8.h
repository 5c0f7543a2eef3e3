// Linear layers on 8-bit integers: y = x W^T + b with the rows of x as u8, W as s8 and sums in s32.
//
// The scheme (Jacob et al. 2018, "Quantization and Training of Neural Networks for Efficient
// Integer-Arithmetic-Only Inference"): a weight is w ≈ scale[out] w8, symmetric for every output
// feature; an activation is x ≈ scale (q - zero_point), asymmetric, with one Int8Range for all rows
// (static) or one per row (dynamic). Then
//
//   y[r, n] = float(sum_k (q[r, k] - zero_point) w8[n, k]) (scale scale_w[n]) + bias[n]
//
// The sum is exact. The remaining steps are f32 in this one order: the integer is rounded, the two
// scales are multiplied, their product is applied, the bias is added, each with one rounding. A y
// in bf16 is rounded once more. So all implementations, numbers of threads and cuts of the rows
// give the same bits.
//
// How far y is from the f32 layer: while x lies in its range, every activation is at most scale / 2
// away and every weight at most scale_w / 2, hence
//   |error| <= scale / 2 sum_k |w| + scale_w / 2 sum_k |scale (q - zero_point)|
// and the roundings of f32 in addition.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tandem/core/buffer.h"
#include "tandem/kernels/context.h"

namespace tandem::kernels {

// q = clamp(nearest-even(x / scale) + zero_point, 0, 255); x ≈ (q - zero_point) scale.
struct Int8Range {
  float scale = 1;  // positive and finite
  std::uint8_t zero_point = 0;
  friend bool operator==(const Int8Range&, const Int8Range&) = default;
};

// The range of values from `min` to `max`; widened to hold 0, which is then exact. scale = (max -
// min) / 255 and zero_point = nearest-even(-min / scale); both 0: scale 1. Throws InvalidArgument
// for what is not finite or too far apart for f32.
Int8Range int8_range(float min, float max);

// The weight of a linear layer, packed for the kernels. Movable, not copyable; constant once made,
// so any number of threads may use one. It may be used with any Context, whatever kernels that has.
class Int8Weight {
 public:
  // More input features might overflow a sum in s32.
  static constexpr std::size_t kMaxInFeatures = 65536;

  // weight: [out_features, in_features] row-major.   scale: [out_features], positive and finite.
  // Copies both. Throws InvalidArgument for sizes that disagree or are 0, and for other scales.
  static Int8Weight pack(const Context& ctx, std::size_t out_features, std::size_t in_features,
                         std::span<const std::int8_t> weight, std::span<const float> scale);

  std::size_t out_features() const { return out_features_; }
  std::size_t in_features() const { return in_features_; }
  std::span<const float> scale() const { return {scale_.data(), out_features_}; }
  // The weight as it was given to pack(): [out_features, in_features].
  std::vector<std::int8_t> unpack() const;
  std::size_t bytes() const;  // bytes of memory

  // For the operations: kernel_tables.h describes the panels. Scales and sums of rows are followed
  // by zeros up to a whole panel.
  const std::int8_t* panels() const { return panels_.as<std::int8_t>().data(); }
  std::size_t panel_bytes() const { return panel_bytes_; }
  const float* panel_scale() const { return scale_.data(); }
  const std::int32_t* row_sums() const { return row_sums_.data(); }

 private:
  std::size_t out_features_ = 0, in_features_ = 0;
  std::size_t panel_bytes_ = 0;
  Buffer panels_;
  std::vector<float> scale_;
  std::vector<std::int32_t> row_sums_;
};

// y = x weight^T + bias, overwritten, all of x in one range; what lies outside is clamped. A row of
// x with a NaN gives a row of NaN.
//   x: [rows, in_features] T.   bias: [out_features] f32 or null.   y: [rows, out_features] T.
//   T: float or bfloat16.
// Row-major and dense; y must not overlap x. Parallel over ctx.threads; nothing is allocated once
// shapes repeat. Throws InvalidArgument for a scale that is not positive and finite.
template <class T>
void int8_linear_forward(const Context& ctx, std::size_t rows, const Int8Weight& weight,
                         const Int8Range& range, const T* x, const float* bias, T* y);

// The same with int8_range() of each row's smallest and largest value. A row of x with a NaN or an
// infinity gives a row of NaN.
template <class T>
void int8_linear_forward_dynamic(const Context& ctx, std::size_t rows, const Int8Weight& weight,
                                 const T* x, const float* bias, T* y);

}  // namespace tandem::kernels
