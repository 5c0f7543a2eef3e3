// A training job in integers: a state of a few chunks, gradients of shards that depend on all of
// the state, a sum over shards, and an update chunk by chunk. Any mistake in the owners or the
// order of sums gives other numbers. The reference is one node that computes everything.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace tandem::simulation {

inline constexpr std::size_t kChunks = 4;
inline constexpr std::uint32_t kShards = 8;

using Values = std::array<std::uint64_t, kChunks>;

inline std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

inline Values initial_weights() {
  Values w;
  for (std::size_t k = 0; k < kChunks; ++k) w[k] = mix(k + 1);
  return w;
}

// Adds the gradients of shards [begin, end) of `step`. `data`: which data set.
inline void add_gradients(const Values& w, std::uint64_t step, std::uint32_t begin,
                          std::uint32_t end, std::uint64_t data, Values& sum) {
  std::uint64_t all = data;
  for (const std::uint64_t value : w) all = mix(all + value);
  for (std::uint32_t shard = begin; shard < end; ++shard) {
    for (std::size_t k = 0; k < kChunks; ++k) sum[k] += mix(all ^ mix(step * 977 + shard * 31 + k));
  }
}

inline std::uint64_t updated(std::uint64_t w, std::uint64_t gradient, std::uint64_t step) {
  return w * 0x9e3779b97f4a7c15u + gradient + step;
}

inline std::uint64_t checksum(const Values& w) {
  std::uint64_t sum = 0;
  for (const std::uint64_t value : w) sum = mix(sum + value);
  return sum;
}

// The state after each step, from 0 on.
inline std::vector<Values> reference(std::uint64_t steps) {
  std::vector<Values> result{initial_weights()};
  for (std::uint64_t step = 1; step <= steps; ++step) {
    Values w = result.back();
    Values gradient{};
    add_gradients(w, step, 0, kShards, 0, gradient);
    for (std::size_t k = 0; k < kChunks; ++k) w[k] = updated(w[k], gradient[k], step);
    result.push_back(w);
  }
  return result;
}

}  // namespace tandem::simulation
