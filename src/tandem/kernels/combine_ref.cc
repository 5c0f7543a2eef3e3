// The reference of combine.h: one element after another.
#include <type_traits>

#include "tandem/core/float16.h"
#include "tandem/kernels/combine_tables.h"

namespace tandem::kernels {
namespace {

template <class T>
T combined(Combine combine, T x, T y) {
  switch (combine) {
    case Combine::kSum:
      return static_cast<T>(x + y);
    case Combine::kProduct:
      return static_cast<T>(x * y);
    case Combine::kMin:
      return y < x ? y : x;
    case Combine::kMax:
      return x < y ? y : x;
  }
  return x;
}

// The type in which an element is computed: f32 for the 16-bit floats, unsigned where signed
// integers would overflow.
template <class T>
auto computed(Combine combine, T x, T y) {
  if constexpr (std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>) {
    return combined(combine, to_float(x), to_float(y));
  } else if constexpr (std::is_integral_v<T> && sizeof(T) >= sizeof(int)) {
    if (combine == Combine::kMin || combine == Combine::kMax) return combined(combine, x, y);
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(combined(combine, static_cast<Unsigned>(x), static_cast<Unsigned>(y)));
  } else {
    return combined(combine, x, y);
  }
}

void store(float x, bfloat16& to) { to = to_bfloat16(x); }
void store(float x, float16& to) { to = to_float16(x); }
template <class T>
void store(T x, T& to) {
  to = x;
}

template <class T, Combine kCombine>
void pair(std::size_t count, const void* a, const void* b, void* dst) {
  const auto* x = static_cast<const T*>(a);
  const auto* y = static_cast<const T*>(b);
  auto* z = static_cast<T*>(dst);
  for (std::size_t i = 0; i < count; ++i) store(computed(kCombine, x[i], y[i]), z[i]);
}

template <class T>
void divide(std::size_t count, int divisor, void* data) {
  using Wide =
      std::conditional_t<std::is_floating_point_v<T>, T,
                         std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>;
  auto* x = static_cast<T*>(data);
  for (std::size_t i = 0; i < count; ++i) {
    x[i] = static_cast<T>(static_cast<Wide>(x[i]) / static_cast<Wide>(divisor));
  }
}

template <class T>
void widen(std::size_t count, const void* from, float* to) {
  for (std::size_t i = 0; i < count; ++i) to[i] = to_float(static_cast<const T*>(from)[i]);
}

template <class T>
void narrow(std::size_t count, const float* from, void* to) {
  for (std::size_t i = 0; i < count; ++i) store(from[i], static_cast<T*>(to)[i]);
}

template <class T>
constexpr void fill_row(CombineKernels& kernels, Element element) {
  const auto row = static_cast<std::size_t>(element);
  kernels.pair[row][0] = pair<T, Combine::kSum>;
  kernels.pair[row][1] = pair<T, Combine::kProduct>;
  kernels.pair[row][2] = pair<T, Combine::kMin>;
  kernels.pair[row][3] = pair<T, Combine::kMax>;
  if constexpr (std::is_arithmetic_v<T>) kernels.divide[row] = divide<T>;
}

constexpr CombineKernels reference() {
  CombineKernels kernels{};
  kernels.implementation = "reference";
  fill_row<std::int8_t>(kernels, Element::kInt8);
  fill_row<std::uint8_t>(kernels, Element::kUint8);
  fill_row<std::int32_t>(kernels, Element::kInt32);
  fill_row<std::int64_t>(kernels, Element::kInt64);
  fill_row<std::uint64_t>(kernels, Element::kUint64);
  fill_row<float>(kernels, Element::kFloat32);
  fill_row<double>(kernels, Element::kFloat64);
  fill_row<bfloat16>(kernels, Element::kBfloat16);
  fill_row<float16>(kernels, Element::kFloat16);
  kernels.widen_bfloat16 = widen<bfloat16>;
  kernels.widen_float16 = widen<float16>;
  kernels.narrow_bfloat16 = narrow<bfloat16>;
  kernels.narrow_float16 = narrow<float16>;
  return kernels;
}

}  // namespace

constinit const CombineKernels kCombineReference = reference();

}  // namespace tandem::kernels
