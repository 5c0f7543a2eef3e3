// What a node that trains says to a learner (docs/design/0024), over a communicator of the two: the
// learner is rank 0. Each message begins with a Notice. Internal to dist.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "tandem/dist/checksum.h"
#include "tandem/dist/model_state.h"
#include "tandem/dist/shard_plan.h"

namespace tandem::dist {

inline constexpr int kLearnerRank = 0;
inline constexpr int kSourceRank = 1;

enum class TransferMessage : std::uint64_t {
  kHandshake = 1,  // first; chunk: the f32 elements of the layout, step: of the optimizer's state
  kChunk,          // weights and state of `chunk` after `step` follow
  kGradient,       // the mean gradient of `chunk` in `step` follows
  kNothing,        // chunks are missing, and may not be read before the step after `step`
  kSlow            // the steps are faster than the connection
};

struct Notice {
  TransferMessage kind = TransferMessage::kHandshake;
  std::uint64_t chunk = 0;
  std::uint64_t step = 0;
  // Parameters of the update of `step` in a kGradient message, as the bits of f64.
  std::uint64_t learning_rate = 0;
  std::uint64_t gradient_scale = 0;
};
// As it travels: a message is an array of one type.
inline std::span<std::uint64_t> words_of(Notice& notice) {
  static_assert(sizeof(Notice) == 5 * sizeof(std::uint64_t));
  return {reinterpret_cast<std::uint64_t*>(&notice), 5};
}

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

// Checksum of the chunk in the present state.
inline std::uint64_t checksum_of_chunk(const ModelState& model, std::size_t chunk) {
  Checksum sum(chunk);
  for_each_part(model, chunk, [&](std::span<const float> part) { sum.add(part); });
  return sum.value();
}

}  // namespace tandem::dist
