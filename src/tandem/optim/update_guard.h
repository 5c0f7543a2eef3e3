// Who keeps what an update is about to overwrite, so that somebody else can finish an update that
// its process did not survive.
#pragma once

#include <cstddef>
#include <span>

namespace tandem::optim {

// What an optimizer overwrites as a whole: one thread, or (Adafactor) all of them together.
struct UpdatePiece {
  std::size_t index = 0;  // in [0, UpdatePieces::count)
  // Weights and state. The bf16 copy is not among them: it follows from the weights.
  std::span<const std::span<float>> overwritten;
};

// How an optimizer cuts the update of a whole layout.
struct UpdatePieces {
  std::size_t count = 0;
  std::size_t largest = 0;     // f32 elements that one piece overwrites, at most
  bool one_at_a_time = false;  // all threads work on one piece; else each on its own
};

// Thread-safety: each thread of a rank for itself.
class UpdateGuard {
 public:
  virtual ~UpdateGuard() = default;
  // Thread `thread` is about to overwrite the piece. False: it is up to date, leave it alone.
  virtual bool begin(int thread, const UpdatePiece& piece) = 0;
  // It is complete.
  virtual void done(int thread, const UpdatePiece& piece) = 0;
};

}  // namespace tandem::optim
