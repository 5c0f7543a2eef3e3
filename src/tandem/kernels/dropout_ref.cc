// The reference dropout: the specification, element by element.
#include "tandem/core/bfloat16.h"
#include "tandem/kernels/kernel_tables.h"

namespace tandem::kernels {
namespace {

template <class T>
void forward(const DropoutMask& mask, std::uint32_t row, std::size_t columns, const T* x, T* y) {
  for (std::size_t c = 0; c < columns; ++c) {
    y[c] = to_storage<T>(to_float(x[c]) * dropout_factor(mask, row, static_cast<std::uint32_t>(c)));
  }
}

template <class T>
void add(const DropoutMask& mask, std::uint32_t row, std::size_t columns, const T* x,
         const float* residual, float* sum) {
  for (std::size_t c = 0; c < columns; ++c) {
    sum[c] =
        to_float(x[c]) * dropout_factor(mask, row, static_cast<std::uint32_t>(c)) + residual[c];
  }
}

template <class T>
void add_backward(const DropoutMask& mask, std::uint32_t row, std::size_t columns,
                  const float* grad_sum, T* grad_x) {
  for (std::size_t c = 0; c < columns; ++c) {
    grad_x[c] =
        to_storage<T>(grad_sum[c] * dropout_factor(mask, row, static_cast<std::uint32_t>(c)));
  }
}

}  // namespace

const DropoutKernels kDropoutReference = {
    .f32 = {forward<float>, add<float>, add_backward<float>},
    .bf16 = {forward<bfloat16>, add<bfloat16>, add_backward<bfloat16>},
};

}  // namespace tandem::kernels
