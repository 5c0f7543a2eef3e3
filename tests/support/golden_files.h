// Reads golden files: gzip-compressed JSON and JSON lines.
#pragma once

#include <zlib.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "tandem/core/json.h"

namespace tandem::testing {

// The content of a gzip file.
inline std::string read_gzip(const std::filesystem::path& path) {
  const gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) throw std::runtime_error("cannot open " + path.string());
  std::string text;
  std::string piece(1 << 16, '\0');
  int size = 0;
  while ((size = gzread(file, piece.data(), static_cast<unsigned>(piece.size()))) > 0) {
    text.append(piece, 0, static_cast<std::size_t>(size));
  }
  gzclose(file);
  if (size < 0) throw std::runtime_error("cannot decompress " + path.string());
  return text;
}

inline nlohmann::ordered_json read_gzip_json(const std::filesystem::path& path) {
  return nlohmann::ordered_json::parse(read_gzip(path));
}

inline std::vector<nlohmann::json> read_gzip_json_lines(const std::filesystem::path& path) {
  const std::string text = read_gzip(path);
  std::vector<nlohmann::json> rows;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    rows.push_back(nlohmann::json::parse(text.substr(begin, end - begin)));
    begin = end == std::string::npos ? text.size() : end + 1;
  }
  return rows;
}

}  // namespace tandem::testing
