#include "tandem/dist/update_journal.h"

#include <cstring>
#include <utility>

#include "tandem/core/buffer.h"
#include "tandem/core/error.h"

namespace tandem::dist {

std::size_t UndoSlot::bytes(std::size_t elements) {
  return align_up(sizeof(UndoSlot) + elements * sizeof(float), kTensorAlignment);
}

UpdateJournal::UpdateJournal(UpdateHeader& header, float* base,
                             std::span<std::atomic<std::uint32_t>> done,
                             std::span<std::byte> own_slots,
                             std::vector<std::span<std::byte>> all_slots, std::size_t slot_bytes)
    : header_(&header),
      base_(base),
      done_(done),
      own_slots_(own_slots),
      all_slots_(std::move(all_slots)),
      slot_bytes_(slot_bytes) {}

bool UpdateJournal::begin(int thread, const optim::UpdatePiece& piece) {
  if (done_[piece.index].load(std::memory_order_acquire) == step()) return false;
  TANDEM_CHECK(piece.overwritten.size() <= UndoSlot::kMostSpans, "{} spans of a piece",
               piece.overwritten.size());
  UndoSlot& own = slot(own_slots_, static_cast<std::size_t>(thread));
  float* values = own.values();
  own.num_spans = piece.overwritten.size();
  for (std::size_t i = 0; i < piece.overwritten.size(); ++i) {
    const std::span<float> from = piece.overwritten[i];
    own.spans[i] = {static_cast<std::uint64_t>(from.data() - base_), from.size()};
    std::memcpy(values, from.data(), from.size_bytes());
    values += from.size();
  }
  own.marked.store(piece.index + 1, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_release);
  return true;
}

void UpdateJournal::done(int thread, const optim::UpdatePiece& piece) {
  done_[piece.index].store(step(), std::memory_order_release);
  slot(own_slots_, static_cast<std::size_t>(thread)).marked.store(0, std::memory_order_release);
}

void UpdateJournal::restore() {
  for (const std::span<std::byte> slots : all_slots_) {
    for (std::size_t i = 0; i < slots.size() / slot_bytes_; ++i) put_back(slot(slots, i));
  }
}

void UpdateJournal::put_back(UndoSlot& slot) {
  const std::uint64_t marked = slot.marked.load(std::memory_order_acquire);
  if (marked == 0) return;
  if (done_[marked - 1].load(std::memory_order_acquire) != step()) {
    const float* values = slot.values();
    for (std::size_t i = 0; i < slot.num_spans; ++i) {
      std::memcpy(base_ + slot.spans[i].begin, values, slot.spans[i].size * sizeof(float));
      values += slot.spans[i].size;
    }
  }
  slot.marked.store(0, std::memory_order_release);
}

}  // namespace tandem::dist
