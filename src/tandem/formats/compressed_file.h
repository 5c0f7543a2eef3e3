// Data files that gzip or Zstandard compressed: train.jsonl.gz is a file of JSON lines.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tandem/core/file.h"

namespace tandem::formats {

// The name without .gz or .zst: "data/train.jsonl" of "data/train.jsonl.gz". Other names stay.
std::filesystem::path uncompressed_name(const std::filesystem::path& path);
// The ending of a data file's format, with its dot: ".jsonl" of "train.jsonl.gz".
std::string format_ending(const std::filesystem::path& path);
// Whether the format's ending is one of `endings`.
bool has_format(const std::filesystem::path& path, std::span<const std::string_view> endings);
// ".csv, .tsv, each also compressed (.gz, .zst)": for messages.
std::string formats_text(std::span<const std::string_view> endings);

// Whether a file whose first bytes these are is one of gzip's or Zstandard's; no text is.
bool is_compressed(std::string_view begin);

// The content of a file, decompressed into a temporary file without a name if the file begins as
// gzip's and Zstandard's do; its name does not matter. Open files outlive this object. Not
// thread-safe.
class UncompressedFile {
 public:
  // Several compressed parts in one file are put together, as gzip and zstd do. FIFOs and devices
  // are left as they are. Throws IoError, and DataError without the file's name: what is broken
  // or cut off, and what becomes larger than read_budget.h allows.
  explicit UncompressedFile(const std::filesystem::path& path);

  // The path to open or map: the file itself, or the temporary file.
  const std::filesystem::path& path() const { return path_; }

 private:
  std::optional<UnnamedFile> temporary_;  // none: the file is not compressed
  std::filesystem::path path_;
};

// A mapping of the content. Throws as UncompressedFile and MappedFile do.
MappedFile map_uncompressed(const std::filesystem::path& path);

}  // namespace tandem::formats
