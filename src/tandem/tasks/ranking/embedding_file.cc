#include "tandem/tasks/ranking/embedding_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <regex>
#include <string>
#include <utility>

#include "tandem/core/error.h"

namespace tandem::tasks::ranking {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kPreamble = 10;  // version 1: magic, version, length of the header
constexpr std::size_t kLongestHeader = 1 << 16;
constexpr std::size_t kTextsAtOnce = 4096;
constexpr std::size_t kRowBytesAtOnce = 1 << 16;  // for rows that are converted

}  // namespace

EmbeddingFile::EmbeddingFile(std::filesystem::path path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) throw io_error("cannot read", path_.native(), errno);
  try {
    parse_header();
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

EmbeddingFile::~EmbeddingFile() { ::close(descriptor_); }

void EmbeddingFile::read_bytes(std::size_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t got =
        ::pread(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw io_error("cannot read", path_.native(), errno);
    if (got == 0)
      raise<DataError>("'{}' ends at byte {}; expected more rows", path_.string(), offset);
    offset += static_cast<std::size_t>(got);
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

void EmbeddingFile::parse_header() {
  struct stat info {};
  if (::fstat(descriptor_, &info) != 0) throw io_error("cannot read", path_.native(), errno);
  const auto size = static_cast<std::size_t>(info.st_size);
  std::string text(std::min(size, kLongestHeader), '\0');
  read_bytes(0, std::as_writable_bytes(std::span(text)));
  if (text.size() < kPreamble + 2 || !text.starts_with(kMagic))
    raise<DataError>("'{}' is not a NumPy array; expected a .npy file", path_.string());
  const auto byte = [&](std::size_t at) {
    return static_cast<std::size_t>(static_cast<unsigned char>(text[at]));
  };
  const bool version_1 = byte(6) == 1;
  const std::size_t begin = version_1 ? kPreamble : kPreamble + 2;
  std::size_t length = byte(8) | byte(9) << 8;
  if (!version_1) length |= byte(10) << 16 | byte(11) << 24;
  if (begin + length > text.size())
    raise<DataError>("'{}': the header ends behind the file", path_.string());
  const std::string header = text.substr(begin, length);
  std::smatch found;
  static const std::regex kForm(
      R"(\{'descr': '(<f4|\|i1)', 'fortran_order': False, 'shape': \((\d{1,15}), (\d{1,9})\), \}\s*)");
  if (!std::regex_match(header, found, kForm))
    raise<DataError>("'{}': found the header {}; expected float32 or int8 of [texts, values]",
                     path_.string(), header.substr(0, header.find('\n')));
  value_bytes_ = found[1] == "<f4" ? sizeof(float) : 1;
  texts_ = std::stoull(found[2]);
  width_ = std::stoull(found[3]);
  data_ = begin + length;
  if (width_ == 0) raise<DataError>("'{}' has rows without a value", path_.string());
  if ((size - data_) / (width_ * value_bytes_) < texts_)
    raise<DataError>("'{}' has {} bytes; expected {} rows of {}", path_.string(), size, texts_,
                     width_ * value_bytes_);
}

void EmbeddingFile::read(std::size_t first, std::size_t width, std::span<float> out) const {
  TANDEM_CHECK(width > 0 && width <= width_ && out.size() % width == 0);
  TANDEM_CHECK(first + out.size() / width <= texts_);
  const std::size_t row_bytes = width_ * value_bytes_;
  if (value_bytes_ == sizeof(float) && width == width_)
    return read_bytes(data_ + first * row_bytes, std::as_writable_bytes(out));
  const std::size_t at_once = std::max<std::size_t>(1, kRowBytesAtOnce / row_bytes);
  std::vector<std::byte> rows;
  while (!out.empty()) {
    const std::size_t count = std::min(at_once, out.size() / width);
    rows.resize(count * row_bytes);
    read_bytes(data_ + first * row_bytes, rows);
    for (std::size_t row = 0; row < count; ++row) {
      const std::byte* from = rows.data() + row * row_bytes;
      float* to = out.data() + row * width;
      if (value_bytes_ == sizeof(float))
        std::memcpy(to, from, width * sizeof(float));
      else
        std::transform(from, from + width, to,
                       [](std::byte value) { return static_cast<std::int8_t>(value); });
    }
    first += count;
    out = out.subspan(count * width);
  }
}

std::size_t search_file_bytes(const EmbeddingFile& corpus, std::size_t width) {
  const std::size_t row = corpus.width() * corpus.value_bytes();
  return std::min(kTextsAtOnce, corpus.texts()) * width * sizeof(float) +
         std::max(kRowBytesAtOnce, row);
}

void search_file(const EmbeddingFile& corpus, std::size_t width, Search& search,
                 const kernels::Context& context,
                 const std::function<void(std::size_t texts)>& progress) {
  std::vector<float> piece;
  for (std::size_t first = 0; first < corpus.texts(); first += kTextsAtOnce) {
    const std::size_t count = std::min(kTextsAtOnce, corpus.texts() - first);
    piece.resize(count * width);
    corpus.read(first, width, piece);
    search.add({piece, width}, context);
    if (progress) progress(first + count);
  }
}

}  // namespace tandem::tasks::ranking
