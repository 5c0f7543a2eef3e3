// Lets another process finish an update whose process has died. Records the progress of each piece
// and the old values where an interrupted thread was writing. It lies in the node's memory, so it
// outlives every rank.
//
// A thread names the piece in its slot, updates it block by block, the slot's undo log keeping what
// each block was (kernels/undo_log.h), notes the piece as done, and clears the name. The rank that
// finishes the update looks at the slots that have a name: it restores what the log holds and notes
// the piece as done up to there. Then it updates all that is not done. A process may die between
// any two stores, also those that finish: what they do twice gives the same.
//
// Memory order: what a dead process has stored can be seen by the others in the order in which it
// was stored; release stores keep the compiler to that order too.
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
  std::atomic<std::uint64_t> filled{0};         // ModelState: nothing, weights, or neither
  std::atomic<std::uint64_t> frozen_filled{0};  // ModelState: 1 once its frozen weights are there
};
static_assert(std::atomic<double>::is_always_lock_free);

// Where one thread keeps what it overwrites. Followed by the values.
struct alignas(kTensorAlignment) UndoSlot {
  static constexpr std::size_t kMostSpans = kernels::UndoLog::kMostArrays;
  std::atomic<std::uint64_t> piece{0};  // the piece's index plus 1, or 0
  std::uint64_t block = 0;              // kernels::KeptBlock::word(), or 0
  struct Span {
    std::uint64_t begin = 0;   // f32 elements behind the beginning of the state's memory
    std::uint64_t size = 0;    // size of the piece
    std::uint64_t values = 0;  // where its copy begins in a half of the values
  } spans[kMostSpans];
  std::uint64_t num_spans = 0;
  static std::size_t bytes(const optim::UpdatePieces& pieces);
  float* values() { return reinterpret_cast<float*>(this + 1); }
};

// Thread-safety: as UpdateGuard; restore() by one rank while no rank updates.
class UpdateJournal : public optim::UpdateGuard {
 public:
  UpdateJournal() = default;
  // `base`: the beginning of the memory in which weights and state lie. `progress`: a word per
  // piece. `own_slots`: this rank's, one per thread, `slot_bytes` each; `all_slots`: those of each
  // rank of the node. All of it outlives the journal and begins as zeros.
  UpdateJournal(UpdateHeader& header, float* base, std::span<std::atomic<std::uint64_t>> progress,
                std::span<std::byte> own_slots, std::vector<std::span<std::byte>> all_slots,
                std::size_t slot_bytes);

  std::size_t begin(int thread, const optim::UpdatePiece& piece) override;
  kernels::UndoLog undo_log(int thread) override;
  void keep_whole(int thread, const optim::UpdatePiece& piece) override;
  void done(int thread, const optim::UpdatePiece& piece) override;

  // Puts back what was where interrupted threads of the newest update were writing.
  void restore();

 private:
  // A word of `progress_`: this many elements of the piece have the newest step, of which the word
  // has the low half. Older steps count as none.
  std::uint64_t progress_word(std::size_t elements) const;
  std::size_t elements_done(std::size_t piece) const;
  UndoSlot& slot(std::span<std::byte> slots, std::size_t index) const {
    return *reinterpret_cast<UndoSlot*>(slots.data() + index * slot_bytes_);
  }
  UndoSlot& own_slot(int thread) const {
    return slot(own_slots_, static_cast<std::size_t>(thread));
  }
  void put_back(UndoSlot& slot);

  UpdateHeader* header_ = nullptr;
  float* base_ = nullptr;
  std::span<std::atomic<std::uint64_t>> progress_;
  std::span<std::byte> own_slots_;
  std::vector<std::span<std::byte>> all_slots_;
  std::size_t slot_bytes_ = 0;
};

}  // namespace tandem::dist
