#include "tandem/comm/algorithms/reduce.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tandem/core/error.h"

namespace tandem::comm {
namespace {

using kernels::Combine;
using kernels::CombineKernels;
using kernels::Element;

constexpr std::size_t kBlockBytes = 4096;  // a few operands and temporaries fit the L1 cache
// Two operands and a result fit as well. The copies to further outputs are long enough for `rep
// movsb`, which memcpy uses and which writes whole cache lines without fetching them first.
constexpr std::size_t kPairBlockBytes = 8192;
constexpr std::size_t kMaxDepth = 16;  // the logarithm of the number of ranks, with a margin

Element element_of(DataType type) {
  switch (type) {
    case DataType::kInt8:
      return Element::kInt8;
    case DataType::kByte:
    case DataType::kUint8:
      return Element::kUint8;
    case DataType::kInt32:
      return Element::kInt32;
    case DataType::kInt64:
      return Element::kInt64;
    case DataType::kUint64:
      return Element::kUint64;
    case DataType::kFloat32:
      return Element::kFloat32;
    case DataType::kFloat64:
      return Element::kFloat64;
    case DataType::kBfloat16:
      return Element::kBfloat16;
    case DataType::kFloat16:
      return Element::kFloat16;
  }
  return Element::kUint8;
}

Combine combine_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kProduct:
      return Combine::kProduct;
    case ReduceOp::kMin:
      return Combine::kMin;
    case ReduceOp::kMax:
      return Combine::kMax;
    default:
      return Combine::kSum;
  }
}

bool is_half(DataType type) { return type == DataType::kBfloat16 || type == DataType::kFloat16; }

void narrow(const CombineKernels& kernels, DataType type, const void* from, void* to,
            std::size_t count) {
  const auto convert =
      type == DataType::kBfloat16 ? kernels.narrow_bfloat16 : kernels.narrow_float16;
  convert(count, static_cast<const float*>(from), to);
}

void divide(const CombineKernels& kernels, DataType type, int divisor, void* data,
            std::size_t count) {
  if (divisor == 1) return;
  kernels.divide[static_cast<std::size_t>(element_of(type))](count, divisor, data);
}

void copy_to_others(std::span<std::byte* const> outputs, std::size_t at, std::size_t bytes) {
  for (std::size_t i = 1; i < outputs.size(); ++i) {
    std::memcpy(outputs[i] + at, outputs[0] + at, bytes);
  }
}

// A stack machine over blocks: a value is an operand in place, or the temporary of its stack
// position.
class BlockSum {
 public:
  BlockSum(const CombineKernels& kernels, const Reduction& reduction, const SumProgram& program,
           std::span<const std::byte* const> operands)
      : kernels_(kernels),
        reduction_(reduction),
        program_(program),
        operands_(operands),
        in_size_(size_of(reduction.type)),
        wide_(accumulator_of(reduction.type)),
        combine_(kernels.of(element_of(wide_), combine_of(reduction.op))) {}

  // The combined elements [begin, begin + count), in the accumulator type; `count` fits a block.
  // The result may be inside an operand (a program of one entry) or in a temporary.
  const std::byte* sum(std::size_t begin, std::size_t count) {
    std::size_t depth = 0;
    for (const int entry : program_) {
      if (entry != kAdd) {
        TANDEM_CHECK(depth < kMaxDepth, "a reduction of depth {}", depth);
        const std::byte* operand = operands_[static_cast<std::size_t>(entry)] + begin * in_size_;
        if (is_half(reduction_.type)) {
          widen(kernels_, reduction_.type, operand, temporary(depth), count);
          operand = temporary(depth);
        }
        stack_[depth++] = operand;
        continue;
      }
      --depth;
      combine_(count, stack_[depth - 1], stack_[depth], temporary(depth - 1));
      stack_[depth - 1] = temporary(depth - 1);
    }
    return stack_[0];
  }
  std::byte* temporary(std::size_t depth) { return temporaries_[depth].data(); }

 private:
  const CombineKernels& kernels_;
  const Reduction& reduction_;
  const SumProgram& program_;
  std::span<const std::byte* const> operands_;
  std::size_t in_size_;
  DataType wide_;
  CombineKernels::Pair combine_;
  std::array<const std::byte*, kMaxDepth> stack_;
  alignas(64) std::array<std::array<std::byte, kBlockBytes>, kMaxDepth> temporaries_;
};

}  // namespace

void check_reducible(DataType type, ReduceOp op) {
  if (op != ReduceOp::kNone && type != DataType::kByte) return;
  raise<InvalidArgument>("a reduction of {} with {} means nothing", name_of(type), name_of(op));
}

DataType accumulator_of(DataType type) { return is_half(type) ? DataType::kFloat32 : type; }

void reduce(const CombineKernels& kernels, const Reduction& reduction, const SumProgram& program,
            std::span<const std::byte* const> operands, std::span<std::byte* const> outputs,
            std::size_t count) {
  const DataType wide = accumulator_of(reduction.type);
  const DataType result = reduction.wide_result ? wide : reduction.type;
  const std::size_t in_size = size_of(reduction.type);
  const std::size_t out_size = size_of(result);
  const std::size_t block = kBlockBytes / size_of(wide);
  // Two operands of a type that is its own accumulator need no temporary. The 16-bit floats need
  // only a single rounding as well.
  if (program.size() == 3 && reduction.divisor == 1 && result == reduction.type) {
    const auto combine = kernels.of(element_of(reduction.type), combine_of(reduction.op));
    const std::byte* a = operands[static_cast<std::size_t>(program[0])];
    const std::byte* b = operands[static_cast<std::size_t>(program[1])];
    const std::size_t step = outputs.size() == 1 ? count : kPairBlockBytes / in_size;
    for (std::size_t begin = 0; begin < count; begin += step) {
      const std::size_t length = std::min(step, count - begin);
      const std::size_t at = begin * in_size;
      combine(length, a + at, b + at, outputs[0] + at);
      copy_to_others(outputs, at, length * in_size);
    }
    return;
  }
  BlockSum blocks(kernels, reduction, program, operands);
  for (std::size_t begin = 0; begin < count; begin += block) {
    const std::size_t length = std::min(block, count - begin);
    const std::byte* sum = blocks.sum(begin, length);
    std::byte* out = outputs[0] + begin * out_size;
    if (result == wide && reduction.divisor == 1) {
      if (out != sum) std::memcpy(out, sum, length * out_size);
    } else {
      if (reduction.divisor != 1 && sum != blocks.temporary(0)) {
        std::memcpy(blocks.temporary(0), sum, length * size_of(wide));
        sum = blocks.temporary(0);
      }
      divide(kernels, wide, reduction.divisor, const_cast<std::byte*>(sum), length);
      if (result == wide) {
        std::memcpy(out, sum, length * out_size);
      } else {
        narrow(kernels, reduction.type, sum, out, length);
      }
    }
    copy_to_others(outputs, begin * out_size, length * out_size);
  }
}

void widen(const CombineKernels& kernels, DataType type, const std::byte* from, std::byte* to,
           std::size_t count) {
  TANDEM_CHECK(is_half(type), "{} is its own accumulator", name_of(type));
  const auto convert = type == DataType::kBfloat16 ? kernels.widen_bfloat16 : kernels.widen_float16;
  convert(count, from, reinterpret_cast<float*>(to));
}

void finish_reduction(const CombineKernels& kernels, DataType type, int divisor,
                      const std::byte* from, std::byte* to, std::size_t count) {
  Reduction reduction;
  reduction.type = accumulator_of(type);
  const std::size_t wide_size = size_of(reduction.type);
  const std::size_t block = kBlockBytes / wide_size;
  alignas(64) std::array<std::byte, kBlockBytes> values;
  if (divisor == 1 && !is_half(type)) {
    if (from != to && count > 0) std::memcpy(to, from, count * wide_size);
    return;
  }
  for (std::size_t begin = 0; begin < count; begin += block) {
    const std::size_t length = std::min(block, count - begin);
    std::memcpy(values.data(), from + begin * wide_size, length * wide_size);
    divide(kernels, reduction.type, divisor, values.data(), length);
    if (is_half(type)) {
      narrow(kernels, type, values.data(), to + begin * size_of(type), length);
    } else {
      std::memcpy(to + begin * wide_size, values.data(), length * wide_size);
    }
  }
}

}  // namespace tandem::comm
