#include "apps/answering/embedding_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/file.h"

namespace tandem::apps {
namespace {

constexpr std::size_t kRowsAtOnce = 1024;

static_assert(std::endian::native == std::endian::little, "floats are written as they are");

bool is_bits(EmbeddingPrecision precision) {
  return precision == EmbeddingPrecision::kBinary || precision == EmbeddingPrecision::kUbinary;
}

bool is_scaled(EmbeddingPrecision precision) {
  return precision == EmbeddingPrecision::kInt8 || precision == EmbeddingPrecision::kUint8;
}

const char* dtype_of(EmbeddingPrecision precision) {
  if (precision == EmbeddingPrecision::kFloat32) return "<f4";
  return is_signed(precision) ? "|i1" : "|u1";
}

std::size_t columns_of(EmbeddingPrecision precision, std::size_t size) {
  return is_bits(precision) ? (size + 7) / 8 : size;
}

// 0 to 255 as int8 after 128 was taken away, or as uint8.
char byte_of(unsigned value, EmbeddingPrecision precision) {
  return static_cast<char>(is_signed(precision) ? (value + 128u) & 0xffu : value);
}

char packed(std::span<const float> values, EmbeddingPrecision precision) {
  unsigned byte = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] > 0) byte |= 0x80u >> i;
  }
  return byte_of(byte, precision);
}

// NumPy computes all of it in f32, so a component's greatest value may become 254.
char scaled(float value, float least, float greatest, EmbeddingPrecision precision) {
  const float step = (greatest - least) / 255.0f;
  const float steps = std::floor((value - least) / (step == 0 ? 1.0f : step));
  return byte_of(static_cast<unsigned>(std::clamp(steps, 0.0f, 255.0f)), precision);
}

}  // namespace

void ValueRanges::add(std::span<const float> embeddings, std::size_t size) {
  for (std::size_t row = 0; row + size <= embeddings.size(); row += size) {
    const auto embedding = embeddings.subspan(row, size);
    if (least.empty()) {
      least.assign(embedding.begin(), embedding.end());
      greatest = least;
    }
    for (std::size_t i = 0; i < size; ++i) {
      least[i] = std::min(least[i], embedding[i]);
      greatest[i] = std::max(greatest[i], embedding[i]);
    }
  }
}

bool is_signed(EmbeddingPrecision precision) {
  return precision == EmbeddingPrecision::kBinary || precision == EmbeddingPrecision::kInt8;
}

bool EmbeddingFormat::lacks_ranges() const { return is_scaled(precision) && ranges.least.empty(); }

std::size_t embedding_bytes(EmbeddingPrecision precision, std::size_t size) {
  return columns_of(precision, size) *
         (precision == EmbeddingPrecision::kFloat32 ? sizeof(float) : 1);
}

void append_embeddings(const EmbeddingFormat& format, std::span<const float> embeddings,
                       std::string& out) {
  const auto& [precision, size, ranges] = format;
  if (precision == EmbeddingPrecision::kFloat32) {
    const auto bytes = std::as_bytes(embeddings);
    out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return;
  }
  TANDEM_CHECK(!format.lacks_ranges());
  for (std::size_t row = 0; row + size <= embeddings.size(); row += size) {
    for (std::size_t i = 0; is_bits(precision) && i < size; i += 8)
      out += packed(embeddings.subspan(row + i, std::min<std::size_t>(8, size - i)), precision);
    for (std::size_t i = 0; is_scaled(precision) && i < size; ++i)
      out += scaled(embeddings[row + i], ranges.least[i], ranges.greatest[i], precision);
  }
}

std::string npy_header(EmbeddingPrecision precision, std::size_t rows, std::size_t size) {
  std::string header("\x93NUMPY\x01\x00\x76\x00", 10);  // 0x76: what follows, up to 128 bytes
  header += fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}, {}), }}",
                        dtype_of(precision), rows, columns_of(precision, size));
  header.resize(kNpyHeader - 1, ' ');
  return header + '\n';
}

NpyFile::NpyFile(std::filesystem::path path, EmbeddingFormat format, const std::string& job)
    : path_(std::move(path)), format_(std::move(format)), partial_(format_) {
  if (format_.lacks_ranges()) partial_.precision = EmbeddingPrecision::kFloat32;
  const std::string description =
      fmt::format("{}\n{}", job, npy_header(partial_.precision, 0, format_.size).substr(10));
  const bool continues = read_file_if_exists(job_file()) == description;
  if (!continues) {
    std::error_code ignored;
    std::filesystem::remove(partial(), ignored);
    AtomicFile file(job_file());
    file.write(description);
    file.commit();
  }
  descriptor_ = ::open(partial().c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (descriptor_ < 0) throw io_error("cannot write", path_.native(), errno);
  struct stat info {};
  if (::fstat(descriptor_, &info) != 0) throw io_error("cannot write", path_.native(), errno);
  const auto bytes = static_cast<std::size_t>(info.st_size);
  if (bytes > kNpyHeader)
    rows_ = (bytes - kNpyHeader) / embedding_bytes(partial_.precision, partial_.size);
}

NpyFile::~NpyFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::filesystem::path NpyFile::partial() const { return path_.native() + ".partial"; }
std::filesystem::path NpyFile::job_file() const { return path_.native() + ".job"; }

void NpyFile::write_at(std::size_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw io_error("cannot write", path_.native(), errno);
    offset += static_cast<std::size_t>(written);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void NpyFile::append(std::span<const float> embeddings) {
  std::string bytes;
  append_embeddings(partial_, embeddings, bytes);
  write_at(kNpyHeader + rows_ * embedding_bytes(partial_.precision, partial_.size), bytes);
  rows_ += embeddings.size() / partial_.size;
}

std::vector<float> NpyFile::read(std::size_t first, std::size_t count) const {
  std::vector<float> rows(count * partial_.size);
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(rows));
  const std::size_t offset = kNpyHeader + first * partial_.size * sizeof(float);
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t read = ::pread(descriptor_, bytes.data() + done, bytes.size() - done,
                                 static_cast<off_t>(offset + done));
    if (read < 0 && errno == EINTR) continue;
    if (read <= 0) throw io_error("cannot read", partial().native(), read < 0 ? errno : EIO);
    done += static_cast<std::size_t>(read);
  }
  return rows;
}

// PATH.partial stays as it is until PATH is whole: a kill costs no row.
void NpyFile::quantize_partial() {
  for (std::size_t row = 0; row < rows_; row += kRowsAtOnce)
    format_.ranges.add(read(row, std::min(kRowsAtOnce, rows_ - row)), format_.size);
  AtomicFile file(path_);
  file.write(npy_header(format_.precision, rows_, format_.size));
  for (std::size_t row = 0; row < rows_; row += kRowsAtOnce) {
    std::string bytes;
    append_embeddings(format_, read(row, std::min(kRowsAtOnce, rows_ - row)), bytes);
    file.write(bytes);
  }
  file.commit();
  std::error_code ignored;
  std::filesystem::remove(partial(), ignored);
}

void NpyFile::finish_partial() {
  write_at(0, npy_header(format_.precision, rows_, format_.size));
  const std::size_t end = kNpyHeader + rows_ * embedding_bytes(format_.precision, format_.size);
  if (::ftruncate(descriptor_, static_cast<off_t>(end)) != 0 || ::fsync(descriptor_) != 0)
    throw io_error("cannot write", path_.native(), errno);
  std::error_code error;
  std::filesystem::rename(partial(), path_, error);
  if (error) throw io_error("cannot write", path_.native(), error.value());
}

void NpyFile::commit() {
  if (format_.lacks_ranges())
    quantize_partial();
  else
    finish_partial();
  std::error_code ignored;
  std::filesystem::remove(job_file(), ignored);
}

void NpyFile::discard() {
  std::error_code ignored;
  std::filesystem::remove(partial(), ignored);
  std::filesystem::remove(job_file(), ignored);
}

}  // namespace tandem::apps
