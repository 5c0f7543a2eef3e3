#include "apps/answering/embedding_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/file.h"

namespace tandem::apps {
namespace {

static_assert(std::endian::native == std::endian::little, "floats are written as they are");

const char* dtype_of(EmbeddingPrecision precision) {
  switch (precision) {
    case EmbeddingPrecision::kBinary:
      return "|i1";
    case EmbeddingPrecision::kUbinary:
      return "|u1";
    case EmbeddingPrecision::kFloat32:
      break;
  }
  return "<f4";
}

std::size_t columns_of(EmbeddingPrecision precision, std::size_t size) {
  return precision == EmbeddingPrecision::kFloat32 ? size : (size + 7) / 8;
}

char packed(std::span<const float> values, EmbeddingPrecision precision) {
  unsigned byte = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] > 0) byte |= 0x80u >> i;
  }
  if (precision == EmbeddingPrecision::kBinary) byte = (byte + 128u) & 0xffu;  // minus 128
  return static_cast<char>(byte);
}

}  // namespace

std::size_t embedding_bytes(EmbeddingPrecision precision, std::size_t size) {
  return columns_of(precision, size) *
         (precision == EmbeddingPrecision::kFloat32 ? sizeof(float) : 1);
}

void append_embeddings(EmbeddingPrecision precision, std::span<const float> embeddings,
                       std::size_t size, std::string& out) {
  if (precision == EmbeddingPrecision::kFloat32) {
    const auto bytes = std::as_bytes(embeddings);
    out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return;
  }
  for (std::size_t row = 0; row + size <= embeddings.size(); row += size) {
    for (std::size_t i = 0; i < size; i += 8)
      out += packed(embeddings.subspan(row + i, std::min<std::size_t>(8, size - i)), precision);
  }
}

std::string npy_header(EmbeddingPrecision precision, std::size_t rows, std::size_t size) {
  std::string header("\x93NUMPY\x01\x00\x76\x00", 10);  // 0x76: what follows, up to 128 bytes
  header += fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}, {}), }}",
                        dtype_of(precision), rows, columns_of(precision, size));
  header.resize(kNpyHeader - 1, ' ');
  return header + '\n';
}

NpyFile::NpyFile(std::filesystem::path path, EmbeddingPrecision precision, std::size_t size,
                 const std::string& job)
    : path_(std::move(path)), precision_(precision), size_(size) {
  const std::string description =
      fmt::format("{}\n{}", job, npy_header(precision, 0, size).substr(10));
  const bool continues = read_file_if_exists(job_file()) == description;
  if (!continues) {
    std::error_code ignored;
    std::filesystem::remove(partial(), ignored);
    AtomicFile file(job_file());
    file.write(description);
    file.commit();
  }
  descriptor_ = ::open(partial().c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (descriptor_ < 0) throw io_error("cannot write", partial().native(), errno);
  struct stat info {};
  if (::fstat(descriptor_, &info) != 0) throw io_error("cannot write", partial().native(), errno);
  const auto bytes = static_cast<std::size_t>(info.st_size);
  if (bytes > kNpyHeader) rows_ = (bytes - kNpyHeader) / embedding_bytes(precision, size);
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
    if (written < 0) throw io_error("cannot write", partial().native(), errno);
    offset += static_cast<std::size_t>(written);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void NpyFile::append(std::span<const float> embeddings) {
  std::string bytes;
  append_embeddings(precision_, embeddings, size_, bytes);
  write_at(kNpyHeader + rows_ * embedding_bytes(precision_, size_), bytes);
  rows_ += embeddings.size() / size_;
}

void NpyFile::commit() {
  write_at(0, npy_header(precision_, rows_, size_));
  const std::size_t end = kNpyHeader + rows_ * embedding_bytes(precision_, size_);
  if (::ftruncate(descriptor_, static_cast<off_t>(end)) != 0 || ::fsync(descriptor_) != 0)
    throw io_error("cannot write", partial().native(), errno);
  std::error_code error;
  std::filesystem::rename(partial(), path_, error);
  if (error) throw io_error("cannot write", path_.native(), error.value());
  std::filesystem::remove(job_file(), error);
}

}  // namespace tandem::apps
