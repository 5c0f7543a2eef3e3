#include "tandem/formats/compressed_file.h"

#include <fmt/ranges.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <memory>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/formats/read_budget.h"

namespace tandem::formats {
namespace {

namespace fs = std::filesystem;
using Bytes = std::span<const std::byte>;

constexpr std::array<std::string_view, 2> kCompressions = {".gz", ".zst"};
constexpr std::size_t kPieceBytes = std::size_t{256} << 10;

// Takes a file piece by piece and gives its content piece by piece.
class Decompressor {
 public:
  explicit Decompressor(std::function<void(Bytes)> give) : give_(std::move(give)) {}
  virtual ~Decompressor() = default;
  virtual void take(Bytes compressed) = 0;
  // Whether a compressed part has begun and not ended.
  virtual bool is_open() const = 0;

 protected:
  std::span<std::byte> room() { return room_; }
  void give(std::size_t bytes) { give_(Bytes(room_).first(bytes)); }

 private:
  std::function<void(Bytes)> give_;
  std::vector<std::byte> room_ = std::vector<std::byte>(kPieceBytes);
};

class Gunzip final : public Decompressor {
 public:
  explicit Gunzip(std::function<void(Bytes)> give) : Decompressor(std::move(give)) {
    constexpr int kGzipOnly = 15 + 16;
    if (inflateInit2(&stream_, kGzipOnly) != Z_OK) raise<DataError>("zlib cannot start");
  }
  ~Gunzip() override { inflateEnd(&stream_); }

  void take(Bytes compressed) override {
    stream_.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(compressed.data()));
    stream_.avail_in = static_cast<uInt>(compressed.size());
    while (stream_.avail_in > 0) {
      if (!is_open_ && !begin_part()) return;
      inflate_some();
    }
  }
  bool is_open() const override { return is_open_; }

 private:
  // Zeros may follow the last part: tapes and disks have blocks.
  bool begin_part() {
    if (has_part_) {
      while (stream_.avail_in > 0 && *stream_.next_in == 0) ++stream_.next_in, --stream_.avail_in;
      if (stream_.avail_in == 0) return false;
    }
    inflateReset(&stream_);
    return is_open_ = has_part_ = true;
  }
  void inflate_some() {
    stream_.next_out = reinterpret_cast<Bytef*>(room().data());
    stream_.avail_out = static_cast<uInt>(room().size());
    const int code = inflate(&stream_, Z_NO_FLUSH);
    give(room().size() - stream_.avail_out);
    if (code == Z_STREAM_END) is_open_ = false;
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
      raise<DataError>("broken gzip data: {}", stream_.msg ? stream_.msg : zError(code));
  }

  z_stream stream_{};
  bool is_open_ = false, has_part_ = false;
};

class Unzstd final : public Decompressor {
 public:
  explicit Unzstd(std::function<void(Bytes)> give)
      : Decompressor(std::move(give)), stream_(ZSTD_createDStream()) {
    if (stream_ == nullptr) raise<DataError>("Zstandard cannot start");
  }

  void take(Bytes compressed) override {
    ZSTD_inBuffer in{compressed.data(), compressed.size(), 0};
    bool is_full = false;  // more may come without further input
    while (in.pos < in.size || is_full) {
      ZSTD_outBuffer out{room().data(), room().size(), 0};
      const std::size_t code = ZSTD_decompressStream(stream_.get(), &out, &in);
      if (ZSTD_isError(code) != 0)
        raise<DataError>("broken Zstandard data: {}", ZSTD_getErrorName(code));
      give(out.pos);
      is_open_ = code != 0;
      is_full = is_open_ && out.pos == out.size;
    }
  }
  bool is_open() const override { return is_open_; }

 private:
  struct Free {
    void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
  };
  std::unique_ptr<ZSTD_DStream, Free> stream_;
  bool is_open_ = false;
};

bool is_gzip(std::string_view begin) { return begin.starts_with("\x1f\x8b"); }

// Parts to step over have one of sixteen marks; parallel compressors write one first.
bool is_zstd(std::string_view begin) {
  const bool steps_over =
      !begin.empty() && (begin[0] & 0xf0) == 0x50 && begin.substr(1).starts_with("\x2a\x4d\x18");
  return steps_over || begin.starts_with("\x28\xb5\x2f\xfd");
}

// By how the file begins; null: it is not compressed.
std::unique_ptr<Decompressor> decompressor_of(const fs::path& path,
                                              std::function<void(Bytes)> give) {
  std::string begin(4, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(begin.data(), static_cast<std::streamsize>(begin.size()))) return nullptr;
  if (is_gzip(begin)) return std::make_unique<Gunzip>(std::move(give));
  if (is_zstd(begin)) return std::make_unique<Unzstd>(std::move(give));
  return nullptr;
}

}  // namespace

bool is_compressed(std::string_view begin) { return is_gzip(begin) || is_zstd(begin); }

fs::path uncompressed_name(const fs::path& path) {
  const std::string ending = path.extension().string();
  const bool compressed =
      std::find(kCompressions.begin(), kCompressions.end(), ending) != kCompressions.end();
  return compressed ? fs::path(path).replace_extension() : path;
}

std::string format_ending(const fs::path& path) {
  return uncompressed_name(path).extension().string();
}

bool has_format(const fs::path& path, std::span<const std::string_view> endings) {
  return std::find(endings.begin(), endings.end(), format_ending(path)) != endings.end();
}

std::string formats_text(std::span<const std::string_view> endings) {
  return fmt::format("{}, each also compressed ({})", fmt::join(endings, ", "),
                     fmt::join(kCompressions, ", "));
}

UncompressedFile::UncompressedFile(const fs::path& path) : path_(path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return;
  ReadBudget budget(fs::file_size(path, error), "decompress it first");
  const auto decompressor = decompressor_of(path, [&](Bytes content) {
    budget.take_bytes(content.size());
    temporary_->append(content);
  });
  if (decompressor == nullptr) return;
  temporary_.emplace();
  std::vector<std::byte> piece(kPieceBytes);
  read_in_pieces(path, piece, [&](Bytes compressed) { decompressor->take(compressed); });
  if (decompressor->is_open())
    raise<DataError>("the file ends in the middle of its compressed data: it is not complete");
  path_ = temporary_->path();
}

MappedFile map_uncompressed(const fs::path& path) {
  return MappedFile(UncompressedFile(path).path());
}

}  // namespace tandem::formats
