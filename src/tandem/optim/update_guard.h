// Keeps the values that an update is about to overwrite, so that another process can finish the
// update if this one dies.
#pragma once

#include <cstddef>
#include <span>

#include "tandem/kernels/undo_log.h"

namespace tandem::optim {

// A part of an update: one thread's, or (Adafactor) all threads' together.
struct UpdatePiece {
  std::size_t index = 0;     // in [0, UpdatePieces::count)
  std::size_t elements = 0;  // elements of each span, or of the longest; below 2^31
  // Weights and state. The bf16 copy is not among them: it follows from the weights.
  std::span<const std::span<float>> overwritten;
};

// How an optimizer cuts the update of a whole layout.
struct UpdatePieces {
  std::size_t count = 0;
  // f32 elements that the largest piece overwrites where pieces are kept whole, and all threads
  // work on one; 0: they are kept block by block (kernels::UndoLog), and each thread has its own.
  std::size_t largest_whole = 0;
};

// Thread-safety: each thread of a rank for itself.
class UpdateGuard {
 public:
  virtual ~UpdateGuard() = default;
  // Thread `thread` takes up the piece. Returns how many of its elements are up to date already:
  // the others are its work; with all of them the piece is to be left alone, and is not done().
  virtual std::size_t begin(int thread, const UpdatePiece& piece) = 0;
  // Where the thread's kernels keep the blocks of the piece, which count from its first element.
  virtual kernels::UndoLog undo_log(int thread) = 0;
  // Keeps all of the piece, for an update that does not go block by block.
  virtual void keep_whole(int thread, const UpdatePiece& piece) = 0;
  // It is complete.
  virtual void done(int thread, const UpdatePiece& piece) = 0;
};

}  // namespace tandem::optim
