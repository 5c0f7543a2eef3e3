#include "tandem/tasks/feature_file.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/file.h"

namespace tandem::tasks {
namespace {

namespace fs = std::filesystem;

constexpr std::array<char, 8> kMagic = {'t', 'd', 'm', 'f', 'e', 'a', 't', '3'};
constexpr std::size_t kAlignment = 64;

// The beginning of a file, in the byte order of the machine: a cache does not travel. Behind it
// follow the bytes of each field as 64-bit numbers, the key, and the fields, each at a multiple of
// kAlignment.
struct Header {
  std::array<char, 8> magic;
  std::uint64_t file_bytes;
  std::uint64_t checksum;  // CRC-32 of everything behind this number
  std::uint64_t key_bytes, num_fields;
};
static_assert(std::is_trivially_copyable_v<Header>);
constexpr std::size_t kChecksumEnd = offsetof(Header, checksum) + sizeof(std::uint64_t);

std::uint64_t checksum(std::uint64_t before, FieldBytes bytes) {
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min<std::size_t>(bytes.size(), 1 << 30));
    before =
        crc32(before, reinterpret_cast<const Bytef*>(part.data()), static_cast<uInt>(part.size()));
    bytes = bytes.subspan(part.size());
  }
  return before;
}

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Sizes and key as a file has them behind its header.
std::string index_of(std::string_view key, std::span<const FieldBytes> fields) {
  std::string index;
  for (const FieldBytes field : fields) {
    const std::uint64_t size = field.size();
    index.append(reinterpret_cast<const char*>(&size), sizeof(size));
  }
  return index.append(key);
}

}  // namespace

void write_fields(const fs::path& path, std::string_view key, std::span<const FieldBytes> fields) {
  static constexpr std::array<std::byte, kAlignment> kZeros{};
  const std::string index = index_of(key, fields);
  Header header{kMagic, 0, 0, key.size(), fields.size()};
  std::vector<FieldBytes> parts;
  const auto add = [&](FieldBytes part) {
    parts.push_back(part);
    header.file_bytes += part.size();
  };
  const auto pad = [&] {
    add(std::span(kZeros).first(aligned(header.file_bytes) - header.file_bytes));
  };
  add(std::as_bytes(std::span(&header, 1)));
  add(std::as_bytes(std::span(index)));
  pad();
  for (const FieldBytes field : fields) {
    add(field);
    pad();
  }
  std::uint64_t sum = checksum(0, parts.front().subspan(kChecksumEnd));
  for (const FieldBytes part : std::span(parts).subspan(1)) sum = checksum(sum, part);
  header.checksum = sum;
  // A name of its own, so that ranks that write the same file at once do not disturb each other;
  // the first one stays.
  AtomicFile file(path);
  for (const FieldBytes part : parts) file.write(part);
  file.publish_if_new();
}

std::optional<FeatureFields> FeatureFields::map(const fs::path& path, std::string_view key) {
  std::error_code error;
  if (!fs::exists(path, error) && !error) return std::nullopt;
  auto file = std::make_shared<const MappedFile>(path, Writers::kThisUser);
  const FieldBytes bytes = file->bytes();
  return parse(bytes, std::move(file), key, path.native());
}

FeatureFields FeatureFields::parse(FieldBytes bytes, std::shared_ptr<const void> memory,
                                   std::string_view key, std::string_view name) {
  const auto fail = [&](std::string_view problem) {
    raise<DataError>("file of features '{}': {}", name, problem);
  };
  std::size_t at = 0;
  const auto take = [&](std::uint64_t size) {
    if (at > bytes.size() || size > bytes.size() - at) fail("a size in it is wrong");
    return bytes.subspan(std::exchange(at, at + size), size);
  };
  Header header;
  if (bytes.size() < sizeof(header)) fail("cut off");
  std::memcpy(&header, take(sizeof(header)).data(), sizeof(header));
  if (header.magic != kMagic) fail("another format");
  if (header.file_bytes != bytes.size()) {
    fail(fmt::format("{} bytes, expected {}", bytes.size(), header.file_bytes));
  }
  if (checksum(0, bytes.subspan(kChecksumEnd)) != header.checksum) {
    fail("its checksum is wrong: it was changed, or not written to its end");
  }
  // A right checksum does not authenticate the file: sizes may still be anything.
  if (header.num_fields > bytes.size() / sizeof(std::uint64_t)) fail("a size in it is wrong");
  std::vector<std::uint64_t> sizes(header.num_fields);
  const FieldBytes listed = take(sizes.size() * sizeof(std::uint64_t));
  if (!sizes.empty()) std::memcpy(sizes.data(), listed.data(), listed.size());
  const FieldBytes own_key = take(header.key_bytes);
  if (std::string_view(reinterpret_cast<const char*>(own_key.data()), own_key.size()) != key)
    fail("features of another key");
  FeatureFields fields;
  for (const std::uint64_t size : sizes) {
    at = aligned(at);
    fields.fields_.push_back(take(size));
  }
  fields.memory_ = std::move(memory);
  return fields;
}

FieldBytes FeatureFields::next(std::size_t element_bytes, bool array) {
  if (taken_ < fields_.size()) {
    const FieldBytes bytes = fields_[taken_++];
    if (array ? bytes.size() % element_bytes == 0 : bytes.size() == element_bytes) return bytes;
  }
  raise<DataError>("the file of features has other fields than this program expects");
}

// Each text ends with a line break.
void FeatureFields::take(std::vector<std::string>& field) {
  const FieldBytes bytes = next(1, /*array=*/true);
  std::string_view left(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (field.clear(); !left.empty();) {
    const std::size_t end = std::min(left.find('\n'), left.size() - 1);
    field.emplace_back(left.substr(0, end));
    left.remove_prefix(end + 1);
  }
}

void CollectedFields::add(const std::vector<std::string>& field) {
  std::string& text = texts_.emplace_back();
  for (const std::string& line : field) text += line + '\n';
  fields_.push_back(std::as_bytes(std::span(text)));
}

}  // namespace tandem::tasks
