// Types and operations of collectives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tandem/core/bfloat16.h"
#include "tandem/core/float16.h"

namespace tandem::comm {

enum class DataType : std::uint8_t {
  kByte,  // moved, never reduced
  kInt32,
  kInt64,
  kUint64,
  kFloat32,
  kFloat64,
  kBfloat16,
  kInt8,
  kUint8,
  kFloat16
};
// kAverage: the sum divided by the number of ranks; integers round towards zero.
enum class ReduceOp : std::uint8_t { kNone, kSum, kMin, kMax, kProduct, kAverage };
enum class Operation : std::uint8_t {
  kBarrier,
  kBroadcast,
  kAllGather,
  kGather,
  kAllReduce,
  kSend,
  kReduce,
  kReduceScatter,
  kAllToAll,
  kScatter,
};
inline constexpr std::size_t kNumOperations = 10;

std::size_t size_of(DataType type);
std::string_view name_of(DataType type);
std::string_view name_of(ReduceOp op);
std::string_view name_of(Operation operation);
// Returns true if one rank of the operation (the root) differs from the others.
bool has_root(Operation operation);

template <class T>
struct DataTypeOf;
template <>
struct DataTypeOf<std::byte> {
  static constexpr DataType kValue = DataType::kByte;
};
template <>
struct DataTypeOf<char> {
  static constexpr DataType kValue = DataType::kByte;
};
template <>
struct DataTypeOf<std::int8_t> {
  static constexpr DataType kValue = DataType::kInt8;
};
template <>
struct DataTypeOf<std::uint8_t> {
  static constexpr DataType kValue = DataType::kUint8;
};
template <>
struct DataTypeOf<std::int32_t> {
  static constexpr DataType kValue = DataType::kInt32;
};
template <>
struct DataTypeOf<std::int64_t> {
  static constexpr DataType kValue = DataType::kInt64;
};
template <>
struct DataTypeOf<std::uint64_t> {
  static constexpr DataType kValue = DataType::kUint64;
};
template <>
struct DataTypeOf<float> {
  static constexpr DataType kValue = DataType::kFloat32;
};
template <>
struct DataTypeOf<double> {
  static constexpr DataType kValue = DataType::kFloat64;
};
template <>
struct DataTypeOf<bfloat16> {
  static constexpr DataType kValue = DataType::kBfloat16;
};
template <>
struct DataTypeOf<float16> {
  static constexpr DataType kValue = DataType::kFloat16;
};

}  // namespace tandem::comm
