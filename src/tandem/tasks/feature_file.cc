#include "tandem/tasks/feature_file.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/mappings.h"

namespace tandem::tasks {
namespace {

namespace fs = std::filesystem;

constexpr std::array<char, 8> kMagic = {'t', 'd', 'm', 'f', 'e', 'a', 't', '4'};
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

// The end of a file, in the byte order of the machine: a cache does not travel. The file begins
// with kMagic. The fields follow, each at a multiple of kAlignment, then the bytes of each field as
// 64-bit numbers, the key, and this.
struct Trailer {
  std::array<char, 8> magic;
  std::uint64_t file_bytes;
  std::uint64_t key_bytes, num_fields;
  std::uint64_t checksum;  // CRC-32 of everything before this number
};
static_assert(std::is_trivially_copyable_v<Trailer>);
constexpr std::size_t kChecksumBytes = sizeof(Trailer) - offsetof(Trailer, checksum);

std::uint64_t checksum(std::uint64_t before, FieldBytes bytes) {
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min<std::size_t>(bytes.size(), 1 << 30));
    before =
        crc32(before, reinterpret_cast<const Bytef*>(part.data()), static_cast<uInt>(part.size()));
    bytes = bytes.subspan(part.size());
  }
  return before;
}

std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

// --- writing ---

// A name of its own, so that ranks that write the same file at once do not disturb each other; the
// first one stays.
FeatureFileWriter::FeatureFileWriter(fs::path path, std::string_view key)
    : file_(std::move(path)), key_(key) {
  buffer_.reserve(kBufferBytes);
  put(std::as_bytes(std::span(kMagic)));
  pad();
}

void FeatureFileWriter::append(FieldBytes bytes) {
  field_bytes_ += bytes.size();
  put(bytes);
}

void FeatureFileWriter::end_field() {
  sizes_.push_back(std::exchange(field_bytes_, 0));
  pad();
}

void FeatureFileWriter::publish() {
  TANDEM_CHECK(field_bytes_ == 0, "the last field has no end");
  put(std::as_bytes(std::span(sizes_)));
  put(std::as_bytes(std::span(key_)));
  Trailer trailer{kMagic, file_bytes_ + sizeof(Trailer), key_.size(), sizes_.size(), 0};
  const FieldBytes bytes = std::as_bytes(std::span(&trailer, 1));
  put(bytes.first(sizeof(Trailer) - kChecksumBytes));
  flush();
  trailer.checksum = checksum_;
  put(bytes.last(kChecksumBytes));
  flush();
  file_.publish_if_new();
}

void FeatureFileWriter::put(FieldBytes bytes) {
  file_bytes_ += bytes.size();
  while (!bytes.empty()) {
    const FieldBytes part = bytes.first(std::min(bytes.size(), kBufferBytes - buffer_.size()));
    buffer_.insert(buffer_.end(), part.begin(), part.end());
    bytes = bytes.subspan(part.size());
    if (buffer_.size() == kBufferBytes) flush();
  }
}

void FeatureFileWriter::pad() {
  static constexpr std::array<std::byte, kAlignment> kZeros{};
  put(std::span(kZeros).first(static_cast<std::size_t>(aligned(file_bytes_) - file_bytes_)));
}

void FeatureFileWriter::flush() {
  checksum_ = checksum(checksum_, buffer_);
  file_.write(buffer_);
  buffer_.clear();
}

void write_fields(const fs::path& path, std::string_view key, std::span<const FieldBytes> fields) {
  FeatureFileWriter writer(path, key);
  for (const FieldBytes field : fields) {
    writer.append(field);
    writer.end_field();
  }
  writer.publish();
}

// --- reading ---

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
  Trailer trailer;
  if (bytes.size() < kAlignment + sizeof(trailer)) fail("cut off");
  if (std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) fail("another format");
  std::memcpy(&trailer, bytes.last(sizeof(trailer)).data(), sizeof(trailer));
  if (trailer.magic != kMagic || trailer.file_bytes != bytes.size())
    fail(fmt::format("cut off or changed, found {} bytes", bytes.size()));
  std::uint64_t found = 0;
  visit_and_release(bytes.first(bytes.size() - kChecksumBytes),
                    [&](FieldBytes piece) { found = checksum(found, piece); });
  if (found != trailer.checksum) {
    fail("its checksum is wrong: it was changed, or not written to its end");
  }
  // A right checksum does not authenticate the file: sizes may still be anything.
  FieldBytes left = bytes.first(bytes.size() - sizeof(trailer));
  const auto require = [&](bool fits) {
    if (!fits) fail("a size in it is wrong");
  };
  const auto take_last = [&](std::uint64_t size) {
    require(size <= left.size());
    const FieldBytes last = left.last(static_cast<std::size_t>(size));
    left = left.first(left.size() - last.size());
    return last;
  };
  const FieldBytes own_key = take_last(trailer.key_bytes);
  require(trailer.num_fields <= left.size() / sizeof(std::uint64_t));
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(trailer.num_fields));
  const FieldBytes listed = take_last(sizes.size() * sizeof(std::uint64_t));
  if (!sizes.empty()) std::memcpy(sizes.data(), listed.data(), listed.size());
  if (std::string_view(reinterpret_cast<const char*>(own_key.data()), own_key.size()) != key)
    fail("features of another key");
  FeatureFields fields;
  std::uint64_t at = kAlignment;
  for (const std::uint64_t size : sizes) {
    require(at <= left.size() && size <= left.size() - at);
    fields.fields_.push_back(
        left.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(size)));
    at = aligned(at + size);
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
