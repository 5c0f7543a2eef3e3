// Tests of the Arrow, Parquet and CSV readers on files that the official packages wrote
// (tests/parity/make_dataset_files.py), and on the same files broken.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/data/read_questions.h"
#include "tandem/data/read_rows.h"

namespace tandem::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

fs::path golden(std::string_view name) {
  return fs::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/datasets" / name;
}

fs::path cache_entry() {
  return fs::directory_iterator(golden("cache/squad/plain_text/0.0.0"))->path();
}

template <class F>
std::string error_of(F&& function) {
  try {
    function();
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

void expect_equal(const QuestionSet& got, const QuestionSet& want, std::size_t count) {
  ASSERT_EQ(got.size(), count);
  for (std::size_t i = 0; i < count; ++i) {
    SCOPED_TRACE(want[i].id);
    EXPECT_EQ(got[i].id, want[i].id);
    EXPECT_EQ(got[i].title, want[i].title);
    EXPECT_EQ(got[i].context, want[i].context);
    EXPECT_EQ(got[i].question, want[i].question);
    ASSERT_EQ(got[i].answers.size(), want[i].answers.size());
    for (std::size_t a = 0; a < got[i].answers.size(); ++a) {
      EXPECT_EQ(got[i].answers[a].text, want[i].answers[a].text);
      EXPECT_EQ(got[i].answers[a].answer_start, want[i].answers[a].answer_start);
    }
  }
}

// Row i of numbers.arrow and numbers.parquet has i + 1.5, i + 1, or whether i is odd; row 3 a null.
class NumberFiles : public ::testing::TestWithParam<const char*> {};

TEST_P(NumberFiles, HaveTheirValuesInEveryType) {
  using Kind = formats::Column::Kind;
  const fs::path path = golden(GetParam());
  const Rows rows = read_rows(std::span(&path, 1));
  ASSERT_EQ(rows.size(), 12u);
  ASSERT_EQ(rows.columns().size(), 12u);
  for (const formats::Column& column : rows.columns()) {
    SCOPED_TRACE(column.name);
    const bool is_bool = column.name == "bool", has_fractions = column.name == "halffloat" ||
                                                                column.name == "float" ||
                                                                column.name == "double";
    ASSERT_EQ(column.kind, is_bool ? Kind::kBool : has_fractions ? Kind::kNumber : Kind::kInteger);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      ASSERT_EQ(column.is_null(i), i == 3);
      if (i == 3) continue;
      const auto number = static_cast<std::int64_t>(i);
      if (has_fractions) {
        EXPECT_EQ(column.numbers[i], static_cast<double>(i) + 1.5);
      } else {
        EXPECT_EQ(column.integers[i], is_bool ? number % 2 : number + 1);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, NumberFiles,
                         ::testing::Values("arrow/numbers.arrow", "parquet/numbers.parquet"));

// A reader that asks once more at the end, as that of a corpus does.
class EndOfFiles : public ::testing::TestWithParam<const char*> {};

TEST_P(EndOfFiles, IsSeenAgain) {
  const fs::path path = golden(GetParam());
  const MappedFile file(path);
  const auto source = open_row_file(path, file.bytes());
  const std::vector<std::size_t> columns{0};
  formats::Table table;
  while (source->next(columns, table)) EXPECT_GT(table.num_rows, 0u);
  EXPECT_FALSE(source->next(columns, table));
  EXPECT_FALSE(source->next(columns, table));
}

INSTANTIATE_TEST_SUITE_P(All, EndOfFiles,
                         ::testing::Values("arrow/large.arrow", "arrow/file.arrow",
                                           "arrow/legacy.arrow", "parquet/v2-delta.parquet",
                                           "csv/questions.csv", "rows.json"));

// The questions of all forms are those of rows.json, whose reader is tested by itself.
class SameQuestions : public ::testing::TestWithParam<const char*> {};

TEST_P(SameQuestions, AsInJson) {
  expect_equal(read_questions(golden(GetParam())), read_questions(golden("rows.json")), 60);
}

INSTANTIATE_TEST_SUITE_P(Arrow, SameQuestions,
                         ::testing::Values("arrow/large.arrow", "arrow/zstd.arrow",
                                           "arrow/file.arrow", "arrow/legacy.arrow",
                                           "arrow/sliced.arrow"));

INSTANTIATE_TEST_SUITE_P(
    Parquet, SameQuestions,
    ::testing::Values("parquet/v1-snappy-dictionary.parquet", "parquet/v2-zstd-plain.parquet",
                      "parquet/v1-gzip-small-pages.parquet",
                      "parquet/v2-uncompressed-small-pages.parquet", "parquet/v2-delta.parquet",
                      "parquet/list-of-structs.parquet", "parquet/old-lists.parquet"));

INSTANTIATE_TEST_SUITE_P(Csv, SameQuestions, ::testing::Values("csv/questions.csv"));

TEST(QuestionFiles, CacheOfDatasets) {
  const QuestionSet rows = read_questions(golden("rows.json"));
  expect_equal(read_questions(cache_entry() / "squad-train.arrow"), rows, 60);
  expect_equal(read_questions(cache_entry() / "squad-validation.arrow"), rows, 20);
  fs::path old = golden("cache-2.13/ada___parquet");
  for (int depth = 0; depth < 3; ++depth) old = fs::directory_iterator(old)->path();
  expect_equal(read_questions(old / "parquet-train.arrow"), rows, 60);
}

TEST(QuestionFiles, ShardsOfSaveToDisk) {
  std::vector<fs::path> shards;
  for (int i = 0; i < 3; ++i) {
    shards.push_back(golden(fmt::format("saved/train/data-{:05}-of-00003.arrow", i)));
  }
  expect_equal(read_questions(shards), read_questions(golden("rows.json")), 60);
  shards.push_back(shards.front());
  EXPECT_THAT(
      error_of([&] { read_questions(shards); }),
      HasSubstr("data-00000-of-00003.arrow' and 3 more: questions 1 and 61 have the same id "
                "'0000'"));
}

TEST(QuestionFiles, ParquetOfTheHub) {
  const fs::path folder = golden("hub/plain_text");
  const std::vector<fs::path> shards = {folder / "train-00000-of-00002.parquet",
                                        folder / "train-00001-of-00002.parquet"};
  const QuestionSet rows = read_questions(golden("rows.json"));
  expect_equal(read_questions(shards), rows, 60);
  expect_equal(read_questions(folder / "validation-00000-of-00001.parquet"), rows, 20);
}

// (The fuzz targets break files in many more ways.)
TEST(QuestionFiles, CutOffFiles) {
  testing::TemporaryFolder folder;
  const auto error = [&](std::string_view name, std::size_t size, std::string_view ending) {
    const fs::path path = folder / (std::to_string(size) + std::string(ending));
    write_file(path, read_file(golden(name)).substr(0, size));
    return error_of([&] { read_questions(path); });
  };
  EXPECT_THAT(error("arrow/large.arrow", 0, ".arrow"), HasSubstr("0.arrow': the file is empty"));
  EXPECT_THAT(error("arrow/large.arrow", 100, ".arrow"),
              HasSubstr("100.arrow': the Arrow stream: bytes 8 to "));
  EXPECT_THAT(error("arrow/large.arrow", 9000, ".arrow"), HasSubstr("cut off or broken"));
  // Between two messages, which nothing but the missing end mark shows; and the count of the cache.
  const std::string whole = read_file(cache_entry() / "squad-train.arrow");
  write_file(folder / "between.arrow", whole.substr(0, whole.size() - 8));
  EXPECT_THAT(error_of([&] { read_questions(folder / "between.arrow"); }),
              HasSubstr("the Arrow stream has no end mark after record batch 4: it was cut off"));
  EXPECT_THAT(
      error_of([&] { read_questions(cache_entry() / "squad-train.arrow", {.num_questions = 61}); }),
      HasSubstr("60 questions, but dataset_info.json counts 61: a file is not complete"));
  EXPECT_EQ(read_questions(cache_entry() / "squad-train.arrow", {.num_questions = 60}).size(), 60u);
  const std::string file = read_file(golden("arrow/file.arrow"));
  write_file(folder / "file.arrow", file.substr(0, file.size() - 6));
  EXPECT_THAT(error_of([&] { read_questions(folder / "file.arrow"); }),
              HasSubstr("the Arrow file does not end with ARROW1: it was cut off"));
  EXPECT_THAT(error("parquet/v2-delta.parquet", 0, ".parquet"), HasSubstr("the file is empty"));
  EXPECT_THAT(error("parquet/v2-delta.parquet", 2000, ".parquet"),
              HasSubstr("it does not end with PAR1: cut off, perhaps an interrupted download"));
  EXPECT_THAT(error("csv/questions.csv", 300, ".parquet"), HasSubstr("not a Parquet file"));
}

TEST(QuestionFiles, RefusalsStateWhatToDo) {
  const auto error = [](std::string_view name) {
    return error_of([&] { read_questions(golden(name)); });
  };
  EXPECT_THAT(error("arrow/refused-lz4.arrow"),
              HasSubstr("refused-lz4.arrow': record batch 1: its buffers are compressed with LZ4, "
                        "which is not supported; write the file uncompressed"));
  EXPECT_THAT(error("arrow/refused-dictionary.arrow"),
              HasSubstr("column \"context\" is dictionary-encoded"));
  EXPECT_EQ(read_questions(golden("arrow/refused-view.arrow")).size(),
            read_questions(golden("arrow/file.arrow")).size());
  EXPECT_THAT(error("parquet/refused-repeated-text.parquet"),
              HasSubstr("a row group with more than 1073741824 bytes of text"));
  EXPECT_THAT(
      error("parquet/refused-brotli.parquet"),
      HasSubstr("refused-brotli.parquet': row group 1, column \"question\": pages are "
                "compressed with Brotli, which is not supported; write the file with Snappy"));
  EXPECT_THAT(error("parquet/refused-lz4.parquet"), HasSubstr("compressed with LZ4"));
  EXPECT_THAT(
      error("csv/refused-python-answers.csv"),
      HasSubstr("refused-python-answers.csv': row 1 (line 2) (id '0000'): column \"answers\" "
                "is not JSON: line 1, column 2"));
  EXPECT_THAT(error("csv/refused-python-answers.csv"),
              HasSubstr("(in Python: json.dumps), found {'text'"));
}

class Csv : public ::testing::Test {
 protected:
  QuestionSet read(std::string_view text, const ReadOptions& options = {}) const {
    write_file(folder_ / "q.csv", text);
    return read_questions(folder_ / "q.csv", options);
  }
  std::string error(std::string_view text, const ReadOptions& options = {}) const {
    return error_of([&] { read(text, options); });
  }

  testing::TemporaryFolder folder_;
};

TEST_F(Csv, QuotesLineBreaksAndBlankLines) {
  const QuestionSet set = read(
      "\xef\xbb\xbfid,question,context,answers\r\n"
      "1,\"Who, \"\"he\"\"?\",\"Tom\r\nsat.\",\"{\"\"text\"\": [\"\"Tom\"\"], "
      "\"\"answer_start\"\": [0]}\"\r\n"
      "\r\n"
      "2,Why?,Tom sat.,\"[{\"\"text\"\": \"\"sat\"\", \"\"answer_start\"\": 4}]\"");
  ASSERT_EQ(set.size(), 2u);
  EXPECT_EQ(set[0].question, "Who, \"he\"?");
  EXPECT_EQ(set[0].context, "Tom\r\nsat.");
  EXPECT_EQ(set[0].answers[0].text, "Tom");
  EXPECT_EQ(set[1].answers[0].answer_start, 4);
}

TEST_F(Csv, ColumnsByPosition) {
  const QuestionSet set =
      read("q,passage,gold,id\nWho?,Tom,\"{\"\"text\"\":[],\"\"answer_start\"\":[]}\",7\n");
  EXPECT_EQ(set[0].question, "Who?");
  EXPECT_EQ(set[0].context, "Tom");
  EXPECT_EQ(set[0].id, "7");
}

TEST_F(Csv, AnswersAndIdsAreOptionalWhereAskedFor) {
  const std::string text = "question,context,note\nWho?,Tom,x\nWhy?,Tom,\n";
  const QuestionSet set = read(text, {.require_id = false, .require_answers = false});
  EXPECT_EQ(set[1].id, "1");
  EXPECT_TRUE(set[1].answers.empty());
  EXPECT_THAT(error(text), HasSubstr("there is no column \"id\" (evaluation needs ids), found "
                                     "\"question\", \"context\", \"note\""));
}

TEST_F(Csv, ErrorsNameRowAndColumn) {
  const std::string head = "id,question,context,answers\n1,q,c,\"[]\"\n";
  EXPECT_THAT(error(""), HasSubstr("q.csv': the file is empty"));
  EXPECT_THAT(error("\n\n"), HasSubstr("the file is empty"));
  EXPECT_THAT(error("id,question,context,answers\n"), HasSubstr("no question in it"));
  EXPECT_THAT(error(head + "2,q,c\n"), HasSubstr("row 2 (line 3): 3 fields, but the header has 4"));
  EXPECT_THAT(error(head + "2,\"q"), HasSubstr("row 2 (line 3), column \"question\": the quote "
                                               "that opens the field is never closed"));
  EXPECT_THAT(error(head + "2,\"q\"x,c,[]\n"), HasSubstr("text behind the closing quote"));
  EXPECT_THAT(
      error(head + "2,q\xff,c,[]\n"),
      HasSubstr("row 2 (line 3), column \"question\": not UTF-8: byte 1 of the text is 0xff"));
  EXPECT_THAT(error(head + "2,q,c,\n"),
              HasSubstr("row 2 (line 3) (id '2'): column \"answers\" is null"));
  EXPECT_THAT(error(head + "2,,c,[]\n"), HasSubstr("column \"question\" is null"));
  EXPECT_THAT(error(head + "2,q,c,\"{\"\"text\"\": [\"\"c\"\"], \"\"answer_start\"\": [5]}\"\n"),
              HasSubstr("(id '2'): the answer 'c' at answer_start 5"));
  EXPECT_THAT(error(head + "1,q,c,[]\n"), HasSubstr("questions 1 and 2 have the same id '1'"));
}

// --- files that claim much in few bytes ---

// Thrift's compact protocol, as far as Parquet's metadata need it.
class Thrift {
 public:
  Thrift& integer(int field, std::int64_t value) {
    head(field, 6);
    return varint(static_cast<std::uint64_t>(value << 1) ^ static_cast<std::uint64_t>(value >> 63));
  }
  Thrift& text(int field, const std::string& value) {
    head(field, 8);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Thrift& structure(int field, const Thrift& value) {
    head(field, 12);
    bytes_ += value.done();
    return *this;
  }
  Thrift& list(int field, const std::vector<Thrift>& values) {
    head(field, 9);
    bytes_ += static_cast<char>(0xfc);  // structs, the number follows
    varint(values.size());
    for (const Thrift& value : values) bytes_ += value.done();
    return *this;
  }
  std::string done() const { return bytes_ + '\0'; }

  static std::string number(std::uint64_t value) { return Thrift().varint(value).bytes_; }

 private:
  void head(int field, int type) {
    bytes_ += static_cast<char>((field - last_) << 4 | type);
    last_ = field;
  }
  Thrift& varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
    return *this;
  }

  std::string bytes_;
  int last_ = 0;
};

constexpr int kPlain = 0, kDictionaryEncoding = 8, kDeltaTexts = 7;

std::string page(int kind, const std::string& body, std::int64_t size, std::int64_t values,
                 int encoding) {
  Thrift header;
  header.integer(1, kind).integer(2, size).integer(3, static_cast<std::int64_t>(body.size()));
  header.structure(kind == 0 ? 5 : 7, Thrift().integer(1, values).integer(2, encoding));
  return header.done() + body;
}

std::string plain_text(const std::string& text) {
  std::string bytes(4, '\0');
  const auto size = static_cast<std::uint32_t>(text.size());
  std::memcpy(bytes.data(), &size, 4);
  return bytes + text;
}

// A required column of `count` times the same text: one entry of a dictionary and one run of its
// index.
std::string repeated(const std::string& text, std::int64_t count) {
  const std::string entry = plain_text(text);
  const std::string run =
      std::string(1, '\x01') + Thrift::number(static_cast<std::uint64_t>(count) << 1) + '\0';
  return page(2, entry, static_cast<std::int64_t>(entry.size()), 1, kPlain) +
         page(0, run, static_cast<std::int64_t>(run.size()), count, kDictionaryEncoding);
}

constexpr int kInt96 = 3, kByteArray = 6;  // types of columns

// A Parquet file of the columns question and context, `groups` times the same rows.
std::string parquet(const std::string& question, const std::string& context, std::int64_t rows,
                    std::size_t groups = 1, int codec = 0, int type = kByteArray) {
  const auto chunk = [&](const std::string& pages, std::size_t offset) {
    return Thrift().structure(3, Thrift()
                                     .integer(4, codec)
                                     .integer(5, rows)
                                     .integer(7, static_cast<std::int64_t>(pages.size()))
                                     .integer(9, static_cast<std::int64_t>(offset)));
  };
  const Thrift group =
      Thrift().list(1, {chunk(question, 4), chunk(context, 4 + question.size())}).integer(3, rows);
  const auto leaf = [&](const std::string& name) {
    return Thrift().integer(1, type).integer(3, 0).text(4, name);
  };
  const Thrift root = Thrift().text(4, "schema").integer(5, 2);
  const std::string footer = Thrift()
                                 .integer(1, 1)
                                 .list(2, {root, leaf("question"), leaf("context")})
                                 .integer(3, rows)
                                 .list(4, std::vector<Thrift>(groups, group))
                                 .done();
  std::string size(4, '\0');
  const auto footer_size = static_cast<std::uint32_t>(footer.size());
  std::memcpy(size.data(), &footer_size, 4);
  return "PAR1" + question + context + footer + size + "PAR1";
}

std::string error_of_parquet(const std::string& file) {
  return error_of([&] {
    const auto set = read_questions("a.parquet", std::as_bytes(std::span(file)),
                                    {.require_id = false, .require_answers = false});
  });
}

TEST(SmallFiles, MayRepeatWhatTheyLike) {
  EXPECT_EQ(error_of_parquet(parquet(repeated("q", 3), repeated("c", 3), 3)), "no error");
  const std::string context(1000, 'x');
  EXPECT_EQ(error_of_parquet(parquet(repeated("q", 100000), repeated(context, 100000), 100000)),
            "no error");
}

// 200 bytes of which 16 million questions came: 4 GB and 25 s.
TEST(SmallFiles, CannotHaveMillionsOfValues) {
  constexpr std::int64_t kRows = 1 << 24;
  const std::string file = parquet(repeated("q", kRows), repeated("c", kRows), kRows);
  EXPECT_LT(file.size(), 300u);
  EXPECT_THAT(error_of_parquet(file), HasSubstr("more bytes or values (values) than a file of"));
}

TEST(SmallFiles, CannotReadTheirBytesAgainAndAgain) {
  const std::string file = parquet(repeated("q", 1), repeated("c", 1), 1, /*groups=*/1000);
  EXPECT_THAT(error_of_parquet(file), HasSubstr("read twice or more"));
}

// Each text begins with the whole one before it.
TEST(SmallFiles, CannotGrowTextsFromTexts) {
  constexpr int kCount = 40000;
  const auto deltas = [](std::int64_t first, std::int64_t step) {  // first, first + step, …
    std::string bytes = Thrift::number(128) + Thrift::number(1) + Thrift::number(kCount) +
                        Thrift::number(static_cast<std::uint64_t>(first) << 1);
    for (int i = 0; i < kCount; i += 128)
      bytes += Thrift::number(static_cast<std::uint64_t>(step) << 1) + '\0';
    return bytes;
  };
  const std::string body = deltas(0, 1) + deltas(1, 0) + std::string(kCount, 'x');
  const std::string texts =
      page(0, body, static_cast<std::int64_t>(body.size()), kCount, kDeltaTexts);
  EXPECT_THAT(error_of_parquet(parquet(texts, repeated("c", kCount), kCount)),
              HasSubstr("(of text or decompressed)"));
}

TEST(SmallFiles, CannotClaimLargePages) {
  // Three bytes of Snappy give 64: a tag for a copy from 1 back.
  constexpr std::size_t kSize = 200 << 20;
  std::string snappy = Thrift::number(kSize) + std::string("\x00x", 2);
  for (std::size_t left = kSize - 1; left > 0; left -= std::min<std::size_t>(left, 64)) {
    const auto copy = std::min<std::size_t>(left, 64);
    snappy += static_cast<char>((copy - 1) << 2 | 2);
    snappy += std::string("\x01\x00", 2);
  }
  // As large as its bytes justify: broken as a text, but decompressed.
  EXPECT_THAT(error_of_parquet(parquet(page(0, snappy, kSize, 1, kPlain), repeated("c", 1), 1, 1,
                                       /*codec=*/1)),
              HasSubstr("column \"question\""));
  snappy.resize(100);
  EXPECT_THAT(error_of_parquet(parquet(page(0, snappy, kSize, 1, kPlain), repeated("c", 1), 1, 1,
                                       /*codec=*/1)),
              HasSubstr("(of text or decompressed)"));
}

Rows rows_of(std::string_view name, std::string_view file) {
  return read_rows(name, std::as_bytes(std::span(file)));
}

TEST(SmallFiles, KeepATextThatRepeatsOnce) {
  const std::string context(1000, 'x');
  const Rows rows = rows_of("a.parquet", parquet(repeated("q", 99), repeated(context, 99), 99, 1));
  const auto& texts = rows.texts("context").texts;
  ASSERT_EQ(texts.size(), 99u);
  EXPECT_EQ(texts.front(), context);
  EXPECT_EQ(texts.front().data(), texts.back().data());
}

TEST(SmallFiles, CannotClaimRowsOfAColumnThatIsNotRead) {
  constexpr std::int64_t kRows = 1 << 24;
  const std::string file = parquet("", "", kRows, 1, /*codec=*/0, kInt96);
  EXPECT_THAT(error_of([&] { rows_of("a.parquet", file); }),
              HasSubstr("more bytes or values (values) than a file of"));
  EXPECT_EQ(rows_of("a.parquet", parquet("", "", 5, 1, /*codec=*/0, kInt96)).columns()[0].size, 5u);
}

// Each row has a column of its own, which all others lack.
TEST(SmallFiles, CannotBeAsWideAsLong) {
  std::string lines;
  for (int i = 0; i < 2000; ++i) lines += fmt::format("{{\"{}\": 1}}\n", i);
  EXPECT_THAT(error_of([&] { rows_of("a.jsonl", lines); }),
              AllOf(HasSubstr("more bytes or values (values) than a file of"),
                    HasSubstr("leave out the columns that few rows have")));
}

}  // namespace
}  // namespace tandem::data
