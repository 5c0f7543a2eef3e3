// Messages from a node that trains to a learner (docs/design/0024), over a communicator of the two:
// the learner is rank 0. Each message begins with a Notice. Internal to this folder.
#pragma once

#include <cstdint>
#include <span>

namespace tandem::elastic {

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
  // Arguments of the update of `step`, as bits of f64; for kGradient.
  std::uint64_t learning_rate = 0;
  std::uint64_t gradient_scale = 0;
};
// As it travels: a message is an array of one type.
inline std::span<std::uint64_t> words_of(Notice& notice) {
  static_assert(sizeof(Notice) == 5 * sizeof(std::uint64_t));
  return {reinterpret_cast<std::uint64_t*>(&notice), 5};
}

}  // namespace tandem::elastic
