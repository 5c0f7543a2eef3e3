// Weights in 8 bits: one scale per output feature, symmetric around 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tandem::quant {

// w[row, column] ≈ values[row, column] · scale[row].
struct Int8Matrix {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::vector<std::int8_t> values;  // [rows, columns]
  std::vector<float> scale;         // [rows], positive and finite
  friend bool operator==(const Int8Matrix&, const Int8Matrix&) = default;
};

// scale = max|w| / 127 of the row, value = nearest-even(w / scale) in [−127, 127]; so no element is
// further than scale / 2 away, in addition to the rounding of the quotient. A row of zeros (or one
// whose scale would be no f32 above 0) gets scale 1 and zeros. weight: [rows, columns] row-major.
// Throws InvalidArgument for another size and for weights that are not finite.
Int8Matrix quantize_rows(std::size_t rows, std::size_t columns, std::span<const float> weight);

// values · scale, overwritten. out: [rows, columns].
void dequantize(const Int8Matrix& matrix, std::span<float> out);

}  // namespace tandem::quant
