#include "tandem/formats/zip_archive.h"

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>
#include <type_traits>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/file.h"

namespace tandem::formats {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::uint32_t kEntrySignature = 0x04034b50;
constexpr std::uint32_t kDirectorySignature = 0x02014b50;
constexpr std::uint32_t kEndSignature = 0x06054b50;
constexpr std::uint32_t kEnd64Signature = 0x06064b50;
constexpr std::uint32_t kLocator64Signature = 0x07064b50;
constexpr std::size_t kEntryHeader = 30;
constexpr std::size_t kDirectoryHeader = 46;
constexpr std::size_t kEndRecord = 22;
constexpr std::size_t kEnd64Record = 56;
constexpr std::size_t kLocator64 = 20;
constexpr std::size_t kMaxComment = 0xffff;
constexpr std::uint16_t kExtra64 = 0x0001;
constexpr std::uint32_t kSee64 = 0xffffffff;
constexpr std::uint16_t kSee64Short = 0xffff;
constexpr std::size_t kAlignment = 64;
constexpr std::uint16_t kEncrypted = 1u << 0;

// A little-endian number at `offset`; the caller has checked that it lies inside.
template <class T>
T number(Bytes bytes, std::size_t offset) {
  T value = 0;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

std::string_view text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Where the central directory lies and how many members it lists.
struct Directory {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint64_t count = 0;
};

// One row of the directory.
struct Row {
  std::string name;
  std::uint16_t flags = 0;
  std::uint16_t method = 0;
  std::uint64_t compressed_size = 0;
  std::uint64_t size = 0;
  std::uint64_t offset = 0;  // offset of the member's own header
};

class ZipReader {
 public:
  ZipReader(Bytes file, const std::string& where) : file_(file), where_(where) {}

  Directory find_directory() const {
    const std::size_t end = find_end();
    Directory directory{number<std::uint32_t>(file_, end + 16),
                        number<std::uint32_t>(file_, end + 12),
                        number<std::uint16_t>(file_, end + 10)};
    const bool in_parts = number<std::uint16_t>(file_, end + 4) != 0 &&
                          number<std::uint16_t>(file_, end + 4) != kSee64Short;
    if (in_parts) raise<DataError>("{}: one part of a ZIP archive in several parts", where_);
    if (directory.offset == kSee64 || directory.size == kSee64 || directory.count == kSee64Short)
      directory = find_directory64(end);
    if (directory.offset > file_.size() || directory.size > file_.size() - directory.offset) {
      raise<DataError>(
          "{}: the ZIP directory has {} bytes at {}, but the file has only {} "
          "(perhaps a truncated download)",
          where_, directory.size, directory.offset, file_.size());
    }
    return directory;
  }

  // The row at `at`, which moves behind it.
  Row read_row(Bytes directory, std::size_t& at) const {
    if (directory.size() - at < kDirectoryHeader ||
        number<std::uint32_t>(directory, at) != kDirectorySignature) {
      raise<DataError>("{}: damaged ZIP directory at byte {} of {}", where_, at, directory.size());
    }
    Row row;
    row.flags = number<std::uint16_t>(directory, at + 8);
    row.method = number<std::uint16_t>(directory, at + 10);
    row.compressed_size = number<std::uint32_t>(directory, at + 20);
    row.size = number<std::uint32_t>(directory, at + 24);
    row.offset = number<std::uint32_t>(directory, at + 42);
    const std::size_t name_size = number<std::uint16_t>(directory, at + 28);
    const std::size_t extra_size = number<std::uint16_t>(directory, at + 30);
    const std::size_t comment_size = number<std::uint16_t>(directory, at + 32);
    const Bytes rest = directory.subspan(at + kDirectoryHeader);
    if (name_size + extra_size + comment_size > rest.size())
      raise<DataError>("{}: damaged ZIP directory at byte {} of {}", where_, at, directory.size());
    row.name = text(rest.first(name_size));
    widen(row, rest.subspan(name_size, extra_size));
    at += kDirectoryHeader + name_size + extra_size + comment_size;
    return row;
  }

  Bytes content(const Row& row) const {
    if (row.flags & kEncrypted)
      raise<DataError>("{}: '{}' is encrypted; expected plain bytes", where_, row.name);
    if (row.method != 0 || row.compressed_size != row.size) {
      raise<DataError>(
          "{}: '{}' is compressed (method {}, {} bytes as {}); expected stored bytes, as "
          "torch.save "
          "writes them: unpack the file and pack it with `zip -0`, or load and save it with torch",
          where_, row.name, row.method, row.size, row.compressed_size);
    }
    if (row.offset > file_.size() || file_.size() - row.offset < kEntryHeader) truncated(row);
    const auto header = static_cast<std::size_t>(row.offset);
    if (number<std::uint32_t>(file_, header) != kEntrySignature)
      raise<DataError>("{}: '{}' has no header at byte {}", where_, row.name, row.offset);
    const std::size_t name_size = number<std::uint16_t>(file_, header + 26);
    const std::size_t extra_size = number<std::uint16_t>(file_, header + 28);
    const Bytes rest = file_.subspan(header + kEntryHeader);
    if (name_size + extra_size > rest.size() || row.size > rest.size() - name_size - extra_size)
      truncated(row);
    if (text(rest.first(name_size)) != row.name)
      raise<DataError>("{}: '{}' has another name in its own header", where_, row.name);
    return rest.subspan(name_size + extra_size, static_cast<std::size_t>(row.size));
  }

 private:
  [[noreturn]] void truncated(const Row& row) const {
    raise<DataError>(
        "{}: '{}' of {} bytes at {} does not fit the file of {} (perhaps a truncated download)",
        where_, row.name, row.size, row.offset, file_.size());
  }

  // The record at the end of the file; only a comment may follow it.
  std::size_t find_end() const {
    if (file_.size() >= kEndRecord) {
      const std::size_t last = file_.size() - kEndRecord;
      const std::size_t first = last - std::min(last, kMaxComment);
      for (std::size_t at = last + 1; at-- > first;) {
        if (number<std::uint32_t>(file_, at) == kEndSignature &&
            number<std::uint16_t>(file_, at + 20) == last - at)
          return at;
      }
    }
    raise<DataError>("{}: a ZIP file of {} bytes without its end (perhaps a truncated download)",
                     where_, file_.size());
  }

  // The 64-bit form of the end record, which a locator in front of the short one points to.
  Directory find_directory64(std::size_t end) const {
    if (end >= kLocator64 &&
        number<std::uint32_t>(file_, end - kLocator64) == kLocator64Signature) {
      const auto at = number<std::uint64_t>(file_, end - kLocator64 + 8);
      if (at <= file_.size() && file_.size() - at >= kEnd64Record &&
          number<std::uint32_t>(file_, at) == kEnd64Signature) {
        return {number<std::uint64_t>(file_, at + 48), number<std::uint64_t>(file_, at + 40),
                number<std::uint64_t>(file_, at + 32)};
      }
    }
    raise<DataError>("{}: a ZIP file with 64-bit sizes, but without the record that holds them",
                     where_);
  }

  // Fills in what does not fit 32 bits: the extra field has the values in this order, each only if
  // it is needed.
  void widen(Row& row, Bytes extra) const {
    while (extra.size() >= 4) {
      const auto id = number<std::uint16_t>(extra, 0);
      const std::size_t size = number<std::uint16_t>(extra, 2);
      if (size > extra.size() - 4) break;
      if (id == kExtra64) {
        Bytes values = extra.subspan(4, size);
        for (std::uint64_t* value : {&row.size, &row.compressed_size, &row.offset}) {
          if (*value != kSee64) continue;
          if (values.size() < 8) raise<DataError>("{}: '{}' lacks a size", where_, row.name);
          *value = number<std::uint64_t>(values, 0);
          values = values.subspan(8);
        }
      }
      extra = extra.subspan(4 + size);
    }
  }

  Bytes file_;
  const std::string& where_;
};

template <class T>
void put(std::string& out, std::type_identity_t<T> value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::uint32_t checksum(Bytes bytes) {
  return static_cast<std::uint32_t>(
      ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

// A field of 32 bits, or the number in the extra field if it does not fit.
class Field32 {
 public:
  explicit Field32(std::uint64_t wide_from) : wide_from_(wide_from) {}
  std::uint32_t operator()(std::uint64_t value) {
    if (value < wide_from_) return static_cast<std::uint32_t>(value);
    put<std::uint64_t>(wide_, value);
    return kSee64;
  }
  std::string extra() const {
    if (wide_.empty()) return {};
    std::string out;
    put<std::uint16_t>(out, kExtra64);
    put<std::uint16_t>(out, static_cast<std::uint16_t>(wide_.size()));
    return out + wide_;
  }

 private:
  std::uint64_t wide_from_;
  std::string wide_;
};

// The fields that a member's own header and its row of the directory share, up to its two sizes.
std::string common_fields(const ZipEntry& entry, std::uint32_t crc, Field32& field32) {
  std::string out;
  put<std::uint16_t>(out, 0x0800);  // flags: the name is UTF-8
  put<std::uint16_t>(out, 0);       // method: stored
  put<std::uint32_t>(out, 0);       // no time, so that equal contents are equal files
  put<std::uint32_t>(out, crc);
  put<std::uint32_t>(out, field32(entry.bytes.size()));  // unpacked, packed
  put<std::uint32_t>(out, field32(entry.bytes.size()));
  put<std::uint16_t>(out, static_cast<std::uint16_t>(entry.name.size()));
  return out;
}

// A header whose extra field is as long as it takes for the bytes to begin at a multiple of 64.
std::string entry_header(const ZipEntry& entry, std::uint32_t crc, std::uint64_t offset,
                         std::uint64_t wide_from) {
  constexpr std::size_t kExtraHeader = 4;
  Field32 field32(wide_from);
  std::string out;
  put<std::uint32_t>(out, kEntrySignature);
  put<std::uint16_t>(out, 20);  // version that can unpack it
  out += common_fields(entry, crc, field32);
  const std::string wide = field32.extra();
  const std::uint64_t end = offset + kEntryHeader + entry.name.size() + wide.size() + kExtraHeader;
  const std::size_t padding = (kAlignment - end % kAlignment) % kAlignment;
  put<std::uint16_t>(out, static_cast<std::uint16_t>(wide.size() + kExtraHeader + padding));
  out += entry.name;
  out += wide;
  out += "FB";  // the mark of torch's own padding
  put<std::uint16_t>(out, static_cast<std::uint16_t>(padding));
  return out.append(padding, 'Z');
}

std::string directory_row(const ZipEntry& entry, std::uint32_t crc, std::uint64_t offset,
                          std::uint64_t wide_from) {
  Field32 field32(wide_from);
  std::string out;
  put<std::uint32_t>(out, kDirectorySignature);
  put<std::uint16_t>(out, 20);  // made by
  put<std::uint16_t>(out, 20);  // version that can unpack it
  out += common_fields(entry, crc, field32);
  const std::uint32_t offset32 = field32(offset);
  const std::string wide = field32.extra();
  put<std::uint16_t>(out, static_cast<std::uint16_t>(wide.size()));
  put<std::uint16_t>(out, 0);  // comment
  put<std::uint16_t>(out, 0);  // part
  put<std::uint16_t>(out, 0);  // attributes
  put<std::uint32_t>(out, 0);
  put<std::uint32_t>(out, offset32);
  return out + entry.name + wide;
}

// The end in 64-bit numbers, and where it is; followed by the ordinary one, which refers to them.
std::string end_record64(const Directory& directory) {
  std::string out;
  put<std::uint32_t>(out, kEnd64Signature);
  put<std::uint64_t>(out, kEnd64Record - 12);  // the size of what follows
  put<std::uint16_t>(out, 45);                 // made by
  put<std::uint16_t>(out, 45);                 // version that can unpack it
  put<std::uint32_t>(out, 0);                  // part
  put<std::uint32_t>(out, 0);
  put<std::uint64_t>(out, directory.count);
  put<std::uint64_t>(out, directory.count);
  put<std::uint64_t>(out, directory.size);
  put<std::uint64_t>(out, directory.offset);
  put<std::uint32_t>(out, kLocator64Signature);
  put<std::uint32_t>(out, 0);  // part
  put<std::uint64_t>(out, directory.offset + directory.size);
  put<std::uint32_t>(out, 1);  // parts
  return out;
}

std::string end_record(const Directory& directory, std::uint64_t wide_from) {
  const auto count = static_cast<std::uint16_t>(
      std::min<std::uint64_t>(directory.count, std::uint64_t{kSee64Short}));
  Field32 field32(wide_from);
  const std::uint32_t size = field32(directory.size);
  const std::uint32_t offset = field32(directory.offset);
  const bool wide = !field32.extra().empty() || count == kSee64Short;
  std::string out = wide ? end_record64(directory) : std::string();
  put<std::uint32_t>(out, kEndSignature);
  put<std::uint32_t>(out, 0);  // part
  put<std::uint16_t>(out, count);
  put<std::uint16_t>(out, count);
  put<std::uint32_t>(out, size);
  put<std::uint32_t>(out, offset);
  put<std::uint16_t>(out, 0);  // comment
  return out;
}

void check_writable(std::span<const ZipEntry> entries, const std::filesystem::path& path) {
  std::set<std::string_view> names;
  for (const ZipEntry& entry : entries) {
    if (!names.insert(entry.name).second)
      raise<InvalidArgument>("{}: '{}' occurs twice; expected distinct names", path.string(),
                             entry.name);
  }
}

}  // namespace

void write_zip(const std::filesystem::path& path, std::span<const ZipEntry> entries,
               std::uint64_t wide_from) {
  check_writable(entries, path);
  AtomicFile file(path);
  std::string rows;
  std::uint64_t offset = 0;
  for (const ZipEntry& entry : entries) {
    const std::uint32_t crc = checksum(entry.bytes);
    const std::string header = entry_header(entry, crc, offset, wide_from);
    file.write(header);
    file.write(entry.bytes);
    rows += directory_row(entry, crc, offset, wide_from);
    offset += header.size() + entry.bytes.size();
  }
  file.write(rows);
  file.write(end_record({offset, rows.size(), entries.size()}, wide_from));
  file.commit();
}

ZipArchive::ZipArchive(Bytes file, std::string where) : where_(std::move(where)) {
  const ZipReader reader(file, where_);
  const Directory found = reader.find_directory();
  const Bytes directory = file.subspan(found.offset, found.size);
  std::size_t at = 0;
  for (std::uint64_t i = 0; i < found.count; ++i) {
    const Row row = reader.read_row(directory, at);
    if (!entries_.emplace(row.name, reader.content(row)).second)
      raise<DataError>("{}: the ZIP directory has '{}' twice", where_, row.name);
  }
}

bool ZipArchive::looks_like_one(Bytes file) {
  return file.size() >= 4 && (number<std::uint32_t>(file, 0) == kEntrySignature ||
                              number<std::uint32_t>(file, 0) == kEndSignature);
}

std::optional<Bytes> ZipArchive::find(std::string_view name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return std::nullopt;
  return found->second;
}

}  // namespace tandem::formats
