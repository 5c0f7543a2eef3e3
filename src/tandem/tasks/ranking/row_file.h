// Rows of numbers on disk, for embeddings that are larger than the memory.
#pragma once

#include <cstddef>
#include <span>

#include "tandem/core/file.h"

namespace tandem::tasks::ranking {

// A file [rows, width] of f32 without a name (UnnamedFile, whose errors it throws). Used by one
// thread.
class RowFile {
 public:
  explicit RowFile(std::size_t width) : width_(width) {}

  std::size_t width() const { return width_; }
  // Rows [first, first + rows of `values`), in any order.
  void write(std::size_t first, std::span<const float> values) {
    file_.write_at(first * width_ * sizeof(float), std::as_bytes(values));
  }
  void read(std::size_t first, std::span<float> values) const {
    file_.read_at(first * width_ * sizeof(float), std::as_writable_bytes(values));
  }

 private:
  std::size_t width_;
  UnnamedFile file_;
};

}  // namespace tandem::tasks::ranking
