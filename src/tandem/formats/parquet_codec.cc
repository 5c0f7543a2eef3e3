// Decompression of Parquet's pages.
#include <snappy.h>
#include <zlib.h>
#include <zstd.h>

#include <array>
#include <string>

#include "tandem/core/error.h"
#include "tandem/formats/parquet_column.h"

namespace tandem::formats {
namespace {

// Writers make pages of about a megabyte; a small file must not make a reader fill the memory.
constexpr std::uint64_t kMaxPageBytes = std::uint64_t{1} << 28;
constexpr std::uint64_t kMaxRowGroupBytes = std::uint64_t{1} << 32;

struct Target {
  std::byte* bytes;
  std::size_t size;
};

// Each returns what is wrong, or nothing.

std::string unsnappy(CheckedBytes compressed, const Target& target) {
  std::size_t size = 0;
  const char* data = compressed.text().data();
  if (!snappy::GetUncompressedLength(data, compressed.size(), &size)) return "no Snappy data";
  if (size != target.size) return fmt::format("{} bytes instead of {}", size, target.size);
  if (!snappy::RawUncompress(data, compressed.size(), reinterpret_cast<char*>(target.bytes))) {
    return "broken Snappy data";
  }
  return {};
}

std::string unzstd(CheckedBytes compressed, const Target& target) {
  const std::size_t got =
      ZSTD_decompress(target.bytes, target.size, compressed.data(), compressed.size());
  if (ZSTD_isError(got) != 0) return ZSTD_getErrorName(got);
  return got == target.size ? "" : fmt::format("{} bytes instead of {}", got, target.size);
}

std::string gunzip(CheckedBytes compressed, const Target& target) {
  constexpr int kGzipOrZlib = 15 + 32;
  z_stream stream{};
  if (inflateInit2(&stream, kGzipOrZlib) != Z_OK) return "zlib cannot start";
  stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(compressed.data()));
  stream.avail_in = static_cast<uInt>(compressed.size());
  stream.next_out = reinterpret_cast<Bytef*>(target.bytes);
  stream.avail_out = static_cast<uInt>(target.size);
  const int code = inflate(&stream, Z_FINISH);
  const std::size_t got = stream.total_out;
  inflateEnd(&stream);
  if (code != Z_STREAM_END) return "broken gzip data, or more than its header states";
  return got == target.size ? "" : fmt::format("{} bytes instead of {}", got, target.size);
}

std::string codec_name(ParquetCodec codec) {
  constexpr std::array<std::string_view, 8> kNames = {
      "no compression", "Snappy", "gzip", "LZO", "Brotli", "LZ4", "Zstandard", "LZ4"};
  const auto number = static_cast<std::size_t>(codec);
  return number < kNames.size() ? std::string(kNames[number]) : fmt::format("codec {}", number);
}

}  // namespace

CheckedBytes decompress_parquet(CheckedBytes compressed, ParquetCodec codec, std::uint64_t size,
                                ParquetMemory& memory) {
  if (codec == ParquetCodec::kUncompressed) return compressed;
  if (codec != ParquetCodec::kSnappy && codec != ParquetCodec::kGzip &&
      codec != ParquetCodec::kZstd) {
    raise<DataError>(
        "pages are compressed with {}, which is not supported; write the file with Snappy (the "
        "usual "
        "choice), Zstandard or gzip",
        codec_name(codec));
  }
  if (size > kMaxPageBytes || size > kMaxRowGroupBytes - memory.bytes) {
    raise<DataError>("a page claims {} bytes; a page may have {}, a row group {}", size,
                     kMaxPageBytes, kMaxRowGroupBytes);
  }
  memory.budget.take_bytes(size);
  memory.bytes += size;
  const Target target{
      memory.pages.emplace_back(std::make_unique_for_overwrite<std::byte[]>(size)).get(), size};
  std::string problem;
  if (codec == ParquetCodec::kSnappy) {
    problem = unsnappy(compressed, target);
  } else if (codec == ParquetCodec::kGzip) {
    problem = gunzip(compressed, target);
  } else {
    problem = unzstd(compressed, target);
  }
  if (!problem.empty()) {
    raise<DataError>("a page of {} cannot be decompressed: {}", codec_name(codec), problem);
  }
  return {{target.bytes, target.size}, "a decompressed page"};
}

}  // namespace tandem::formats
