#include "tandem/core/text_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"

namespace tandem {
namespace {

using namespace std::string_view_literals;
using ::testing::HasSubstr;

std::string without_mark(std::string_view text) {
  std::string changed(text);
  remove_byte_order_mark(changed, "story.txt");
  return changed;
}

TEST(TextFile, AByteOrderMarkIsRemovedOnce) {
  EXPECT_EQ(without_mark("\xef\xbb\xbfThe ship"), "The ship");
  EXPECT_EQ(without_mark("\xef\xbb\xbf"), "");
  EXPECT_EQ(without_mark("\xef\xbb\xbf\xef\xbb\xbfThe ship"), "\xef\xbb\xbfThe ship");
}

TEST(TextFile, OtherTextStaysAsItIs) {
  for (const std::string_view text :
       {"The ship"sv, ""sv, "T"sv, "\xef\xbb"sv, "Caf\xc3\xa9 \xef\xbb\xbf"sv, "\xc3\xa9"sv,
        "\xf0\x9f\x98\x80"sv, "\r\n"sv, "\0"sv, "\0\0"sv, "ab\0c"sv}) {
    EXPECT_EQ(without_mark(text), text);
  }
}

// With the mark and without it, as "iconv -t UTF-16LE" writes it; also a first line that getline()
// cut in the middle of a character.
TEST(TextFile, OtherEncodingsAreRefusedByName) {
  const auto refused = [](std::string_view text, const std::string& encoding) {
    try {
      without_mark(text);
      ADD_FAILURE() << "accepted as UTF-8: " << encoding;
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr("story.txt is not UTF-8: found " + encoding + ", expected UTF-8"));
      EXPECT_THAT(error.what(), HasSubstr("iconv -f " + encoding + " -t UTF-8"));
    }
  };
  refused("\xff\xfeT\0h\0"sv, "UTF-16LE");
  refused("\xfe\xff\0T\0h"sv, "UTF-16BE");
  refused("\xff\xfe"sv, "UTF-16LE");
  refused("T\0h\0e\0"sv, "UTF-16LE");
  refused("\0T\0h\0e"sv, "UTF-16BE");
  refused("a\0"sv, "UTF-16LE");
  refused("\xff\xfe\0\0T\0\0\0"sv, "UTF-32LE");
  refused("\0\0\xfe\xff\0\0\0T"sv, "UTF-32BE");
  refused("T\0\0\0h\0\0\0"sv, "UTF-32LE");
  refused("\0\0\0T\0\0\0h"sv, "UTF-32BE");
}

TEST(TextFile, IsReadWithoutTheMark) {
  const testing::TemporaryFolder folder;
  write_file(folder / "bom.txt", "\xef\xbb\xbfThe ship\n");
  EXPECT_EQ(read_text_file(folder / "bom.txt"), "The ship\n");
  EXPECT_THROW(read_text_file(folder / "none.txt"), IoError);
}

}  // namespace
}  // namespace tandem
