// The directory of a ZIP file whose members are stored without compression, as torch.save writes
// them: the bytes of each member can be used where they are mapped.
//
// Nothing in a file is trusted: every offset and size is checked against the file, the member's own
// header against the directory. Refused with a DataError that names what was found: truncated
// files, compressed or encrypted members, archives in several parts, a name twice. Checksums are
// not checked; torch does not check them either, and can be configured not to write them.
// Source: PKWARE's APPNOTE 6.3.9, sections 4.3 to 4.5; 64-bit sizes included.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tandem::formats {

class ZipArchive {
 public:
  // `file` must outlive the object; `where` names it in messages. Throws DataError.
  ZipArchive(std::span<const std::byte> file, std::string where);

  // Whether a file of these bytes begins as a ZIP file does.
  static bool looks_like_one(std::span<const std::byte> file);

  // Name and content of every member, by name.
  const std::map<std::string, std::span<const std::byte>, std::less<>>& entries() const {
    return entries_;
  }
  std::optional<std::span<const std::byte>> find(std::string_view name) const;

 private:
  std::string where_;
  std::map<std::string, std::span<const std::byte>, std::less<>> entries_;
};

// A member to be written; does not own its bytes.
struct ZipEntry {
  std::string name;
  std::span<const std::byte> bytes;
};

// Writes a ZIP file of stored members atomically; the bytes of each begin at a multiple of 64, as
// torch.save has it. Sizes and offsets from `wide_from` on, which 32 bits cannot hold, are written
// as 64-bit numbers (a test passes less). Throws IoError, and InvalidArgument for a name twice.
void write_zip(const std::filesystem::path& path, std::span<const ZipEntry> entries,
               std::uint64_t wide_from = 0xffffffff);

}  // namespace tandem::formats
