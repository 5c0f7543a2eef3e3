#include "tandem/formats/tensor_view.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "tandem/core/error.h"

namespace tandem::formats {
namespace {

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  std::size_t size;
};

constexpr std::array kDTypes = {
    DTypeInfo{DType::kBool, "BOOL", 1},      DTypeInfo{DType::kU8, "U8", 1},
    DTypeInfo{DType::kI8, "I8", 1},          DTypeInfo{DType::kF8E5M2, "F8_E5M2", 1},
    DTypeInfo{DType::kF8E4M3, "F8_E4M3", 1}, DTypeInfo{DType::kI16, "I16", 2},
    DTypeInfo{DType::kU16, "U16", 2},        DTypeInfo{DType::kF16, "F16", 2},
    DTypeInfo{DType::kBF16, "BF16", 2},      DTypeInfo{DType::kI32, "I32", 4},
    DTypeInfo{DType::kU32, "U32", 4},        DTypeInfo{DType::kF32, "F32", 4},
    DTypeInfo{DType::kF64, "F64", 8},        DTypeInfo{DType::kI64, "I64", 8},
    DTypeInfo{DType::kU64, "U64", 8}};

void check_size(const TensorView& tensor, std::size_t size) {
  if (tensor.size() == size) return;
  raise<InvalidArgument>("tensor '{}' has {} elements; expected {}", tensor.name, tensor.size(),
                         size);
}

}  // namespace

std::optional<DType> dtype_of_name(std::string_view name) {
  for (const DTypeInfo& info : kDTypes) {
    if (info.name == name) return info.dtype;
  }
  return std::nullopt;
}

std::optional<std::size_t> byte_size(DType dtype, std::span<const std::size_t> shape) {
  std::size_t bytes = size_in_bytes(dtype);
  for (const std::size_t extent : shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  }
  return bytes;
}

std::string_view to_string(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].name; }

std::size_t size_in_bytes(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].size; }

std::string shape_to_string(std::span<const std::size_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

bool is_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 ||
         dtype == DType::kF64;
}

void copy_to_float(const TensorView& tensor, std::span<float> out) {
  check_size(tensor, out.size());
  const std::byte* source = tensor.bytes.data();
  const auto convert = [&]<class Stored>(auto to_f32) {  // source may be unaligned, hence memcpy
    for (std::size_t i = 0; i < out.size(); ++i) {
      Stored bits{};
      std::memcpy(&bits, source + i * sizeof(bits), sizeof(bits));
      out[i] = to_f32(bits);
    }
  };
  switch (tensor.dtype) {
    case DType::kF32:
      if (!out.empty()) std::memcpy(out.data(), source, tensor.bytes.size());
      return;
    case DType::kF16:
      return convert.operator()<std::uint16_t>([](auto bits) { return half_to_float(bits); });
    case DType::kBF16:
      return convert.operator()<std::uint16_t>([](auto bits) { return to_float(bfloat16{bits}); });
    case DType::kF64:
      return convert.operator()<double>([](double value) { return static_cast<float>(value); });
    default:
      raise<InvalidArgument>("tensor '{}' is {}; expected {}", tensor.name, to_string(tensor.dtype),
                             kFloatNames);
  }
}

void copy_to_bfloat16(const TensorView& tensor, std::span<bfloat16> out) {
  constexpr std::size_t kPiece = 16384;  // elements that are floats at a time
  check_size(tensor, out.size());
  std::vector<float> values(std::min(kPiece, out.size()));
  const std::size_t width = size_in_bytes(tensor.dtype);
  for (std::size_t begin = 0; begin < out.size(); begin += kPiece) {
    const std::size_t count = std::min(kPiece, out.size() - begin);
    copy_to_float({.name = tensor.name,
                   .dtype = tensor.dtype,
                   .shape = {count},
                   .bytes = tensor.bytes.subspan(begin * width, count * width)},
                  std::span(values).first(count));
    std::transform(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count),
                   out.begin() + static_cast<std::ptrdiff_t>(begin), to_bfloat16);
  }
}

}  // namespace tandem::formats
