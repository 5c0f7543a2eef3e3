#include "tandem/kernels/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tandem/core/error.h"
#include "tandem/kernels/kernel_tables.h"
#include "tandem/kernels/row_chunks.h"

namespace tandem::kernels {
namespace {

void check_halves(std::size_t head_dim) {
  if (head_dim == 0 || head_dim % 2 != 0)
    raise<InvalidArgument>("rotary positions need heads of two halves; found {} columns", head_dim);
}

void check_shape(const Sequences& sequences, std::size_t heads, std::size_t head_dim,
                 const RotaryTable& table, std::size_t ld) {
  check_sequences(sequences);
  check_halves(head_dim);
  if (heads * head_dim > ld) {
    raise<InvalidArgument>("{} heads of {} columns do not fit in rows of {} elements", heads,
                           head_dim, ld);
  }
  for (std::size_t i = 0; i < sequences.count(); ++i) {
    if (sequences.rows_of(i) > table.positions) {
      raise<InvalidArgument>("sequence {} has {} rows; the rotary table has {} positions", i,
                             sequences.rows_of(i), table.positions);
    }
  }
}

template <class T>
void rotate(const Context& ctx, const Sequences& sequences, std::size_t heads, std::size_t head_dim,
            const RotaryTable& table, float direction, T* x, std::size_t ld) {
  check_shape(sequences, heads, head_dim, table, ld);
  const std::size_t half = head_dim / 2;
  for_each_row(ctx, sequences, head_dim, Dropout{}, [&](const BatchRow& row, int) {
    of<T>(*ctx.kernels.rotary)
        .rotate({.heads = heads,
                 .half = half,
                 .cos = table.cos + row.in_sequence * half,
                 .sin = table.sin + row.in_sequence * half,
                 .direction = direction,
                 .x = x + row.index * ld});
  });
}

// transformers' _compute_llama3_parameters, in f32 as there.
float scaled(float frequency, const RotaryScaling& scaling) {
  const auto positions = static_cast<double>(scaling.original_positions);
  const float wavelength = static_cast<float>(2 * std::numbers::pi) / frequency;
  const double low = scaling.low_frequency_factor, high = scaling.high_frequency_factor;
  if (wavelength < static_cast<float>(positions / high)) return frequency;
  const auto factor = static_cast<float>(scaling.factor);
  if (wavelength > static_cast<float>(positions / low)) return frequency / factor;
  const float share = (static_cast<float>(positions) / wavelength - static_cast<float>(low)) /
                      static_cast<float>(high - low);
  return (1.0f - share) * frequency / factor + share * frequency;
}

}  // namespace

void fill_rotary_table(double theta, std::size_t head_dim, std::size_t positions, float* cos,
                       float* sin, const RotaryScaling* scaling) {
  check_halves(head_dim);
  if (!(theta > 0)) raise<InvalidArgument>("rotary theta is {}; expected a positive number", theta);
  const std::size_t half = head_dim / 2;
  for (std::size_t j = 0; j < half; ++j) {
    const float exponent = static_cast<float>(2 * j) / static_cast<float>(head_dim);
    float frequency = 1.0f / std::pow(static_cast<float>(theta), exponent);
    if (scaling != nullptr) frequency = scaled(frequency, *scaling);
    for (std::size_t position = 0; position < positions; ++position) {
      const double angle = static_cast<float>(position) * frequency;
      cos[position * half + j] = static_cast<float>(std::cos(angle));
      sin[position * half + j] = static_cast<float>(std::sin(angle));
    }
  }
}

template <class T>
void rotary_forward(const Context& ctx, const Sequences& sequences, std::size_t heads,
                    std::size_t head_dim, const RotaryTable& table, T* x, std::size_t ld) {
  rotate(ctx, sequences, heads, head_dim, table, 1.0f, x, ld);
}

template <class T>
void rotary_backward(const Context& ctx, const Sequences& sequences, std::size_t heads,
                     std::size_t head_dim, const RotaryTable& table, T* grad, std::size_t ld) {
  rotate(ctx, sequences, heads, head_dim, table, -1.0f, grad, ld);
}

template void rotary_forward(const Context&, const Sequences&, std::size_t, std::size_t,
                             const RotaryTable&, float*, std::size_t);
template void rotary_forward(const Context&, const Sequences&, std::size_t, std::size_t,
                             const RotaryTable&, bfloat16*, std::size_t);
template void rotary_backward(const Context&, const Sequences&, std::size_t, std::size_t,
                              const RotaryTable&, float*, std::size_t);
template void rotary_backward(const Context&, const Sequences&, std::size_t, std::size_t,
                              const RotaryTable&, bfloat16*, std::size_t);

}  // namespace tandem::kernels
