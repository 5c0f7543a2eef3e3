// Reading and writing .safetensors files: u64 little-endian header size, JSON header, tensor bytes.
//
// Nothing in a file is trusted. The header must be at most 100 MB and start with '{'; JSON keys
// must be unique; every tensor needs a known dtype, a shape and a byte range of exactly that size;
// ranges must tile the data without hole or overlap; the file must be neither shorter nor longer
// than they require; __metadata__ may hold strings only. Each violation is a DataError that names
// file, tensor, the value found and the value expected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/file.h"
#include "tandem/formats/tensor_view.h"

namespace tandem::formats {

// The validated content of such a file that is in memory already. `bytes` must outlive the object;
// `where` names it in messages. Throws DataError.
class SafetensorsContent {
 public:
  SafetensorsContent(std::span<const std::byte> bytes, const std::string& where);

  const std::vector<TensorView>& tensors() const {
    return tensors_;
  }                                                     // in the order of their bytes
  const TensorView* find(std::string_view name) const;  // null when absent
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  std::vector<TensorView> tensors_;
  std::map<std::string, std::size_t, std::less<>> index_;
  std::map<std::string, std::string> metadata_;
};

// An open, validated file. The views point into the mapping and live as long as the object.
class SafetensorsFile {
 public:
  // Throws IoError or DataError.
  explicit SafetensorsFile(const std::filesystem::path& path)
      : path_(path), file_(path), content_(file_.bytes(), path.string()) {}

  const std::filesystem::path& path() const { return path_; }
  const std::vector<TensorView>& tensors() const { return content_.tensors(); }
  const TensorView* find(std::string_view name) const { return content_.find(name); }
  const std::map<std::string, std::string>& metadata() const { return content_.metadata(); }

 private:
  std::filesystem::path path_;
  MappedFile file_;
  SafetensorsContent content_;
};

// Writes a file atomically, tensor by tensor straight from their memory. Order and header alignment
// are those of the official library (wider dtypes first, then by name; data start at a multiple of
// 8). Transformers refuses files without metadata {"format": "pt"}, so that is the default. Throws
// IoError, and InvalidArgument for a view whose bytes do not fit its shape or a name twice.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                       const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

}  // namespace tandem::formats
