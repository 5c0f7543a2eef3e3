// Text files compressed with gzip, as the goldens are stored.
#pragma once

#include <zlib.h>

#include <filesystem>
#include <stdexcept>
#include <string>

namespace tandem::testing {

inline std::string read_gzip(const std::filesystem::path& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) throw std::runtime_error("cannot open " + path.native());
  std::string text;
  char block[1 << 16];
  int n = 0;
  while ((n = gzread(file, block, sizeof block)) > 0)
    text.append(block, static_cast<std::size_t>(n));
  gzclose(file);
  if (n < 0) throw std::runtime_error("cannot decompress " + path.native());
  return text;
}

}  // namespace tandem::testing
