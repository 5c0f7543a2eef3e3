// Random samples that a seed alone decides, on every machine.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

namespace tandem::tasks::ranking {

// `count` of the numbers below `population`, or all, drawn without replacement; ascending.
inline std::vector<std::size_t> sample_indices(std::size_t population, std::size_t count,
                                               std::uint64_t seed) {
  std::vector<std::size_t> order(population);
  std::iota(order.begin(), order.end(), 0);
  if (count >= population) return order;
  std::mt19937_64 generator(seed);
  for (std::size_t i = 0; i < count; ++i)
    std::swap(order[i], order[i + generator() % (population - i)]);
  order.resize(count);
  std::sort(order.begin(), order.end());
  return order;
}

}  // namespace tandem::tasks::ranking
