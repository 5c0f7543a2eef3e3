// Rows of numbers on disk, for embeddings that are larger than the memory.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace tandem::tasks::ranking {

// A file [rows, width] of f32 without a name in the folder for temporary files (TMPDIR); a kill
// leaves nothing of it. Used by one thread.
class RowFile {
 public:
  // Throws IoError, as all of it.
  explicit RowFile(std::size_t width);
  ~RowFile();
  RowFile(const RowFile&) = delete;
  RowFile& operator=(const RowFile&) = delete;

  std::size_t width() const { return width_; }
  // Rows [first, first + rows of `values`), in any order.
  void write(std::size_t first, std::span<const float> values);
  void read(std::size_t first, std::span<float> values) const;

 private:
  std::string path_;  // for messages
  std::size_t width_;
  int descriptor_ = -1;
};

}  // namespace tandem::tasks::ranking
