// Tests of the columns that are taken, and of files that are wrong.
#include "tandem/tasks/token_classification/sentences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/core/error.h"
#include "tandem/tasks/token_classification/test_data.h"

namespace tandem::token_classification {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::read_json;

std::string problem(const std::string& text, const SentenceOptions& options = {},
                    const SentenceColumns& columns = {}) {
  try {
    read_json(text, options, columns);
  } catch (const DataError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Sentences, TakeTheUsualColumns) {
  const auto set = read_json(
      R"({"id": "0", "ner_tags": ["O", "B-x"], "pos_tags": ["A", "B"], "tokens": ["a", "b"]})");
  EXPECT_THAT(set.words(0), ElementsAre("a", "b"));
  EXPECT_THAT(set.tags(0), ElementsAre(0u, 1u));
  EXPECT_THAT(set.tag_names(), ElementsAre("O", "B-x"));
  EXPECT_FALSE(set.names_are_declared());
  EXPECT_EQ(set.describe_columns(), "words from \"tokens\", tags from \"ner_tags\"");
}

TEST(Sentences, TheTaskNamesTheTags) {
  const auto set = read_json(R"({"tokens": ["a"], "ner_tags": ["O"], "pos_tags": ["NOUN"]})", {},
                             {.task = "pos"});
  EXPECT_THAT(set.tag_names(), ElementsAre("NOUN"));
}

TEST(Sentences, ElseTheFirstColumnAndTheSecond) {
  const auto set = read_json(R"({"words": ["a", "b"], "tags": ["O", "B-x"], "id": 1})");
  EXPECT_THAT(set.words(0), ElementsAre("a", "b"));
  EXPECT_THAT(set.tag_names(), ElementsAre("O", "B-x"));
  EXPECT_EQ(set.describe_columns(), "words from \"words\", tags from \"tags\"");
}

TEST(Sentences, ColumnsCanBeNamed) {
  const auto set =
      read_json(R"({"id": 1, "t": ["O"], "w": ["a"]})", {}, {.words = "w", .tags = "t"});
  EXPECT_THAT(set.words(0), ElementsAre("a"));
  EXPECT_THAT(problem(R"({"id": 1, "t": ["O"], "w": ["a"]})", {}, {.words = "w", .tags = "u"}),
              HasSubstr("there is no column \"u\""));
}

TEST(Sentences, WhatIsPredictedNeedsNoTags) {
  const SentenceOptions options{.require_tags = false};
  EXPECT_FALSE(read_json(R"({"tokens": ["a"]})", options).has_tags());
  EXPECT_EQ(read_json(R"({"tokens": ["a"]})", options).describe_columns(), "words from \"tokens\"");
  EXPECT_FALSE(read_json(R"({"tokens": ["a"], "id": 3})", options).has_tags());
  EXPECT_TRUE(read_json(R"({"tokens": ["a"], "ner_tags": ["O"]})", options).has_tags());
  EXPECT_THAT(problem(R"({"tokens": ["a"]})"), HasSubstr("there is no column of tags"));
}

TEST(Sentences, NameTheRowThatIsWrong) {
  const std::string good = "{\"tokens\": [\"a\"], \"ner_tags\": [\"O\"]}\n";
  EXPECT_THAT(problem(good + R"({"tokens": ["a", "b"], "ner_tags": ["O"]})"),
              HasSubstr("'rows.json', row 2 (line 2): 2 words in \"tokens\" and 1 tags"));
  EXPECT_THAT(problem(good + R"({"tokens": ["a"], "ner_tags": [""]})"),
              HasSubstr("row 2 (line 2): tag 0 is empty"));
  EXPECT_THAT(problem(good + R"({"tokens": ["a", null], "ner_tags": ["O", "O"]})"),
              HasSubstr("row 2 (line 2): column \"tokens\", entry 1 is null"));
}

TEST(Sentences, RefuseWhatIsNoListOfWords) {
  EXPECT_THAT(problem(R"({"tokens": "a b", "ner_tags": "O O"})"),
              HasSubstr("expected a list of words in each row"));
  EXPECT_THAT(problem(R"({"tokens": [1], "ner_tags": ["O"]})"),
              HasSubstr("expected lists of words as texts"));
  EXPECT_THAT(problem(R"({"tokens": ["a"], "ner_tags": [3]})"),
              HasSubstr("does not list the tags that they stand for"));
  EXPECT_THAT(problem(R"({"tokens": ["a"], "ner_tags": [0.5]})"),
              HasSubstr("expected names of tags"));
  EXPECT_THAT(problem(""), HasSubstr("the file is empty"));
}

TEST(Sentences, CsvCannotHoldThem) {
  const std::string text = "tokens,ner_tags\na b,O O\n";
  try {
    read_sentences("rows.csv", std::as_bytes(std::span(text)), {});
    FAIL() << "accepted";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("use JSON lines"));
  }
}

}  // namespace
}  // namespace tandem::token_classification
