// Lines of a file or of standard input, as commands that take a text on each line read them.
#pragma once

#include <cstddef>
#include <fstream>
#include <istream>
#include <string>

namespace tandem::apps {

// Not thread-safe.
class TextLines {
 public:
  // "-": standard input. A file may be compressed (formats/compressed_file.h). Throws IoError if
  // the file cannot be opened, and DataError with its name if it cannot be decompressed.
  explicit TextLines(std::string path);

  // The next line without its end ("\n" or "\r\n"); false: the end. A byte order mark is dropped.
  // Throws DataError for UTF-16, UTF-32 and a compressed pipe, IoError for a failed read.
  bool next(std::string& line);
  // Lines read so far.
  std::size_t count() const { return count_; }
  // For messages: the path, or "standard input".
  std::string source() const;

 private:
  std::istream& input();

  std::string path_;
  std::ifstream file_;
  std::size_t count_ = 0;
};

}  // namespace tandem::apps
