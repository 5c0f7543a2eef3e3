// Rows of every format, and the errors of broken ones.
#include "tandem/data/read_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "support/gzip.h"
#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/data/json_source.h"

namespace tandem::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = formats::Column::Kind;

Rows rows_of(std::string_view name, std::string_view text, const RowOptions& options = {}) {
  return read_rows(name, std::as_bytes(std::span(text)), options);
}

std::string error_of(std::string_view name, std::string_view text, const RowOptions& options = {}) {
  try {
    rows_of(name, text, options);
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ReadRows, JsonLinesHaveTypedColumns) {
  const Rows rows = rows_of("a.jsonl",
                            "{\"tokens\": [\"a\", \"b\"], \"n\": 1, \"x\": null, \"b\": true}\n\n"
                            "{\"n\": 2.5, \"tokens\": [], \"s\": \"\u00e9\", \"b\": false}\n");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_THAT(rows.file_columns(), ElementsAre("tokens", "n", "x", "b", "s"));
  const formats::Column& tokens = *rows.find("tokens");
  ASSERT_EQ(tokens.kind, Kind::kList);
  EXPECT_THAT(tokens.begins, ElementsAre(0, 2, 2));
  EXPECT_THAT(tokens.children.front().texts, ElementsAre("a", "b"));
  EXPECT_EQ(rows.find("n")->kind, Kind::kNumber) << "an integer among numbers is one";
  EXPECT_THAT(rows.find("n")->numbers, ElementsAre(1.0, 2.5));
  EXPECT_EQ(rows.find("x")->kind, Kind::kOther);
  EXPECT_THAT(rows.find("b")->integers, ElementsAre(1, 0));
  EXPECT_TRUE(rows.find("s")->is_null(0));
  EXPECT_EQ(rows.find("s")->texts[1], "\u00e9");
  EXPECT_EQ(rows.location(1), "'a.jsonl', row 2 (line 3)");
  EXPECT_FALSE(rows.untyped());
}

TEST(ReadRows, CompressedFilesHaveTheirFormatsRows) {
  const testing::TemporaryFolder folder;
  for (const auto& [name, text] : {std::pair("a.csv.gz", "n,s\n1,x\n2,y\n"),
                                   {"a.tsv.gz", "n\ts\n1\tx\n2\ty\n"},
                                   {"a.jsonl.gz", "{\"s\": \"x\"}\n{\"s\": \"y\"}\n"},
                                   {"a.json.gz", "[{\"s\": \"x\"}, {\"s\": \"y\"}]"},
                                   {"a.json", "[{\"s\": \"x\"}, {\"s\": \"y\"}]"}}) {
    const std::filesystem::path path = folder / name;
    write_file(path, testing::gzip(text));
    const Rows rows = read_rows(std::span(&path, 1));
    EXPECT_THAT(rows.texts("s").texts, ElementsAre("x", "y")) << name;
    EXPECT_THAT(rows.location(1), HasSubstr(std::string(name) + "', row 2"));
  }
  const std::filesystem::path path = folder / "b.jsonl.gz";
  write_file(path, testing::gzip("{\"s\": \"x\"}\n").substr(0, 20));
  EXPECT_THAT([&] { read_rows(std::span(&path, 1)); },
              ::testing::ThrowsMessage<DataError>(
                  HasSubstr("b.jsonl.gz': the file ends in the middle of its compressed data")));
}

TEST(ReadRows, ListsOfObjectsAndData) {
  for (const char* text : {"[{\"a\": 1}, {\"a\": 2}]", "{\"data\": [{\"a\": 1}, {\"a\": 2}]}"}) {
    const Rows rows = rows_of("a.json", text);
    EXPECT_THAT(rows.find("a")->integers, ElementsAre(1, 2));
    EXPECT_EQ(rows.location(0), "'a.json', row 1");
  }
  EXPECT_EQ(rows_of("a.json", "{\"data\": 5}").size(), 1u) << "one row of JSON lines";
}

TEST(ReadRows, CsvAndTsvAreTexts) {
  const Rows csv = rows_of("a.csv", "text,label\n\"a, b\",1\nNA,\nnull,3\n");
  EXPECT_TRUE(csv.untyped());
  EXPECT_THAT(csv.find("text")->texts, ElementsAre("a, b", "NA", "null"));
  EXPECT_TRUE(csv.find("label")->is_null(1));
  EXPECT_EQ(csv.location(2), "'a.csv', row 3 (line 4)");
  const Rows tsv = rows_of("a.tsv", "text\tlabel\n\"quoted\" start\t1\n\"open, 2\t0\n");
  EXPECT_THAT(tsv.find("text")->texts, ElementsAre("\"quoted\" start", "\"open, 2"));
  EXPECT_THAT(error_of("a.tsv", "a\tb\n1\t2\t3\n"), HasSubstr("row 1 (line 2): 3 fields"));
}

TEST(ReadRows, TypesOfTexts) {
  const auto kind_of = [](std::string_view cells) {
    Rows rows = rows_of("a.csv", std::string("c,d\n") + std::string(cells));
    formats::Column column = *rows.find("c");
    infer_type(column);
    return column.kind;
  };
  EXPECT_EQ(kind_of("1,x\n-2,x\n,x\n"), Kind::kInteger);
  EXPECT_EQ(kind_of("1,x\n2.0,x\n"), Kind::kNumber);
  EXPECT_EQ(kind_of("True,x\nFalse,x\n"), Kind::kBool);
  EXPECT_EQ(kind_of("1,x\nyes,x\n"), Kind::kText);
  EXPECT_EQ(kind_of(",x\n,x\n"), Kind::kText);
}

TEST(ReadRows, OnlyChosenColumns) {
  const RowOptions options{.choose = [](std::span<const std::string> names) {
    EXPECT_THAT(names, ElementsAre("a", "b"));
    return std::vector<std::string>{"b"};
  }};
  const Rows rows = rows_of("a.json", "{\"a\": 1, \"b\": \"x\"}", options);
  EXPECT_EQ(rows.find("a"), nullptr);
  EXPECT_THAT(rows.columns().front().texts, ElementsAre("x"));
  const RowOptions missing{.choose = [](auto) { return std::vector<std::string>{"label"}; }};
  EXPECT_THAT(error_of("a.json", "{\"a\": 1, \"b\": \"x\"}", missing),
              HasSubstr("data file 'a.json': there is no column \"label\", found \"a\", \"b\""));
}

TEST(ReadRows, ShardsAreOneTable) {
  const testing::TemporaryFolder folder;
  write_file(folder / "1.jsonl", "{\"t\": [\"a\"], \"y\": 1}\n{\"t\": null, \"y\": null}\n");
  write_file(folder / "2.jsonl", "{\"t\": [\"b\", \"c\"], \"y\": 0.5}\n");
  const std::vector<std::filesystem::path> paths{folder / "1.jsonl", folder / "2.jsonl"};
  const Rows rows = read_rows(paths);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_THAT(rows.find("t")->begins, ElementsAre(0, 1, 1, 3));
  EXPECT_THAT(rows.find("t")->children.front().texts, ElementsAre("a", "b", "c"));
  EXPECT_THAT(rows.find("y")->numbers, ElementsAre(1, 0, 0.5));
  EXPECT_THAT(rows.location(2), HasSubstr("2.jsonl', row 1 (line 1)"));
}

RowOptions only(std::string name) {
  return {.choose = [name = std::move(name)](auto) { return std::vector<std::string>{name}; }};
}

// Values that Python's json.dump() and pandas write and strict parsers refuse.
TEST(ReadRows, ColumnsThatAreNotWantedHoldAnything) {
  for (const char* other :
       {"NaN", "-Infinity", "{\"a\": [1, {}]}", "123456789012345678901234567890", "1e999",
        "\"\\ud83d\"", "[1, \"x\", {\"y\": NaN}]", "\"\xff\""}) {
    for (const char* form : {"{{\"o\": {0}, \"s\": \"x\"}}\n{{\"o\": \"text\", \"s\": \"y\"}}\n",
                             "[{{\"s\": \"x\", \"o\": {0}}}, {{\"s\": \"y\", \"o\": 1}}]",
                             "{{\"data\": [{{\"s\": \"x\", \"o\": {0}}}, {{\"s\": \"y\"}}]}}"}) {
      const Rows rows = rows_of("a.json", fmt::format(fmt::runtime(form), other), only("s"));
      EXPECT_THAT(rows.find("s")->texts, ElementsAre("x", "y")) << other;
    }
  }
  EXPECT_THAT(
      error_of("a.json", "{\"o\": [1, }, \"s\": \"x\"}", only("s")),
      HasSubstr("not valid JSON: line 1, column 11 (byte 10): found '}', expected a value"));
  EXPECT_THAT(error_of("a.json", "{\"s\": \"\\ud83d\"}"), HasSubstr("half of a surrogate pair"));
  EXPECT_THAT(error_of("a.json", "{\"s\": Infinity}"), HasSubstr("expected a finite number"));
  EXPECT_TRUE(rows_of("a.json", "{\"s\": NaN}\n{\"s\": 1}").find("s")->is_null(0));
}

TEST(ReadRows, WhatPandasWrites) {
  for (const char* text :
       {"{\"columns\":[\"s\",\"n\"],\"index\":[0,1],\"data\":[[\"x\",1],[\"y\",NaN]]}",
        "{\"s\":{\"0\":\"x\",\"1\":\"y\"},\"n\":{\"0\":1,\"1\":null}}",
        "{\"schema\":{\"fields\":[]},\"data\":[{\"s\":\"x\",\"n\":1},{\"s\":\"y\",\"n\":null}]}",
        "{\n \"s\": \"x\",\n \"n\": 1\n}\n{\"s\": \"\\u0079\"}\n"}) {
    const Rows rows = rows_of("a.json", text);
    EXPECT_THAT(rows.find("s")->texts, ElementsAre("x", "y")) << text;
    EXPECT_EQ(rows.find("n")->integers.front(), 1);
    EXPECT_TRUE(rows.find("n")->is_null(1));
  }
}

TEST(ReadRows, ByteOrderMarks) {
  const std::string mark = "\xef\xbb\xbf";
  EXPECT_NE(rows_of("a.csv", mark + "s,n\nx,1\n").find("s"), nullptr);
  EXPECT_NE(rows_of("a.csv", mark + "\"s\",n\nx,1\n").find("s"), nullptr);
  EXPECT_NE(rows_of("a.tsv", mark + "s\tn\nx\t1\n").find("s"), nullptr);
  EXPECT_NE(rows_of("a.json", mark + "[{\"s\": 1}]").find("s"), nullptr);
  EXPECT_NE(rows_of("a.jsonl", mark + "{\"s\": 1}\n").find("s"), nullptr);
  using namespace std::string_view_literals;
  EXPECT_THAT(error_of("a.csv", "\xff\xfes\0,\0"sv),
              HasSubstr("the text is not UTF-8: found UTF-16LE, expected UTF-8"));
  EXPECT_THAT(error_of("a.json", "\xfe\xff\0{"sv), HasSubstr("UTF-16BE"));
  EXPECT_THAT(error_of("a.tsv", "s\0\t\0n\0"sv), HasSubstr("UTF-16LE"));
}

TEST(ReadRows, BadFilesAreNamed) {
  EXPECT_THAT(error_of("a.txt", "x"), HasSubstr(".csv, .tsv, .json, .jsonl, .parquet, .arrow"));
  EXPECT_THAT(error_of("a.json", " \n"), HasSubstr("the file is empty"));
  EXPECT_THAT(error_of("a.csv", "a,b\n"), HasSubstr("no row in it"));
  EXPECT_THAT(error_of("a.json", "{\"a\": 1}\n{\"a\": \"x\"}"),
              HasSubstr("row 2 (line 2): \"a\" is text here, but integer before"));
  EXPECT_THAT(error_of("a.json", "{\"a\": 1}\n{\"a\": {\"b\": 1}}"),
              HasSubstr("row 2 (line 2): \"a\" is an object"));
  EXPECT_THAT(error_of("a.json", "{\"a\": 1}\n[1]"), HasSubstr("row 2 (line 2): a row is an"));
  EXPECT_THAT(error_of("a.json", "{\"a\": 1}\n{\"a\": "), HasSubstr("not valid JSON: line 2"));
  EXPECT_THAT(error_of("a.json", "[]"), HasSubstr("no row in it"));
}

// JSON lines in parts of any size have the same rows, numbers and lines as at once.
TEST(JsonInParts, HaveTheSameRows) {
  const std::string text =
      "\xef\xbb\xbf{\"text\": \"a\", \"n\": 1}\n\n{\"text\":\n\"b\\nc\"} {\"text\": null}\n"
      "{\"data\": [1], \"text\": \"d\"}\n{\"other\": {}, \"n\": 2}\n";
  const auto read = [](formats::TableSource& source) {
    std::vector<std::string> rows;
    const std::vector<std::size_t> columns{0, 1};
    for (formats::Table table; source.next(columns, table);) {
      for (std::size_t row = 0; row < table.num_rows; ++row) {
        const formats::Column &words = table.columns[0], &numbers = table.columns[1];
        rows.push_back(fmt::format("{} {} {}: {} {}", words.name, numbers.name,
                                   source.location(row),
                                   words.is_null(row) ? "null" : words.texts[row],
                                   numbers.is_null(row) ? 0 : numbers.integers[row]));
      }
    }
    return rows;
  };
  const std::vector<std::string> whole = read(*open_json(text));
  ASSERT_EQ(whole.size(), 5u);
  EXPECT_EQ(whole[3], "text n row 4 (line 5): d 0");
  for (std::size_t bytes = 1; bytes <= text.size(); ++bytes)
    EXPECT_EQ(read(*open_json_in_parts(text, bytes)), whole) << bytes;
}

// Objects are structs with the keys of all of them.
TEST(JsonInParts, Objects) {
  const auto source = open_json_in_parts(
      R"({"a": null} {"a": [{"r": "x"}, {"c": [1, 2], "r": null}]} {"a": []} {"a": [{"r": "y"}]})",
      1 << 20);
  const std::vector<std::size_t> columns{0};
  formats::Table table;
  ASSERT_TRUE(source->next(columns, table));
  const formats::Column& lists = table.columns[0];
  EXPECT_TRUE(lists.is_null(0));
  EXPECT_EQ(lists.begins, (std::vector<std::size_t>{0, 0, 2, 2, 3}));
  const formats::Column& objects = lists.children.at(0);
  ASSERT_EQ(objects.kind, formats::Column::Kind::kStruct);
  EXPECT_EQ(objects.size, 3u);
  const formats::Column &r = *objects.field("r"), &c = *objects.field("c");
  EXPECT_EQ(r.texts, (std::vector<std::string_view>{"x", "", "y"}));
  EXPECT_TRUE(r.is_null(1));
  EXPECT_TRUE(c.is_null(0));
  EXPECT_EQ(c.begins, (std::vector<std::size_t>{0, 0, 2, 2}));
}

TEST(JsonInParts, ObjectsThatAreWrong) {
  const auto refusal = [](std::string_view text) {
    try {
      const auto source = open_json_in_parts(text, 1 << 20);
      const std::vector<std::size_t> columns{0};
      formats::Table table;
      source->next(columns, table);
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(refusal(R"({"a": {"b": 1, "b": 2}} {"a": null})"), HasSubstr("the key \"b\" twice"));
  EXPECT_THAT(refusal(R"({"a": {"b": 1}} {"a": {"b": "x"}})"),
              HasSubstr("row 2 (line 1): \"b\" is text here, but integer before"));
  EXPECT_THAT(refusal(R"({"a": {"b": 1}} {"a": [1]})"),
              HasSubstr("is list here, but object before"));
  std::string wide = R"({"a": {)", deep = R"({"a": )";
  for (int i = 0; i < 100; ++i) wide += fmt::format("\"k{}\": 1{}", i, i == 99 ? "}}" : ", ");
  for (int i = 0; i < 100; ++i) deep += R"({"b": )";
  EXPECT_THAT(refusal(wide + "{\"a\": null}"), HasSubstr("objects with more than 64 keys"));
  EXPECT_THAT(refusal(deep + "1" + std::string(101, '}')), HasSubstr("more than 64 levels"));
}

// Other forms come at once.
TEST(JsonInParts, OtherFormsAreOnePart) {
  const std::vector<std::size_t> columns{0};
  for (const char* text : {R"([{"a": 1}, {"a": 2}])", R"({"data": [{"a": 1}, {"a": 2}]})",
                           R"({"a": {"0": 1, "1": 2}})"}) {
    const auto source = open_json_in_parts(text, 1);
    formats::Table table;
    ASSERT_TRUE(source->next(columns, table)) << text;
    EXPECT_EQ(table.num_rows, 2u) << text;
    EXPECT_FALSE(source->next(columns, table)) << text;
  }
}

}  // namespace
}  // namespace tandem::data
