#include "tandem/formats/compressed_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zstd.h>

#include <array>

#include "support/gzip.h"
#include "support/test_support.h"
#include "tandem/core/error.h"

namespace tandem::formats {
namespace {

namespace fs = std::filesystem;
using testing::gzip;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::string zstd(std::string_view text) {
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);  // as the program zstd does
  std::string compressed(ZSTD_compressBound(text.size()), '\0');
  compressed.resize(
      ZSTD_compress2(context, compressed.data(), compressed.size(), text.data(), text.size()));
  ZSTD_freeCCtx(context);
  return compressed;
}

// Numbers in lines: larger than the pieces in which files are read and written.
std::string long_text() {
  std::string text;
  for (std::uint32_t i = 0; text.size() < 3'000'000; ++i)
    text += fmt::format("{}\n", i * 2654435761u);
  return text;
}

class CompressedFile : public ::testing::Test {
 protected:
  std::string content_of(std::string_view file) {
    write_file(path_, file);
    const MappedFile mapped = map_uncompressed(path_);
    return {reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size()};
  }
  void expect_refused(std::string_view file, const std::string& message) {
    EXPECT_THAT([&] { content_of(file); }, ThrowsMessage<DataError>(HasSubstr(message)));
  }

  testing::TemporaryFolder folder_;
  fs::path path_ = folder_ / "data";
};

TEST_F(CompressedFile, HasTheContentThatWasCompressed) {
  for (const std::string& text : {std::string(), std::string("a,b\n"), long_text()}) {
    EXPECT_EQ(content_of(gzip(text)), text);
    EXPECT_EQ(content_of(zstd(text)), text);
  }
}

TEST_F(CompressedFile, OthersAreMappedThemselves) {
  EXPECT_EQ(content_of("[1]"), "[1]") << "shorter than a mark";
  EXPECT_EQ(content_of("text,label\n"), "text,label\n");
  EXPECT_EQ(UncompressedFile(path_).path(), path_);
}

TEST_F(CompressedFile, PartsAreOneAfterTheOther) {
  const std::string text = long_text();
  EXPECT_EQ(content_of(gzip(text) + gzip("") + gzip("end")), text + "end");
  EXPECT_EQ(content_of(zstd(text) + zstd("") + zstd("end")), text + "end");
  EXPECT_EQ(content_of(gzip("text") + std::string(700, '\0')), "text") << "padded to a block";
  const std::string stepped_over("\x50\x2a\x4d\x18\x02\x00\x00\x00xx", 10);
  EXPECT_EQ(content_of(stepped_over + zstd("text")), "text");
}

TEST_F(CompressedFile, BrokenOnesAreRefused) {
  const std::string text = long_text();
  for (const std::string& whole : {gzip(text), zstd(text)}) {
    for (const std::size_t missing : {std::size_t{1}, whole.size() / 2, whole.size() - 5})
      expect_refused(whole.substr(0, whole.size() - missing), "in the middle of its compressed");
    expect_refused(whole + "more", "broken");
  }
  std::string flipped = gzip(text);
  flipped[flipped.size() - 6] ^= 1;  // in the checksum
  expect_refused(flipped, "broken gzip data: incorrect data check");
  flipped = zstd(text);
  flipped[flipped.size() / 2] ^= 64;
  expect_refused(flipped, "broken Zstandard data");
}

TEST_F(CompressedFile, ABombIsRefused) {
  const std::string zeros(std::size_t{80} << 20, '\0');
  expect_refused(zstd(zeros), "decompress it first");
}

TEST_F(CompressedFile, AMissingFileIsNamed) {
  EXPECT_THAT([&] { map_uncompressed(folder_ / "none.gz"); },
              ThrowsMessage<IoError>(HasSubstr("none.gz")));
}

TEST_F(CompressedFile, TheTemporaryFileIsInTmpdirAndLeavesNoName) {
  const testing::ScopedEnvironment tmpdir("TMPDIR", folder_.path().string());
  EXPECT_EQ(content_of(gzip("text")), "text");
  EXPECT_THAT(list_directory(folder_.path()), ::testing::ElementsAre(path_));
}

TEST_F(CompressedFile, AMissingTemporaryFolderIsNamed) {
  const testing::ScopedEnvironment tmpdir("TMPDIR", (folder_ / "none").string());
  EXPECT_EQ(content_of("text"), "text") << "needs none";
  EXPECT_THAT([&] { content_of(gzip("text")); }, ThrowsMessage<IoError>(HasSubstr("TMPDIR")));
}

TEST(CompressedBegin, IsNoText) {
  EXPECT_TRUE(is_compressed(gzip("a")));
  EXPECT_TRUE(is_compressed(zstd("a")));
  for (const char* text : {"", "P", "PK", "text", "(\xc2\xb5"}) EXPECT_FALSE(is_compressed(text));
}

TEST(CompressedName, HasTheEndingOfItsFormat) {
  constexpr std::array<std::string_view, 2> kEndings = {".csv", ".jsonl"};
  EXPECT_EQ(uncompressed_name("a/b.jsonl.gz"), "a/b.jsonl");
  EXPECT_EQ(uncompressed_name("a.b/c"), "a.b/c");
  EXPECT_EQ(format_ending("a/b.csv.zst"), ".csv");
  EXPECT_EQ(format_ending("a.csv"), ".csv");
  EXPECT_EQ(format_ending("a.gz"), "");
  EXPECT_TRUE(has_format("b.csv.gz", kEndings));
  EXPECT_FALSE(has_format("b.csv.bz2", kEndings));
  EXPECT_FALSE(has_format("b.gz", kEndings));
}

}  // namespace
}  // namespace tandem::formats
