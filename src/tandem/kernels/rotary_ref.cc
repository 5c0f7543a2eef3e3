// The reference rotation of one row, in f64.
#include "tandem/kernels/kernel_tables.h"

namespace tandem::kernels {
namespace {

template <class T>
void rotate(const RotaryRow<T>& r) {
  for (std::size_t head = 0; head < r.heads; ++head) {
    T* first = r.x + head * 2 * r.half;
    T* second = first + r.half;
    for (std::size_t j = 0; j < r.half; ++j) {
      const double cos = r.cos[j];
      const double sin = static_cast<double>(r.direction) * static_cast<double>(r.sin[j]);
      const double x1 = to_float(first[j]);
      const double x2 = to_float(second[j]);
      first[j] = to_storage<T>(static_cast<float>(x1 * cos - x2 * sin));
      second[j] = to_storage<T>(static_cast<float>(x2 * cos + x1 * sin));
    }
  }
}

}  // namespace

const RotaryKernels kRotaryReference = {.f32 = {rotate<float>}, .bf16 = {rotate<bfloat16>}};

}  // namespace tandem::kernels
