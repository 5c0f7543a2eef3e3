#include "tandem/kernels/reduce.h"

#include <algorithm>

#include "tandem/kernels/column_sums.h"

namespace tandem::kernels {
namespace {

// Calls visit(begin, size) for the chunks of [0, count), in parallel.
template <class Visit>
void for_each_chunk(const Context& ctx, std::size_t count, Visit visit) {
  constexpr std::size_t kChunk = 32768;
  ctx.threads.parallel_for(num_chunks(count, kChunk), [&](std::size_t chunk, int) {
    visit(chunk * kChunk, std::min(kChunk, count - chunk * kChunk));
  });
}

}  // namespace

// A chunk owns some columns and walks down all rows.
template <class T>
void column_sums(const Context& ctx, std::size_t rows, std::size_t columns, const T* x, float* sums,
                 bool accumulate) {
  constexpr std::size_t kColumns = 128;
  ctx.threads.parallel_for(num_chunks(columns, kColumns), [&](std::size_t chunk, int) {
    const std::size_t first = chunk * kColumns;
    float memory[2 * kColumns];
    ColumnSums<T> chunk_sums(*ctx.kernels.reduce, x + first, columns,
                             std::min(kColumns, columns - first), memory);
    chunk_sums.add(rows);
    chunk_sums.finish(sums + first, accumulate);
  });
}

template void column_sums(const Context&, std::size_t, std::size_t, const float*, float*, bool);
template void column_sums(const Context&, std::size_t, std::size_t, const bfloat16*, float*, bool);

void convert(const Context& ctx, std::size_t count, const float* from, bfloat16* to) {
  for_each_chunk(ctx, count, [&](std::size_t begin, std::size_t size) {
    ctx.kernels.reduce->to_bf16(size, from + begin, to + begin);
  });
}

void convert(const Context& ctx, std::size_t count, const bfloat16* from, float* to) {
  for_each_chunk(ctx, count, [&](std::size_t begin, std::size_t size) {
    ctx.kernels.reduce->to_f32(size, from + begin, to + begin);
  });
}

void add(const KernelSet& kernels, std::size_t count, const float* a, const float* b, float* dst) {
  kernels.reduce->add(count, a, b, dst);
}

void convert(const KernelSet& kernels, std::size_t count, const float* from, bfloat16* to) {
  kernels.reduce->to_bf16(count, from, to);
}

void convert(const KernelSet& kernels, std::size_t count, const bfloat16* from, float* to) {
  kernels.reduce->to_f32(count, from, to);
}

void scale(const KernelSet& kernels, std::size_t count, float factor, const float* x, float* y) {
  kernels.reduce->scale(count, factor, x, y);
}

float largest(const KernelSet& kernels, std::size_t count, const float* x) {
  return kernels.reduce->largest(count, x);
}

float exp_sum(const KernelSet& kernels, std::size_t count, float shift, const float* x) {
  return kernels.reduce->exp_sum(count, shift, x);
}

void scaled_exp(const KernelSet& kernels, std::size_t count, float shift, float factor,
                const float* x, float* y) {
  kernels.reduce->scaled_exp(count, shift, factor, x, y);
}

double squared_norm(const KernelSet& kernels, std::size_t count, const float* x) {
  return kernels.reduce->squared_norm(count, x);
}

}  // namespace tandem::kernels
