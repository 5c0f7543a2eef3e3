// Internal: an f64 sum whose order does not depend on the threads that make it.
#pragma once

#include <algorithm>
#include <cstddef>

#include "tandem/kernels/context.h"
#include "tandem/kernels/row_chunks.h"

namespace tandem::kernels {

// term(0) + term(1) + … + term(count − 1): chunks of a fixed size in parallel, each in order, then
// their sums in order. term(i) is called once and may write what belongs to i.
template <class Term>
double chunked_sum(const Context& ctx, std::size_t count, Term term) {
  constexpr std::size_t kChunk = 64;
  const std::size_t chunks = num_chunks(count, kChunk);
  const auto sums = ctx.scratch.template shared<double>(chunks);
  ctx.threads.parallel_for(chunks, [&](std::size_t chunk, int) {
    double sum = 0;
    const std::size_t end = std::min(count, (chunk + 1) * kChunk);
    for (std::size_t i = chunk * kChunk; i < end; ++i) sum += term(i);
    sums[chunk] = sum;
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace tandem::kernels
