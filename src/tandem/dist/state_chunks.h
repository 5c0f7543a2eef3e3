// The chunks of a ModelState. Each has its weights and its part of every arena of the optimizer's
// state.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "tandem/dist/checksum.h"
#include "tandem/dist/model_state.h"
#include "tandem/dist/shard_plan.h"

namespace tandem::dist {

// The elements of a chunk.
inline Range range_of_chunk(std::size_t chunk, std::size_t elements) {
  const std::size_t begin = chunk * ModelState::kChunk;
  return {begin, std::min(elements, begin + ModelState::kChunk)};
}

// The chunk's weights, then its part of each arena of the optimizer's state.
template <class Visit>
void for_each_part(const ModelState& model, std::size_t chunk, const Visit& visit) {
  const Range range = range_of_chunk(chunk, model.elements());
  visit(model.weights().subspan(range.begin, range.size()));
  const std::span<float> state = model.optimizer_state();
  for (std::size_t arena = 0; arena < state.size(); arena += model.elements())
    visit(state.subspan(arena + range.begin, range.size()));
}

// The checksum of the chunk's part of the present state.
inline std::uint64_t checksum_of_chunk(const ModelState& model, std::size_t chunk) {
  Checksum sum(chunk);
  for_each_part(model, chunk, [&](std::span<const float> part) { sum.add(part); });
  return sum.value();
}

}  // namespace tandem::dist
