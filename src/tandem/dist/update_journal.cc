#include "tandem/dist/update_journal.h"

#include <algorithm>
#include <utility>

#include "tandem/core/buffer.h"
#include "tandem/core/error.h"

namespace tandem::dist {

using kernels::KeptBlock;
using kernels::UndoLog;

std::size_t UndoSlot::bytes(const optim::UpdatePieces& pieces) {
  const std::size_t values = std::max(2 * UndoLog::kHalf, pieces.largest_whole);
  return align_up(sizeof(UndoSlot) + values * sizeof(float), kTensorAlignment);
}

UpdateJournal::UpdateJournal(UpdateHeader& header, float* base,
                             std::span<std::atomic<std::uint64_t>> progress,
                             std::span<std::byte> own_slots,
                             std::vector<std::span<std::byte>> all_slots, std::size_t slot_bytes)
    : header_(&header),
      base_(base),
      progress_(progress),
      own_slots_(own_slots),
      all_slots_(std::move(all_slots)),
      slot_bytes_(slot_bytes) {}

std::uint64_t UpdateJournal::progress_word(std::size_t elements) const {
  return header_->step.load(std::memory_order_relaxed) << 32 | elements;
}

std::size_t UpdateJournal::elements_done(std::size_t piece) const {
  const std::uint64_t word = progress_[piece].load(std::memory_order_acquire);
  const std::uint64_t elements = word & 0xffffffff;
  return word == progress_word(elements) ? elements : 0;
}

std::size_t UpdateJournal::begin(int thread, const optim::UpdatePiece& piece) {
  const std::size_t already = elements_done(piece.index);
  if (already == piece.elements) return already;
  TANDEM_CHECK(piece.overwritten.size() <= UndoSlot::kMostSpans, "{} spans of a piece",
               piece.overwritten.size());
  UndoSlot& own = own_slot(thread);
  own.block = 0;
  own.num_spans = piece.overwritten.size();
  for (std::size_t i = 0; i < piece.overwritten.size(); ++i) {
    const std::span<float> values = piece.overwritten[i];
    own.spans[i] = {static_cast<std::uint64_t>(values.data() - base_), values.size(),
                    i * UndoLog::kBlock};
  }
  own.piece.store(piece.index + 1, std::memory_order_release);
  return already;
}

UndoLog UpdateJournal::undo_log(int thread) {
  UndoSlot& own = own_slot(thread);
  return {.values = own.values(), .word = &own.block};
}

void UpdateJournal::keep_whole(int thread, const optim::UpdatePiece& piece) {
  UndoSlot& own = own_slot(thread);
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < piece.overwritten.size(); ++i) {
    own.spans[i].values = at;
    std::copy(piece.overwritten[i].begin(), piece.overwritten[i].end(), own.values() + at);
    at += piece.overwritten[i].size();
  }
  undo_log(thread).keep(0, piece.elements, 0);
}

void UpdateJournal::done(int thread, const optim::UpdatePiece& piece) {
  progress_[piece.index].store(progress_word(piece.elements), std::memory_order_release);
  own_slot(thread).piece.store(0, std::memory_order_release);
}

void UpdateJournal::restore() {
  for (const std::span<std::byte> slots : all_slots_) {
    for (std::size_t i = 0; i < slots.size() / slot_bytes_; ++i) put_back(slot(slots, i));
  }
}

void UpdateJournal::put_back(UndoSlot& slot) {
  const std::uint64_t named = slot.piece.load(std::memory_order_acquire);
  if (named == 0) return;
  const KeptBlock block = KeptBlock::from(slot.block);
  // Without a block nothing was overwritten. A piece that is done further than its last block
  // begins is done: its thread died before it cleared the name.
  if (slot.block != 0 && elements_done(named - 1) <= block.begin) {
    for (std::size_t i = 0; i < slot.num_spans; ++i) {
      const UndoSlot::Span& span = slot.spans[i];
      if (block.begin >= span.size) continue;
      std::copy_n(slot.values() + block.half * UndoLog::kHalf + span.values,
                  std::min(block.count, span.size - block.begin), base_ + span.begin + block.begin);
    }
    progress_[named - 1].store(progress_word(block.begin), std::memory_order_release);
  }
  slot.piece.store(0, std::memory_order_release);
}

}  // namespace tandem::dist
