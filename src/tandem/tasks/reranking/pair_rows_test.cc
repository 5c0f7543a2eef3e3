// Rows in the forms that rerankers are trained from, and rows that are wrong.
#include "tandem/tasks/reranking/pair_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"

namespace tandem::tasks::reranking {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PairRowsTest : public ::testing::Test {
 protected:
  PairRows read(const std::string& text, RowForm form,
                const std::string& name = "rows.jsonl") const {
    write_file(folder_ / name, text);
    return read_pairs(std::vector<std::filesystem::path>{folder_ / name}, form, arguments_,
                      std::nullopt, /*need_labels=*/true);
  }
  std::string problem(const std::string& text, RowForm form) const {
    try {
      read(text, form);
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  }
  RerankingArguments arguments_;
  testing::TemporaryFolder folder_;
};

TEST_F(PairRowsTest, LabelledPairs) {
  for (const char* label : {"label", "score", "labels", "scores"}) {
    const PairRows pairs = read(fmt::format(R"({{"{}": 0.5, "q": "a", "p": "b"}})", label) + "\n" +
                                    fmt::format(R"({{"{}": 1, "q": "c", "p": ""}})", label),
                                RowForm::kPairs);
    EXPECT_THAT(pairs.queries, ElementsAre("a", "c"));
    EXPECT_THAT(pairs.passages, ElementsAre("b", ""));
    EXPECT_THAT(pairs.labels, ElementsAre(0.5F, 1.0F));
    EXPECT_THAT(pairs.begins, ElementsAre(0, 1, 2));
  }
  EXPECT_THAT(read("q,p,label\na,b,1\nc,d,0\n", RowForm::kPairs, "rows.csv").labels,
              ElementsAre(1, 0));
  const PairRows others =
      read(R"({"id": 7, "query": "a", "passage": "b", "label": true})", RowForm::kPairs);
  EXPECT_THAT(others.left_out, ElementsAre("id"));
  EXPECT_THAT(others.labels, ElementsAre(1));
}

TEST_F(PairRowsTest, EqualTextsHaveEqualNumbers) {
  const PairRows tuples = read(
      "{\"q\": \"a\", \"p\": \"b\", \"n\": \"c\"}\n{\"q\": \"c\", \"p\": \"a\", \"n\": \"d\"}\n",
      RowForm::kPositives);
  const BatchTexts texts = batch_texts(tuples, RowForm::kPositives);
  EXPECT_EQ(texts.columns, 3u);
  // a and c; b and a; c and d
  EXPECT_THAT(texts.values, ElementsAre(0, 2, 1, 0, 2, 3));

  const PairRows lists = read(
      "{\"q\": \"a\", \"d\": [\"b\", \"c\"], \"labels\": [1, 0]}\n"
      "{\"q\": \"b\", \"d\": [\"b\", \"c\"], \"labels\": [1, 0]}\n"
      "{\"q\": \"a\", \"d\": [\"b\"], \"labels\": [1]}\n",
      RowForm::kLists);
  const BatchTexts of_lists = batch_texts(lists, RowForm::kLists);
  EXPECT_EQ(of_lists.columns, 2u);
  EXPECT_THAT(of_lists.values, ElementsAre(0, 2, 0, 1, 1, 3));
}

TEST_F(PairRowsTest, PositivesAndNegatives) {
  const std::string row = R"({"query": "q", "pos": ["a", "b"], "neg": ["c", "d", "e"]})";
  const PairRows pairs = read(row, RowForm::kPairs);
  EXPECT_THAT(pairs.labels, ElementsAre(1, 1, 0, 0, 0));
  EXPECT_EQ(pairs.begins.size(), 6u);
  const PairRows lists = read(row, RowForm::kLists);
  EXPECT_THAT(lists.passages, ElementsAre("a", "b", "c", "d", "e"));
  EXPECT_THAT(lists.begins, ElementsAre(0, 5));
  const PairRows columns = read(
      R"({"query": "q", "positive": "a", "negative_1": "b", "negative_2": "c"})", RowForm::kLists);
  EXPECT_THAT(columns.labels, ElementsAre(1, 0, 0));
}

TEST_F(PairRowsTest, ListsOfPassagesAndLabels) {
  const PairRows pairs = read(R"({"query": "q", "docs": ["a", "b"], "labels": [2, 0]})"
                              "\n"
                              R"({"query": "r", "docs": ["c"], "labels": [0.5]})",
                              RowForm::kLists);
  EXPECT_THAT(pairs.queries, ElementsAre("q", "q", "r"));
  EXPECT_THAT(pairs.labels, ElementsAre(2, 0, 0.5F));
  EXPECT_THAT(pairs.begins, ElementsAre(0, 2, 3));
  EXPECT_THAT(pairs.location(2), HasSubstr("row 2"));
}

// The order before is that of the search, with a positive that it missed behind it.
TEST_F(PairRowsTest, DocumentsOfASearch) {
  const std::string rows = R"({"query": "q", "positive": ["a", "b"], "documents": ["c", "a", "d"]})"
                           "\n"
                           R"({"query": "r", "positive": ["e"], "documents": ["f"]})";
  const PairRows all = read(rows, RowForm::kSearches);
  EXPECT_THAT(all.passages, ElementsAre("a", "b", "c", "d", "e", "f"));
  EXPECT_THAT(all.labels, ElementsAre(1, 1, 0, 0, 1, 0));
  EXPECT_THAT(all.base, ElementsAre(ElementsAre(0, 1, 0, 1), ElementsAre()));
  arguments_.always_rerank_positives = false;
  const PairRows found = read(rows, RowForm::kSearches);
  EXPECT_THAT(found.passages, ElementsAre("c", "a", "d", "f"));
  EXPECT_THAT(found.labels, ElementsAre(0, 1, 0, 0));
}

TEST_F(PairRowsTest, MarginsOfNegatives) {
  EXPECT_EQ(
      read(R"({"query": "q", "positive": "a", "negative": "b", "score": -0.5})", RowForm::kTuples)
          .labels_per_row,
      1u);
  const PairRows scores =
      read(R"({"query": "q", "positive": "a", "negatives": ["b", "c"], "scores": [3, 2, 1]})",
           RowForm::kTuples);
  EXPECT_EQ(scores.labels_per_row, 3u);
  EXPECT_THAT(scores.begins, ElementsAre(0, 3));
}

TEST_F(PairRowsTest, WrongRowsAreNamed) {
  const auto expect = [&](const std::string& row, RowForm form, const std::string& message) {
    EXPECT_THAT(problem(row, form), HasSubstr(message)) << row;
  };
  expect(R"({"query": "q", "passage": null, "label": 1})", RowForm::kPairs, "expected");
  expect(R"({"query": "q", "passage": "p", "label": null})", RowForm::kPairs, "expected");
  expect(R"({"query": "q", "passage": "p", "label": "yes"})", RowForm::kPairs,
         "row 1 (line 1): column \"label\": found no number, expected one");
  expect(R"({"query": "q", "docs": ["a", "b"], "labels": [1]})", RowForm::kLists,
         "found 1 labels, expected 2, one of each passage");
  expect(R"({"query": "q", "docs": [], "pos": ["a"]})", RowForm::kTuples, "found no label");
  expect(R"({"query": "q", "positive": "a", "label": 1})", RowForm::kTuples,
         "found one passage, expected a positive and negatives");
  expect(R"({"query": "q", "positive": "a", "n": ["b", "c"], "label": 1})", RowForm::kTuples,
         "found 1 label, expected a list of 2 margins");
  expect(R"({"query": "q", "label": 1})", RowForm::kPairs, "expected a query and a passage");
  expect(R"({"query": "q", "positive": ["a"], "documents": ["a", "b"]})", RowForm::kLists,
         "column \"documents\": found passages of a search, expected negatives");
  expect(R"({"query": ["q"], "passage": "p", "label": 1})", RowForm::kPairs,
         "expected a query and a passage");
}

}  // namespace
}  // namespace tandem::tasks::reranking
