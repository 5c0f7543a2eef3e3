// A corpus that may be larger than the memory: its documents, part by part, and their ids.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/file.h"
#include "tandem/formats/table.h"

namespace tandem::tasks::ranking {

struct Document {
  std::string id, text;
};

// The rows of a file of data::row_file_extensions() with the columns _id and text, in their order.
// Rows with an empty text are left out.
class CorpusReader {
 public:
  // Throws IoError, and DataError that names the file.
  explicit CorpusReader(const std::filesystem::path& path);
  // The next documents, at most `most`; none: the end. Throws DataError that names file and row: an
  // id or a text that is null, or of another type.
  std::vector<Document> next(std::size_t most);
  std::size_t left_out() const { return left_out_; }

 private:
  std::vector<Document> read(std::size_t most);

  std::string path_;
  MappedFile file_;
  std::unique_ptr<formats::TableSource> source_;
  std::vector<std::size_t> columns_;  // of _id and text
  formats::Table table_;
  std::size_t used_ = 0;  // rows of the table that were given
  std::size_t left_out_ = 0;
};

// The ids of documents in an unnamed temporary file. Memory has 8 bytes of each. Several threads
// may call at() at once.
class DocumentIds {
 public:
  // Throws IoError.
  void add(std::string_view id);
  std::size_t size() const { return begins_.size() - 1; }
  // Throws IoError.
  std::string at(std::size_t document) const;

 private:
  UnnamedFile file_;
  std::string pending_;  // ids behind those of the file
  std::vector<std::size_t> begins_{0};
};

}  // namespace tandem::tasks::ranking
