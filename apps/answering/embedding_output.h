// Files of embeddings: NumPy arrays and JSON lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <ostream>
#include <span>
#include <string>
#include <vector>

namespace tandem::apps {

// The type in which values are stored. Sources:
// sentence_transformers.quantization.quantize_embeddings.
enum class EmbeddingPrecision : std::uint8_t {
  kFloat32,
  kInt8,    // where the value lies between the least and the greatest of its component: 0 to 255,
            // minus 128
  kUint8,   // the same as uint8
  kBinary,  // one bit per value (1: above 0), 8 values a byte, the first in the highest bit; int8,
            // which is that byte minus 128
  kUbinary  // the same byte as uint8
};

// The least and the greatest value of each component of some embeddings.
struct ValueRanges {
  std::vector<float> least, greatest;  // empty: no embedding yet
  // embeddings: [rows, size].
  void add(std::span<const float> embeddings, std::size_t size);
};

struct EmbeddingFormat {
  EmbeddingPrecision precision = EmbeddingPrecision::kFloat32;
  std::size_t size = 0;     // values of an embedding
  ValueRanges ranges = {};  // ranges of kInt8 and kUint8

  // Rows can only be written when all of them have been computed.
  bool lacks_ranges() const;
};

// Whether the bytes are int8.
bool is_signed(EmbeddingPrecision precision);
// Bytes of an embedding of `size` values.
std::size_t embedding_bytes(EmbeddingPrecision precision, std::size_t size);
// Appends the bytes of embeddings [rows, size] to `out`. The format has its ranges.
void append_embeddings(const EmbeddingFormat& format, std::span<const float> embeddings,
                       std::string& out);

// The header of a .npy file, version 1.0, of an array [rows, columns] in row order; always
// kNpyHeader bytes, so that it can be replaced when the number of rows is known.
inline constexpr std::size_t kNpyHeader = 128;
std::string npy_header(EmbeddingPrecision precision, std::size_t rows, std::size_t size);

// Writes PATH.npy row by row and survives a kill: rows go to PATH.partial, next to PATH.job with
// the description of the job. commit() makes it PATH. Where the format lacks its ranges,
// PATH.partial has float32, and commit() takes the ranges from all of its rows and writes PATH from
// it, some rows at a time.
class NpyFile {
 public:
  // Continues a file of the same `job`, or begins a new one. Throws IoError.
  NpyFile(std::filesystem::path path, EmbeddingFormat format, const std::string& job);
  ~NpyFile();
  NpyFile(const NpyFile&) = delete;
  NpyFile& operator=(const NpyFile&) = delete;

  // Rows that an earlier process wrote, and the rows of append().
  std::size_t rows() const { return rows_; }
  // embeddings: [rows, size]. Throws IoError.
  void append(std::span<const float> embeddings);
  // Rows of PATH.partial, which has float32. Throws IoError.
  std::vector<float> read(std::size_t first, std::size_t count) const;
  void commit();
  // Removes PATH.partial and PATH.job.
  void discard();

 private:
  std::filesystem::path partial() const;
  std::filesystem::path job_file() const;
  void write_at(std::size_t offset, std::string_view bytes);
  void finish_partial();
  void quantize_partial();

  std::filesystem::path path_;
  EmbeddingFormat format_;   // format of PATH
  EmbeddingFormat partial_;  // format of PATH.partial
  std::size_t rows_ = 0;
  int descriptor_ = -1;
};

}  // namespace tandem::apps
