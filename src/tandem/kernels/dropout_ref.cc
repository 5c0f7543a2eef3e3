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

}  // namespace

const DropoutKernels kDropoutReference = {.f32 = {forward<float>}, .bf16 = {forward<bfloat16>}};

}  // namespace tandem::kernels
