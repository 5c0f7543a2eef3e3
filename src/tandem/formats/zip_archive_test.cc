#include "tandem/formats/zip_archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"

namespace tandem::formats {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class ZipArchiveTest : public ::testing::Test {
 protected:
  ZipArchiveTest() {
    write_zip(folder_ / "x.zip",
              std::vector<ZipEntry>{
                  {"x/a", bytes_of("first")}, {"x/b", bytes_of("")}, {"x/c", bytes_of("third")}});
    file_ = read_file(folder_ / "x.zip");
    directory_ = file_.find("PK\x01\x02");
    end_ = file_.find("PK\x05\x06");
  }

  template <class T>
  void set(std::size_t at, T value) {
    std::memcpy(file_.data() + at, &value, sizeof(value));
  }
  void expect_refused(std::string_view file, const std::string& message) {
    EXPECT_THAT([&] { ZipArchive(bytes_of(file), "x.zip"); },
                ThrowsMessage<DataError>(HasSubstr(message)));
  }

  testing::TemporaryFolder folder_;
  std::string file_;
  std::size_t directory_ = 0;
  std::size_t end_ = 0;
};

TEST_F(ZipArchiveTest, RoundTripWithAlignedMembers) {
  const ZipArchive archive(bytes_of(file_), "x.zip");
  ASSERT_EQ(archive.entries().size(), 3u);
  EXPECT_EQ(text_of(*archive.find("x/a")), "first");
  EXPECT_EQ(text_of(*archive.find("x/c")), "third");
  EXPECT_TRUE(archive.find("x/b")->empty());
  EXPECT_EQ(archive.find("x"), std::nullopt);
  for (const auto& [name, content] : archive.entries())
    EXPECT_EQ((reinterpret_cast<const char*>(content.data()) - file_.data()) % 64, 0) << name;
}

TEST_F(ZipArchiveTest, ACommentMayFollow) {
  set<std::uint16_t>(end_ + 20, 5);
  EXPECT_EQ(ZipArchive(bytes_of(file_ + "hello"), "x.zip").entries().size(), 3u);
  expect_refused(file_ + "hell", "without its end");
}

TEST_F(ZipArchiveTest, EveryTruncationIsRefused) {
  for (std::size_t size = 0; size < file_.size(); ++size) {
    EXPECT_THROW(ZipArchive(bytes_of(file_).first(size), "x.zip"), DataError) << size;
  }
}

TEST_F(ZipArchiveTest, RefusesWhatIsNotStoredPlainly) {
  const std::string good = file_;
  set<std::uint16_t>(directory_ + 10, 8);
  expect_refused(file_, "'x/a' is compressed (method 8");
  file_ = good;
  set<std::uint16_t>(directory_ + 8, 1);
  expect_refused(file_, "'x/a' is encrypted");
  file_ = good;
  set<std::uint16_t>(end_ + 4, 1);
  expect_refused(file_, "several parts");
}

TEST_F(ZipArchiveTest, RefusesContradictions) {
  const std::string good = file_;
  set<std::uint32_t>(directory_ + 42, 1);
  expect_refused(file_, "'x/a' has no header at byte 1");
  file_ = good;
  set<std::uint32_t>(directory_ + 42, 0x7fffffff);
  expect_refused(file_, "'x/a' of 5 bytes at 2147483647 does not fit the file");
  file_ = good;
  set<std::uint32_t>(directory_ + 20, 1u << 30);
  set<std::uint32_t>(directory_ + 24, 1u << 30);
  expect_refused(file_, "does not fit the file");
  file_ = good;
  file_[30] = 'y';  // the name in the member's own header
  expect_refused(file_, "'x/a' has another name in its own header");
  file_ = good;
  file_[directory_ + 46 + 2] = 'c';
  file_[30 + 2] = 'c';
  expect_refused(file_, "the ZIP directory has 'x/c' twice");
  file_ = good;
  set<std::uint16_t>(end_ + 10, 4);
  expect_refused(file_, "damaged ZIP directory");
  file_ = good;
  set<std::uint32_t>(end_ + 16, 0xffffffff);
  expect_refused(file_, "64-bit sizes, but without the record");
}

// torch writes 64-bit records for large files. The same archive with the end in that form.
TEST_F(ZipArchiveTest, ReadsA64BitDirectory) {
  std::uint32_t size = 0;
  std::uint32_t offset = 0;
  std::memcpy(&size, file_.data() + end_ + 12, 4);
  std::memcpy(&offset, file_.data() + end_ + 16, 4);
  std::string end64(56, '\0');
  std::memcpy(end64.data(), "PK\x06\x06", 4);
  const std::uint64_t count = 3;
  const std::uint64_t size64 = size;
  const std::uint64_t offset64 = offset;
  std::memcpy(end64.data() + 32, &count, 8);
  std::memcpy(end64.data() + 40, &size64, 8);
  std::memcpy(end64.data() + 48, &offset64, 8);
  std::string locator(20, '\0');
  std::memcpy(locator.data(), "PK\x06\x07", 4);
  const std::uint64_t position = end_;
  std::memcpy(locator.data() + 8, &position, 8);
  set<std::uint32_t>(end_ + 16, 0xffffffff);
  std::string file = file_;
  file.insert(end_, end64 + locator);
  EXPECT_EQ(ZipArchive(bytes_of(file), "x.zip").entries().size(), 3u);
}

TEST_F(ZipArchiveTest, WriterRefusesWhatItCannotWrite) {
  const ZipEntry entry{"a", bytes_of("x")};
  EXPECT_THAT(
      [&] {
        write_zip(folder_ / "y", std::vector{entry, entry});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("'a' occurs twice")));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "y"));
}

// Optimizer states of large models take more than 4 GB; here everything from 20 on is "large".
TEST_F(ZipArchiveTest, WriterHas64BitSizesAndOffsets) {
  const std::string small = "0123456789", large = "abcdefghijklmnopqrstuvwxyz";
  const std::vector<ZipEntry> entries = {
      {"first", bytes_of(small)}, {"large", bytes_of(large)}, {"last", bytes_of(small)}};
  write_zip(folder_ / "wide.zip", entries, 20);
  const std::string file = read_file(folder_ / "wide.zip");
  EXPECT_NE(file.find("PK\x06\x06"), std::string::npos);
  const ZipArchive archive(bytes_of(file), "wide.zip");
  ASSERT_EQ(archive.entries().size(), entries.size());
  for (const ZipEntry& entry : entries) {
    const auto found = archive.find(entry.name);
    ASSERT_TRUE(found) << entry.name;
    EXPECT_TRUE(std::ranges::equal(*found, entry.bytes)) << entry.name;
    EXPECT_EQ((found->data() - bytes_of(file).data()) % 64, 0) << entry.name;
  }
}

}  // namespace
}  // namespace tandem::formats
