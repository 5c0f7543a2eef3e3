#include "tandem/tasks/question_answering/feature_file.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/file.h"

namespace tandem::question_answering {
namespace {

namespace fs = std::filesystem;

constexpr std::array<char, 8> kMagic = {'t', 'd', 'm', 'f', 'e', 'a', 't', '2'};
constexpr std::size_t kNumArrays = 7;
constexpr std::size_t kAlignment = 64;

// The beginning of a file, in the byte order of the machine: a cache does not travel. Behind it the
// key, the warnings (each with a line break) and the arrays follow, each at a multiple of
// kAlignment.
struct Header {
  std::array<char, 8> magic;
  std::uint64_t file_bytes;
  std::uint64_t checksum;  // CRC-32 of everything behind this number
  std::uint64_t key_bytes, warning_bytes;
  std::array<std::uint64_t, kNumArrays> sizes;  // elements of the arrays
  std::uint64_t num_examples, num_real_tokens, num_cls_labels, num_unusable, num_last_token_labels;
  std::uint64_t max_seq_length;
  text::SequenceTemplate frame;
};
static_assert(std::is_trivially_copyable_v<Header>);
constexpr std::size_t kChecksumEnd = offsetof(Header, checksum) + sizeof(std::uint64_t);

std::uint64_t checksum(std::uint64_t before, std::span<const std::byte> bytes) {
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

}  // namespace

// What the file holds, in order; also the friend that knows how a FeatureSet is kept.
class FeatureFile {
 public:
  static void write(const fs::path& path, std::string_view key, const FeatureSet& set) {
    std::string text(key);
    for (const std::string& warning : set.statistics_.warnings) text += warning + '\n';
    Header header = header_of(set);
    header.key_bytes = key.size();
    header.warning_bytes = text.size() - key.size();
    const auto parts = parts_of(set, header, text);
    std::uint64_t sum = 0;
    for (const auto part : parts) header.file_bytes += part.size();
    sum = checksum(sum, parts.front().subspan(kChecksumEnd));
    for (const auto part : std::span(parts).subspan(1)) sum = checksum(sum, part);
    header.checksum = sum;
    // A name of its own, so that ranks that write the same file at once do not disturb each other;
    // the last rename wins.
    AtomicFile file(path);
    for (const auto part : parts) file.write(part);
    file.publish();
  }

  static FeatureSet read(const fs::path& path, std::string_view key) {
    auto file = std::make_shared<const MappedFile>(path);
    const auto fail = [&](std::string_view problem) {
      raise<DataError>("file of features '{}': {}", path.string(), problem);
    };
    const std::span bytes = file->bytes();
    Header header;
    if (bytes.size() < sizeof(header)) fail("cut off");
    std::memcpy(&header, bytes.data(), sizeof(header));
    if (header.magic != kMagic) fail("another format");
    if (header.file_bytes != bytes.size()) {
      fail(fmt::format("{} bytes, expected {}", bytes.size(), header.file_bytes));
    }
    if (checksum(0, bytes.subspan(kChecksumEnd)) != header.checksum) {
      fail("its checksum is wrong: it was changed, or not written to its end");
    }
    FeatureSet set;
    // From here on the file is what write() made of a FeatureSet.
    std::string_view text(reinterpret_cast<const char*>(bytes.data()) + sizeof(Header),
                          header.key_bytes + header.warning_bytes);
    if (text.substr(0, header.key_bytes) != key) fail("features of another key");
    set.statistics_.num_examples = header.num_examples;
    set.statistics_.num_real_tokens = header.num_real_tokens;
    set.statistics_.num_cls_labels = header.num_cls_labels;
    set.statistics_.num_unusable = header.num_unusable;
    set.statistics_.num_last_token_labels = header.num_last_token_labels;
    for (std::string_view left = text.substr(header.key_bytes); !left.empty();) {
      const std::size_t end = left.find('\n');
      set.statistics_.warnings.emplace_back(left.substr(0, end));
      left.remove_prefix(end + 1);
    }
    set.max_seq_length_ = header.max_seq_length;
    set.frame_ = header.frame;
    std::size_t at = aligned(sizeof(Header) + text.size());
    std::size_t array = 0;
    for_each_array(set.arrays_, [&]<class T>(std::span<const T>& view) {
      const std::size_t size = header.sizes[array++];
      view = {reinterpret_cast<const T*>(bytes.data() + at), size};
      at += aligned(view.size_bytes());
    });
    set.memory_ = std::move(file);
    return set;
  }

 private:
  template <class Arrays, class Visit>
  static void for_each_array(Arrays& arrays, Visit&& visit) {
    visit(arrays.features);
    visit(arrays.questions);
    visit(arrays.context_of);
    visit(arrays.contexts);
    visit(arrays.question_ids);
    visit(arrays.context_ids);
    visit(arrays.context_offsets);
  }

  static Header header_of(const FeatureSet& set) {
    Header header{};
    header.magic = kMagic;
    std::size_t array = 0;
    for_each_array(set.arrays_, [&](const auto& view) { header.sizes[array++] = view.size(); });
    header.num_examples = set.statistics_.num_examples;
    header.num_real_tokens = set.statistics_.num_real_tokens;
    header.num_cls_labels = set.statistics_.num_cls_labels;
    header.num_unusable = set.statistics_.num_unusable;
    header.num_last_token_labels = set.statistics_.num_last_token_labels;
    header.max_seq_length = set.max_seq_length_;
    header.frame = set.frame_;
    return header;
  }

  // Views of the header, the text and the arrays, with zeros between them.
  static std::vector<std::span<const std::byte>> parts_of(const FeatureSet& set,
                                                          const Header& header,
                                                          const std::string& text) {
    static constexpr std::array<std::byte, kAlignment> kZeros{};
    std::vector<std::span<const std::byte>> parts;
    const auto pad = [&](std::size_t bytes) {
      parts.push_back(std::span(kZeros).first(aligned(bytes) - bytes));
    };
    parts.push_back(std::as_bytes(std::span(&header, 1)));
    parts.push_back(std::as_bytes(std::span(text)));
    pad(sizeof(Header) + text.size());
    for_each_array(set.arrays_, [&](const auto& view) {
      parts.push_back(std::as_bytes(view));
      pad(view.size_bytes());
    });
    return parts;
  }
};

void write_feature_file(const fs::path& path, std::string_view key, const FeatureSet& features) {
  FeatureFile::write(path, key, features);
}

std::optional<FeatureSet> read_feature_file(const fs::path& path, std::string_view key) {
  std::error_code error;
  if (!fs::exists(path, error) && !error) return std::nullopt;
  return FeatureFile::read(path, key);
}

}  // namespace tandem::question_answering
