#include "tandem/comm/reduce.h"

#include <type_traits>

#include "tandem/core/error.h"

namespace tandem::comm {
namespace {

template <class T>
T add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  } else {
    return a + b;
  }
}

template <class T, class Combine>
void for_each_pair(std::span<std::byte> accumulator, std::span<const std::byte> operand,
                   Combine combine) {
  auto* a = reinterpret_cast<T*>(accumulator.data());
  const auto* b = reinterpret_cast<const T*>(operand.data());
  const std::size_t count = accumulator.size() / sizeof(T);
  for (std::size_t i = 0; i < count; ++i) a[i] = combine(a[i], b[i]);
}

template <class T>
void reduce_as(ReduceOp op, std::span<std::byte> accumulator, std::span<const std::byte> operand) {
  switch (op) {
    case ReduceOp::kSum:
      return for_each_pair<T>(accumulator, operand, [](T a, T b) { return add(a, b); });
    case ReduceOp::kMin:
      return for_each_pair<T>(accumulator, operand, [](T a, T b) { return b < a ? b : a; });
    case ReduceOp::kMax:
      return for_each_pair<T>(accumulator, operand, [](T a, T b) { return a < b ? b : a; });
    case ReduceOp::kNone:
      return;
  }
}

}  // namespace

void check_reducible(DataType type, ReduceOp op) {
  if (op != ReduceOp::kNone && type != DataType::kByte && type != DataType::kBfloat16) return;
  raise<InvalidArgument>("all_reduce of {} with {} is not supported", name_of(type), name_of(op));
}

void reduce(DataType type, ReduceOp op, std::span<std::byte> accumulator,
            std::span<const std::byte> operand) {
  check_reducible(type, op);
  switch (type) {
    case DataType::kInt32:
      return reduce_as<std::int32_t>(op, accumulator, operand);
    case DataType::kInt64:
      return reduce_as<std::int64_t>(op, accumulator, operand);
    case DataType::kUint64:
      return reduce_as<std::uint64_t>(op, accumulator, operand);
    case DataType::kFloat32:
      return reduce_as<float>(op, accumulator, operand);
    case DataType::kFloat64:
      return reduce_as<double>(op, accumulator, operand);
    case DataType::kByte:
    case DataType::kBfloat16:
      return;
  }
}

}  // namespace tandem::comm
