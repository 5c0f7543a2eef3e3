// What lets somebody else finish an update whose process has died: which pieces of it are done, and
// what the pieces were before that are not. It lies in the node's memory, so it outlives every
// rank.
//
// A thread copies a piece into its slot, marks the slot, overwrites the piece, notes the piece as
// done, and clears the mark. Whoever finishes the update puts the pieces of marked slots back,
// unless they are done, and then updates all that are not done. A process may die between any two
// stores, also of those who finish: what they do twice gives the same. Slots are small and written
// again and again, so they stay in the cache.
//
// Memory order: what a dead process has stored can be seen by the others in the order in which it
// was stored; release stores and the fences between mark and piece keep the compiler to that order
// too.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tandem/core/buffer.h"
#include "tandem/optim/update_guard.h"

namespace tandem::dist {

// The newest update of a node. Every rank writes the same values.
struct UpdateHeader {
  std::atomic<std::uint64_t> step{0};     // t, counted from 1; written last
  std::atomic<std::uint64_t> applied{0};  // the last step whose update is complete
  std::atomic<double> learning_rate{0};
  std::atomic<double> gradient_scale{0};
};
static_assert(std::atomic<double>::is_always_lock_free);

// The place where one thread keeps a piece. Followed by the piece's values.
struct alignas(kTensorAlignment) UndoSlot {
  static constexpr std::size_t kMostSpans = 4;
  std::atomic<std::uint64_t> marked{0};  // the piece's index plus 1, or 0
  struct Span {
    std::uint64_t begin = 0;  // f32 elements behind the beginning of the state's memory
    std::uint64_t size = 0;
  } spans[kMostSpans];
  std::uint64_t num_spans = 0;
  // Bytes of a slot for pieces of up to `elements`.
  static std::size_t bytes(std::size_t elements);
  float* values() { return reinterpret_cast<float*>(this + 1); }
};

// Thread-safety: as UpdateGuard; restore() by one rank while nobody updates.
class UpdateJournal : public optim::UpdateGuard {
 public:
  UpdateJournal() = default;
  // `base`: the beginning of the memory in which weights and state lie. `done`: a word per piece.
  // `own_slots`: this rank's, one per thread, `slot_bytes` each; `all_slots`: those of each rank of
  // the node. All of it outlives the journal and begins as zeros.
  UpdateJournal(UpdateHeader& header, float* base, std::span<std::atomic<std::uint32_t>> done,
                std::span<std::byte> own_slots, std::vector<std::span<std::byte>> all_slots,
                std::size_t slot_bytes);

  bool begin(int thread, const optim::UpdatePiece& piece) override;
  void done(int thread, const optim::UpdatePiece& piece) override;

  // Puts back what the pieces of the newest update were that were begun and are not done.
  void restore();

 private:
  // Of the newest step, as it stands in `done_`.
  std::uint32_t step() const {
    return static_cast<std::uint32_t>(header_->step.load(std::memory_order_relaxed));
  }
  UndoSlot& slot(std::span<std::byte> slots, std::size_t index) const {
    return *reinterpret_cast<UndoSlot*>(slots.data() + index * slot_bytes_);
  }
  void put_back(UndoSlot& slot);

  UpdateHeader* header_ = nullptr;
  float* base_ = nullptr;
  std::span<std::atomic<std::uint32_t>> done_;
  std::span<std::byte> own_slots_;
  std::vector<std::span<std::byte>> all_slots_;
  std::size_t slot_bytes_ = 0;
};

}  // namespace tandem::dist
