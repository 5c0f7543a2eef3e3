// Makes gzip files for tests.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <string>
#include <string_view>

namespace tandem::testing {

inline std::string gzip(std::string_view text) {
  constexpr int kGzip = 15 + 16;
  std::string compressed(compressBound(text.size()) + 64, '\0');
  z_stream stream{};
  EXPECT_EQ(
      deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kGzip, MAX_MEM_LEVEL, Z_DEFAULT_STRATEGY),
      Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(compressed.data());
  stream.avail_out = static_cast<uInt>(compressed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  compressed.resize(stream.total_out);
  deflateEnd(&stream);
  return compressed;
}

}  // namespace tandem::testing
