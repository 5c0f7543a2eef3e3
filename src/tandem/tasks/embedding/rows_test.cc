// Rows of data files for bi-encoders: lists in columns, and rows that are doubtful.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/tasks/embedding/list_columns.h"
#include "tandem/tasks/embedding/row_checks.h"
#include "tandem/tasks/embedding/row_columns.h"

namespace tandem::tasks::embedding {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Names = std::vector<std::string>;

data::Rows rows_of(std::string_view lines, std::string_view name = "train.jsonl") {
  return data::read_rows(name, std::as_bytes(std::span(lines)));
}

std::vector<std::vector<std::string>> texts_of(const FlatRows& flat) {
  std::vector<std::vector<std::string>> all;
  for (std::size_t row = 0; row < flat.rows.size(); ++row) {
    all.emplace_back();
    for (const formats::Column& column : flat.columns) all.back().emplace_back(column.texts[row]);
  }
  return all;
}

TEST(ListColumns, FlagEmbeddingsFilesHaveARowForEachPositive) {
  const auto rows = rows_of(
      R"({"query": "q1", "pos": ["p1", "p2"], "neg": ["n1", "n2", "n3"], "prompt": "Find:", "id": 7})"
      "\n"
      R"({"query": "q2", "pos": ["p3"], "neg": ["n4"], "prompt": "Find:", "id": 8})"
      "\n");
  const Names names = flag_embedding_columns(rows);
  EXPECT_THAT(names, ElementsAre("query", "pos", "neg"));
  const FlatRows flat = without_lists(rows, names, 7);
  Names columns;
  for (const formats::Column& column : flat.columns) columns.push_back(column.name);
  EXPECT_THAT(columns, ElementsAre("query", "pos", "neg_1", "neg_2", "neg_3"));
  EXPECT_THAT(texts_of(flat), ElementsAre(ElementsAre("q1", "p1", "n1", "n2", "n3"),
                                          ElementsAre("q1", "p2", "n1", "n2", "n3"),
                                          ElementsAre("q2", "p3", "n4", "n4", "n4")));
  EXPECT_THAT(flat.rows, ElementsAre(0, 0, 1));
  EXPECT_EQ(flat.with_repeated, 1u);
}

TEST(ListColumns, NegativesAreCutAtTheMost) {
  const auto rows = rows_of(R"({"query": "q", "pos": ["p"], "neg": ["a", "b", "c"]})");
  EXPECT_THAT(texts_of(without_lists(rows, flag_embedding_columns(rows), 2)),
              ElementsAre(ElementsAre("q", "p", "a", "b")));
}

TEST(ListColumns, OtherNamesAndPlainColumnsNextToLists) {
  const auto rows = rows_of(R"({"anchor": "a", "positive": "p", "hard": ["x", "y"]})"
                            "\n"
                            R"({"anchor": "b", "positive": "q", "hard": ["z", "w"]})");
  EXPECT_THAT(flag_embedding_columns(rows), IsEmpty());
  EXPECT_THAT(texts_of(without_lists(rows, Names{"anchor", "positive", "hard"}, 7)),
              ElementsAre(ElementsAre("a", "p", "x", "y"), ElementsAre("b", "q", "z", "w")));
  // A list in the second column that is named as negatives has no rows of its own.
  const auto pairs = rows_of(R"({"text": "a", "negatives": ["x", "y"]})");
  EXPECT_THAT(texts_of(without_lists(pairs, Names{"text", "negatives"}, 7)),
              ElementsAre(ElementsAre("a", "x", "y")));
}

TEST(ListColumns, FilesWithoutNegatives) {
  const auto rows = rows_of(R"({"query": "q", "pos": ["p", "r"]})");
  EXPECT_THAT(texts_of(without_lists(rows, flag_embedding_columns(rows), 7)),
              ElementsAre(ElementsAre("q", "p"), ElementsAre("q", "r")));
}

std::string error_of(std::string_view lines, const Names& names) {
  const auto rows = rows_of(lines);
  try {
    without_lists(rows, names, 7);
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ListColumns, ErrorsNameTheRowAndTheColumn) {
  const std::string_view good = R"({"query": "q", "pos": ["p"], "neg": ["n"], "id": 1})"
                                "\n";
  EXPECT_THAT(error_of(std::string(good) + R"({"query": "q", "pos": [], "neg": ["n"], "id": 2})",
                       {"query", "pos", "neg"}),
              AllOf(HasSubstr("row 2"), HasSubstr("\"pos\""), HasSubstr("empty list")));
  EXPECT_THAT(error_of(std::string(good) + R"({"query": "q", "pos": ["p"], "neg": null, "id": 2})",
                       {"query", "pos", "neg"}),
              AllOf(HasSubstr("row 2"), HasSubstr("\"neg\"")));
  EXPECT_THAT(
      error_of(std::string(good) + R"({"query": "q", "pos": ["p", null], "neg": ["n"], "id": 2})",
               {"query", "pos", "neg"}),
      AllOf(HasSubstr("row 2"), HasSubstr("value 2"), HasSubstr("null")));
  EXPECT_THAT(error_of(good, {"pos", "query"}), HasSubstr("first column"));
  EXPECT_THAT(error_of(good, {"query", "id"}), HasSubstr("\"id\""));
  EXPECT_THAT(error_of(good, {"query", "answer"}), HasSubstr("no such column"));
}

Names warnings_of(std::string_view lines, bool has_labels = false) {
  const auto rows = rows_of(lines);
  RowsToCheck check{.texts = {},
                    .count = rows.size(),
                    .location = [&](std::size_t row) { return rows.location(row); },
                    .has_labels = has_labels};
  for (const formats::Column& column : rows.columns())
    if (column.kind == formats::Column::Kind::kText) check.texts.push_back(&column);
  return row_warnings(check);
}

TEST(RowWarnings, GoodRowsHaveNone) {
  EXPECT_THAT(warnings_of(R"({"anchor": "a", "positive": "p", "negative": "n"})"), IsEmpty());
  // The same text twice is how SimCSE trains.
  EXPECT_THAT(warnings_of(R"({"anchor": "a", "positive": "a"})"), IsEmpty());
}

TEST(RowWarnings, EmptyTexts) {
  EXPECT_THAT(warnings_of(R"({"anchor": "a", "positive": "p"})"
                          "\n"
                          R"({"anchor": "b", "positive": " \t"})"
                          "\n"
                          R"({"anchor": "", "positive": ""})"),
              ElementsAre(AllOf(HasSubstr("row 2"), HasSubstr("\"positive\""),
                                HasSubstr("empty text"), HasSubstr("(2 such rows)"))));
}

TEST(RowWarnings, AnchorsAndPositivesThatAreTheirNegatives) {
  EXPECT_THAT(warnings_of(R"({"a": "x", "b": "y", "c": "x"})"),
              ElementsAre(AllOf(HasSubstr("row 1"), HasSubstr("\"c\""), HasSubstr("anchor"))));
  EXPECT_THAT(warnings_of(R"({"a": "x", "b": "y", "c": "z", "d": "y"})"),
              ElementsAre(AllOf(HasSubstr("\"d\""), HasSubstr("positive"))));
  EXPECT_THAT(warnings_of(R"({"a": "x", "b": "y", "c": "x"})", /*has_labels=*/true), IsEmpty());
}

TEST(RowWarnings, NamesInAnotherOrder) {
  EXPECT_THAT(warnings_of(R"({"positive": "p", "anchor": "a"})"),
              ElementsAre(AllOf(HasSubstr("\"positive\" comes before \"anchor\""),
                                HasSubstr("--train_columns"))));
  EXPECT_THAT(warnings_of(R"({"answer": "p", "question": "a"})"),
              ElementsAre(HasSubstr("\"answer\" comes before \"question\"")));
  EXPECT_THAT(warnings_of(R"({"query": "p", "answer": "a"})"), IsEmpty());
}

class ReadColumns : public ::testing::Test {
 protected:
  RowColumns read(std::string_view lines, const ColumnChoice& choice = {}) {
    const auto path = folder_.path() / "rows.jsonl";
    write_file(path, lines);
    return read_columns(std::vector{path}, choice);
  }
  testing::TemporaryFolder folder_;
};

TEST_F(ReadColumns, ListsGiveRowsWithLabelsAndPlaces) {
  const RowColumns found =
      read(R"({"query": "q", "pos": ["p", "r"], "neg": ["n"], "score": 0.5, "prompt": "Find:"})"
           "\n"
           R"({"query": "s", "pos": ["t"], "neg": ["u"], "score": 1, "prompt": "Find:"})"
           "\n");
  ASSERT_EQ(found.texts.size(), 3u);
  EXPECT_EQ(found.count, 3u);
  EXPECT_EQ(found.texts[1]->texts[1], "r");
  EXPECT_THAT(found.labels, ElementsAre(0.5f, 0.5f, 1.0f));
  EXPECT_THAT(found.left_out, ElementsAre("prompt"));
  EXPECT_THAT(found.location(2), HasSubstr("row 2"));
  EXPECT_THAT(found.warnings, IsEmpty());
}

TEST_F(ReadColumns, PlainColumnsStayAsTheyAre) {
  const RowColumns found = read(R"({"a": "x", "b": "y", "id": 3})"
                                "\n"
                                R"({"a": "", "b": "y", "id": 4})"
                                "\n",
                                {.most = 2});
  ASSERT_EQ(found.texts.size(), 2u);
  EXPECT_THAT(found.left_out, ElementsAre("id"));
  EXPECT_THAT(found.warnings, ElementsAre(AllOf(HasSubstr("row 2"), HasSubstr("empty text"))));
  EXPECT_THAT(read(R"({"a": "x", "b": "y"})", {.texts = {"b", "a"}}).texts[0]->name, "b");
}

TEST_F(ReadColumns, SeveralLabelsOfARow) {
  const RowColumns found =
      read(R"({"query": "q", "pos": ["p", "r"], "neg": ["n"], "score": [1, 2]})"
           "\n"
           R"({"query": "s", "pos": ["t"], "neg": ["u"], "score": [3, 4]})");
  EXPECT_EQ(found.labels_per_row, 2u);
  EXPECT_THAT(found.labels, ElementsAre(1, 2, 1, 2, 3, 4));
  EXPECT_EQ(found.label_kind(), LabelKind::kMargins);
  EXPECT_EQ(read(R"({"a": "x", "b": "y", "score": 1})").labels_per_row, 1u);
}

TEST_F(ReadColumns, TheFirstRowsOfLists) {
  const RowColumns found = read(R"({"query": "q", "pos": ["p", "r"], "score": 0.5})", {.most = 1});
  EXPECT_EQ(found.count, 1u);
  EXPECT_THAT(found.labels, ElementsAre(0.5f));
}

}  // namespace
}  // namespace tandem::tasks::embedding
