// Types of stored tensors, and a named tensor somewhere in memory: what safetensors and torch files
// have in common. All functions are thread-safe.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/bfloat16.h"

namespace tandem::formats {

// In the order of the official library, which writes tensors of later ones first.
enum class DType {
  kBool,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kF64,
  kI64,
  kU64
};

std::string_view to_string(DType dtype);  // "F32", "BF16" … as in the file
std::size_t size_in_bytes(DType dtype);

// A named tensor somewhere in memory; does not own its bytes.
struct TensorView {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::size_t> shape;
  std::span<const std::byte> bytes;  // row-major, little-endian; only 1-byte alignment is promised

  std::size_t size() const { return bytes.size() / size_in_bytes(dtype); }
};

// Bytes of a tensor, or nothing when the product does not fit 64 bits.
std::optional<std::size_t> byte_size(DType dtype, std::span<const std::size_t> shape);

// "[384, 1536]"
std::string shape_to_string(std::span<const std::size_t> shape);

// The dtypes that copy_to_float() reads, and their names for messages.
bool is_float(DType dtype);
inline constexpr std::string_view kFloatNames = "F32, F16, BF16 or F64";

// Converts the values to f32: F16 and BF16 exactly, F64 rounded to nearest, as torch does. Throws
// InvalidArgument for another dtype or size; the caller knows the file's name.
void copy_to_float(const TensorView& tensor, std::span<float> out);
// The same values, rounded to bf16.
void copy_to_bfloat16(const TensorView& tensor, std::span<bfloat16> out);

// The type of a name such as "F32"; nothing for another name.
std::optional<DType> dtype_of_name(std::string_view name);

}  // namespace tandem::formats
