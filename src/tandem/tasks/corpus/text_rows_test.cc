// Tests of rows of text: the same rows as `datasets` has, of every format, and what is wrong with a
// file in words.
#include "tandem/tasks/corpus/text_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/gzip.h"
#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"

namespace tandem::corpus {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TextRowsTest : public ::testing::Test {
 protected:
  fs::path file(const std::string& name, const std::string& content) {
    write_file(folder_ / name, content);
    return folder_ / name;
  }

  // All rows, in blocks of `bytes`.
  static std::vector<std::string> read(const std::vector<fs::path>& files,
                                       std::size_t bytes = 1 << 20, std::string column = {},
                                       LineBreaks breaks = LineBreaks::kLeftOut) {
    TextRows rows(files, std::move(column), breaks);
    std::vector<std::string> all;
    for (RowBlock block; rows.next(block, bytes);) {
      EXPECT_EQ(block.first_row, all.size());
      EXPECT_FALSE(block.texts.empty());
      all.insert(all.end(), block.texts.begin(), block.texts.end());
    }
    EXPECT_EQ(TextRows(files).count(), all.size());
    return all;
  }

  std::vector<std::string> lines(const std::string& content) {
    return read({file("a.txt", content)});
  }

  static std::string error(const std::vector<fs::path>& files) {
    try {
      TextRows rows(files);
      for (RowBlock block; rows.next(block, 100);) continue;
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  testing::TemporaryFolder folder_;
};

// Python's universal line breaks, and no line behind the last break.
TEST_F(TextRowsTest, ARowPerLine) {
  EXPECT_THAT(lines("a\nb\n"), ElementsAre("a", "b"));
  EXPECT_THAT(lines("a\nb"), ElementsAre("a", "b"));
  EXPECT_THAT(lines("\n"), ElementsAre(""));
  EXPECT_THAT(lines("a\n\n \nb\n\n"), ElementsAre("a", "", " ", "b", ""));
  EXPECT_THAT(lines("a\r\nb\rc\n\rd\r\r\ne\r"), ElementsAre("a", "b", "c", "", "d", "", "e"));
  EXPECT_THAT(lines("a\fb\x0b\x1c\xc2\x85\xe2\x80\xa8"
                    "c\nd"),
              ElementsAre("a\fb\x0b\x1c\xc2\x85\xe2\x80\xa8"
                          "c",
                          "d"));
}

// keep_linebreaks of the loader of texts: every break becomes a line feed.
TEST_F(TextRowsTest, RowsWithTheirLineBreaks) {
  const auto kept = [&](const std::string& content, std::size_t bytes) {
    return read({file("a.txt", content)}, bytes, {}, LineBreaks::kKept);
  };
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{1} << 20}) {
    EXPECT_THAT(kept("a\nb\n", bytes), ElementsAre("a\n", "b\n"));
    EXPECT_THAT(kept("a\nb", bytes), ElementsAre("a\n", "b"));
    EXPECT_THAT(kept("\n", bytes), ElementsAre("\n"));
    EXPECT_THAT(kept("a\r\nb\rc\n\rd\r\r\ne\r", bytes),
                ElementsAre("a\n", "b\n", "c\n", "\n", "d\n", "\n", "e\n"));
  }
  EXPECT_THAT(read({file("a.csv", "text\nx\n")}, 9, {}, LineBreaks::kKept), ElementsAre("x"));
}

TEST_F(TextRowsTest, BytesAreRowsAsTheyAre) {
  EXPECT_THAT(lines("abc\0d\n\xffz\n"s), ElementsAre("abc\0d"s, "\xffz"));
  EXPECT_THAT(lines("\xef\xbb\xbf"
                    "a\n"),
              ElementsAre("\xef\xbb\xbf"
                          "a"));
}

TEST_F(TextRowsTest, BlocksOfAnySizeHaveTheSameRows) {
  std::string text;
  std::vector<std::string> expected;
  for (int i = 0; i < 500; ++i) {
    expected.push_back(std::string(static_cast<std::size_t>(i * 7 % 50), 'x') + std::to_string(i));
    text += expected.back() + (i % 3 == 0 ? "\r\n" : "\n");
  }
  const fs::path path = file("a.txt", text);
  for (const std::size_t bytes : {0, 1, 17, 1000, 1 << 20})
    EXPECT_EQ(read({path}, bytes), expected);
}

// A file of old Macs has no line feed, which must not be searched for at each line.
TEST_F(TextRowsTest, ManyLinesWithoutALineFeed) {
  std::string text;
  for (int i = 0; i < 500'000; ++i) text += "some words\r";
  EXPECT_EQ(TextRows(std::vector<fs::path>{file("a.txt", text)}).count(), 500'000u);
}

TEST_F(TextRowsTest, FilesOfASet) {
  const fs::path empty = file("0.txt", "");
  EXPECT_THAT(read({empty, file("1.txt", "a\nb"), empty, file("2.txt.gz", testing::gzip("c\n"))}),
              ElementsAre("a", "b", "c"));
}

TEST_F(TextRowsTest, TheColumnOfTheTexts) {
  const fs::path csv = file("a.csv", "id,text\n1,\"a, b\"\n2,\"\"\n");
  EXPECT_THAT(read({csv}), ElementsAre("a, b", ""));
  EXPECT_THAT(read({file("b.csv", "words,id\nx,1\ny,2\n")}), ElementsAre("x", "y"));
  EXPECT_THAT(read({file("a.tsv", "id\ttext\n1\tx \"y\"\n")}), ElementsAre("x \"y\""));
  EXPECT_THAT(read({file("a.json", R"({"id": 1, "text": "a\nb"})"
                                   "\n"
                                   R"({"text": "c"})")}),
              ElementsAre("a\nb", "c"));
  EXPECT_THAT(read({file("list.json", R"([{"x": "a"}, {"x": "b"}])")}), ElementsAre("a", "b"));
  EXPECT_THAT(read({file("b.csv", "words,id\nx,1\ny,2\n")}, 100, "id"), ElementsAre("1", "2"));
  EXPECT_THAT(error({csv, file("c.csv", "words\nx\n")}),
              AllOf(HasSubstr("c.csv': found no column \"text\""), HasSubstr("before")));
}

// More than one part of eight megabytes, with rows that have several lines each.
TEST_F(TextRowsTest, LongJsonLinesComeInParts) {
  std::string text;
  const std::string filler(900, 'w');
  constexpr std::size_t kRows = 20'000;
  for (std::size_t i = 0; i < kRows; ++i) {
    text += i == 15'000 ? fmt::format("{{\"data\": [1],\n\"text\": \"{} {}\"}}\n", i, filler)
                        : fmt::format("{{\"text\":\n\"{} {}\"}}\n", i, filler);
  }
  const auto rows = read({file("a.jsonl", text)});
  ASSERT_EQ(rows.size(), kRows);
  for (std::size_t i = 0; i < kRows; i += 997) EXPECT_EQ(rows[i], fmt::format("{} {}", i, filler));
  text += "{\"text\": 5}\n";
  EXPECT_THAT(error({file("b.jsonl", text)}), HasSubstr("row 20001 (line 40001)"));
  text.resize(text.rfind('{'));
  EXPECT_THAT(error({file("c.jsonl", text + "{\"words\": \"x\"}\n")}),
              HasSubstr("row 20001 (line 40001): column \"text\": the text is missing"));
  EXPECT_THAT(error({file("d.jsonl", text + "{\"text\": \"x\"\n")}), HasSubstr("line 40002"));
}

TEST_F(TextRowsTest, DamagedFiles) {
  EXPECT_THAT(error({file("a.txt", "")}), HasSubstr("a.txt': the file has no row in it"));
  EXPECT_THAT(error({file("a.txt",
                          "\xff\xfe"
                          "a\0b\0"s)}),
              AllOf(HasSubstr("a.txt'"), HasSubstr("UTF-16LE")));
  EXPECT_THAT(error({file("a.csv", "")}), HasSubstr("a.csv': the file is empty"));
  EXPECT_THAT(error({file("a.csv", "text\n")}), HasSubstr("no row in it"));
  EXPECT_THAT(error({file("a.csv", "text\n\xff\n")}), HasSubstr("row 1 (line 2)"));
  EXPECT_THAT(error({file("a.csv", "id,text\n1,a\n2,\n")}),
              HasSubstr("row 2 (line 3): column \"text\": the text is missing; leave out"));
  EXPECT_THAT(error({file("a.json", "{\"text\": [1, 2]}\n{\"text\": [3]}")}),
              HasSubstr("expected text"));
  EXPECT_THAT(error({file("a.json", "{\"text\": null}\n{\"text\": null}")}),
              HasSubstr("the text is missing"));
  EXPECT_THAT(error({file("a.parquet", "no parquet")}), HasSubstr("a.parquet'"));
  EXPECT_THAT(error({folder_ / "absent.txt"}), HasSubstr("absent.txt"));
  fs::create_directory(folder_ / "folder.txt");
  EXPECT_THAT(error({folder_ / "folder.txt"}), HasSubstr("folder.txt"));
  EXPECT_THAT(error({file("a.txt", "a\n" + std::string((64 << 20) + 1, 'x'))}),
              AllOf(HasSubstr("line 2: found a text of 67108865 bytes"), HasSubstr("break it")));
}

// Python rounds half to even: 10 rows have no validation row at 5 %, 30 have two, 50 too.
TEST(SplitRowsTest, RoundsAsDatasets) {
  const auto boundary = [](std::uint64_t rows, std::uint32_t percent) {
    const SplitRows split = split_rows(rows, percent);
    EXPECT_EQ(split.validation.begin, 0u);
    EXPECT_EQ(split.validation.end, split.train.begin);
    EXPECT_EQ(split.train.end, rows);
    return split.train.begin;
  };
  EXPECT_EQ(boundary(100, 5), 5u);
  EXPECT_EQ(boundary(10, 5), 0u);
  EXPECT_EQ(boundary(11, 5), 1u);
  EXPECT_EQ(boundary(30, 5), 2u);
  EXPECT_EQ(boundary(50, 5), 2u);
  EXPECT_EQ(boundary(70, 5), 4u);
  EXPECT_EQ(boundary(7, 0), 0u);
  EXPECT_EQ(boundary(7, 100), 7u);
  EXPECT_EQ(boundary(1, 50), 0u);
  EXPECT_EQ(boundary(3, 50), 2u);
  EXPECT_EQ(boundary(10'000'000'001, 33), 3'300'000'000u);
}

}  // namespace
}  // namespace tandem::corpus
