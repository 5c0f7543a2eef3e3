// Embeddings in a .npy file that may be larger than the memory: what `tandem embed --output` and
// numpy.save write.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "tandem/tasks/ranking/search.h"

namespace tandem::tasks::ranking {

// An array [texts, width] of float32 or int8 in row order. Reads rows on demand and keeps none.
// Safe to use from several threads.
class EmbeddingFile {
 public:
  // Throws IoError, and DataError that names the file: another type, shape, or order, or a file
  // that is shorter than its header states.
  explicit EmbeddingFile(std::filesystem::path path);
  ~EmbeddingFile();
  EmbeddingFile(const EmbeddingFile&) = delete;
  EmbeddingFile& operator=(const EmbeddingFile&) = delete;

  std::size_t texts() const { return texts_; }
  std::size_t width() const { return width_; }
  // Bytes of a value: 4 or 1.
  std::size_t value_bytes() const { return value_bytes_; }
  // The first `width` values of the rows from `first` on, as f32, into `out` [rows, width]. int8
  // values become the same numbers. Throws IoError.
  void read(std::size_t first, std::size_t width, std::span<float> out) const;

 private:
  void parse_header();
  void read_bytes(std::size_t offset, std::span<std::byte> bytes) const;

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::size_t texts_ = 0, width_ = 0, value_bytes_ = 0;
  std::size_t data_ = 0;  // offset of the first row
};

// The most that search_file() allocates, in addition to the Search itself.
std::size_t search_file_bytes(const EmbeddingFile& corpus, std::size_t width);

// Adds the corpus to `search` piece by piece. `width`: that of the queries; a corpus with more
// values is truncated to it. progress(texts) is called after each piece.
void search_file(const EmbeddingFile& corpus, std::size_t width, Search& search,
                 const kernels::Context& context,
                 const std::function<void(std::size_t texts)>& progress = {});

}  // namespace tandem::tasks::ranking
