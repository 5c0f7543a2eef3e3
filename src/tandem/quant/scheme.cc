#include "tandem/quant/scheme.h"

#include <algorithm>
#include <cmath>

#include "tandem/core/error.h"

namespace tandem::quant {
namespace {

constexpr float kLargest = 127;

float scale_of(std::span<const float> row) {
  float largest = 0;
  for (const float w : row) {
    if (!std::isfinite(w)) raise<InvalidArgument>("a weight is {}; expected finite numbers", w);
    largest = std::max(largest, std::fabs(w));
  }
  const float scale = largest / kLargest;
  return scale > 0 ? scale : 1.0f;
}

}  // namespace

Int8Matrix quantize_rows(std::size_t rows, std::size_t columns, std::span<const float> weight) {
  if (weight.size() != rows * columns) {
    raise<InvalidArgument>("{} weights; expected {} rows × {} columns", weight.size(), rows,
                           columns);
  }
  Int8Matrix matrix{.rows = rows,
                    .columns = columns,
                    .values = std::vector<std::int8_t>(weight.size()),
                    .scale = std::vector<float>(rows)};
  for (std::size_t r = 0; r < rows; ++r) {
    const std::span<const float> row = weight.subspan(r * columns, columns);
    const float scale = scale_of(row);
    matrix.scale[r] = scale;
    for (std::size_t c = 0; c < columns; ++c) {
      const float rounded = std::nearbyint(row[c] / scale);
      matrix.values[r * columns + c] =
          static_cast<std::int8_t>(std::clamp(rounded, -kLargest, kLargest));
    }
  }
  return matrix;
}

void dequantize(const Int8Matrix& matrix, std::span<float> out) {
  TANDEM_CHECK(out.size() == matrix.values.size(), "room for {} values of {}", out.size(),
               matrix.values.size());
  for (std::size_t r = 0; r < matrix.rows; ++r) {
    for (std::size_t i = r * matrix.columns; i < (r + 1) * matrix.columns; ++i) {
      out[i] = static_cast<float>(matrix.values[i]) * matrix.scale[r];
    }
  }
}

}  // namespace tandem::quant
