#include "apps/command/text_lines.h"

#include <cerrno>
#include <cstring>
#include <iostream>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/text_file.h"
#include "tandem/formats/compressed_file.h"

namespace tandem::apps {

TextLines::TextLines(std::string path) : path_(std::move(path)) {
  if (path_ == "-") return;
  try {
    const formats::UncompressedFile content(path_);
    file_.open(content.path());
  } catch (const DataError& error) {
    raise<DataError>("{}: {}", path_, error.what());
  }
  if (!file_) raise<IoError>("cannot open {}: {}", path_, std::strerror(errno));
}

std::istream& TextLines::input() { return path_ == "-" ? std::cin : file_; }

bool TextLines::next(std::string& line) {
  if (!std::getline(input(), line)) {
    if (input().bad()) raise<IoError>("cannot read {}: {}", source(), std::strerror(errno));
    return false;
  }
  if (count_++ == 0) {
    if (formats::is_compressed(line))
      raise<DataError>("{} is compressed, expected text; decompress it: zcat FILE | …", source());
    remove_byte_order_mark(line, source());
  }
  if (line.ends_with('\r')) line.pop_back();
  return true;
}

std::string TextLines::source() const { return path_ == "-" ? "standard input" : path_; }

}  // namespace tandem::apps
