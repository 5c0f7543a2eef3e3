// Tests of the question file reader: the four forms, and the errors of broken files.
#include "tandem/data/read_questions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "support/golden_files.h"
#include "support/gzip.h"
#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/data/read_rows.h"
#include "tandem/text/utf8.h"

namespace tandem::data {
namespace {

using ::testing::HasSubstr;

class ReadQuestions : public ::testing::Test {
 protected:
  QuestionSet read(std::string_view text, const ReadOptions& options = {}) const {
    write_file(folder_ / "q.json", text);
    return read_questions(folder_ / "q.json", options);
  }

  std::string error_of(std::string_view text, const ReadOptions& options = {}) const {
    try {
      read(text, options);
    } catch (const DataError& error) {
      return error.what();
    }
    return "no error";
  }

  testing::TemporaryFolder folder_;
};

constexpr std::string_view kRaw =
    R"({"version": "v2.0", "data": [{"title": " Cats ", "paragraphs": [
  {"qas": [
     {"question": " Who? ", "id": "a1", "answers": [{"text": " Tom ", "answer_start": 2}, {"text": "Tom", "answer_start": 3}], "is_impossible": false},
     {"question": "Why?", "id": "a2", "answers": [], "plausible_answers": [{"text": "x", "answer_start": 0}], "is_impossible": true}],
   "context": "\u00e9 Tom \ud83d\ude00 sat. \n"}]}]})";

TEST_F(ReadQuestions, RawSquadIsStripped) {
  const QuestionSet set = read(kRaw);
  ASSERT_EQ(set.size(), 2u);
  EXPECT_EQ(set[0].id, "a1");
  EXPECT_EQ(set[0].title, "Cats");
  EXPECT_EQ(set[0].question, "Who?");
  EXPECT_EQ(set[0].context, "é Tom \xf0\x9f\x98\x80 sat. \n") << "answer_start counts in it";
  ASSERT_EQ(set[0].answers.size(), 2u);
  EXPECT_EQ(set[0].answers[0].text, "Tom");
  EXPECT_EQ(set[0].answers[0].answer_start, 2);
  EXPECT_TRUE(set[1].answers.empty());
  EXPECT_EQ(set[1].context.data(), set[0].context.data()) << "a paragraph's context is stored once";
}

TEST_F(ReadQuestions, CompressedFiles) {
  const std::filesystem::path path = folder_ / "q.json.gz";
  write_file(path, testing::gzip(kRaw));
  EXPECT_EQ(read_questions(path).size(), 2u);
  write_file(path, testing::gzip(kRaw).substr(0, 100));
  EXPECT_THAT([&] { read_questions(path); },
              ::testing::ThrowsMessage<DataError>(
                  HasSubstr("q.json.gz': the file ends in the middle of its compressed data")));
}

constexpr std::string_view kRow1 =
    R"({"id": "007", "title": "t", "context": " Tom sat. ", "question": " Who? ", "answers": {"text": ["Tom"], "answer_start": [1]}})";
constexpr std::string_view kRow2 =
    R"({"id": 8, "context": " Tom sat. ", "question": "Why?", "answers": {"text": [], "answer_start": []}})";

void expect_rows(const QuestionSet& set) {
  ASSERT_EQ(set.size(), 2u);
  EXPECT_EQ(set[0].id, "007");
  EXPECT_EQ(set[0].context, " Tom sat. ") << "flat rows are taken as they are";
  EXPECT_EQ(set[0].question, " Who? ");
  ASSERT_EQ(set[0].answers.size(), 1u);
  EXPECT_EQ(set[0].answers[0].answer_start, 1);
  EXPECT_EQ(set[1].id, "8");
  EXPECT_EQ(set[1].title, "");
  EXPECT_TRUE(set[1].answers.empty());
  EXPECT_EQ(set[1].context.data(), set[0].context.data());
}

TEST_F(ReadQuestions, FlatForms) {
  expect_rows(read(fmt::format("{{\"data\": [{},\n{}]}}", kRow1, kRow2)));
  expect_rows(read(fmt::format("[{}, {}]", kRow1, kRow2)));
  expect_rows(read(fmt::format("{}\n{}\n", kRow1, kRow2)));
  expect_rows(read(fmt::format("\xef\xbb\xbf\n{}\r\n\r\n{}", kRow1, kRow2)));
  EXPECT_EQ(read(kRow1).size(), 1u) << "JSON lines with one line";
}

TEST_F(ReadQuestions, ColumnsByPosition) {
  const QuestionSet set = read(
      R"([{"q": "Who?", "passage": "Tom sat.", "gold": {"text": ["Tom"], "answer_start": [0]}, "id": "x"},
          {"id": "y", "q": "2?", "passage": "p", "gold": {"text": [], "answer_start": []}}])");
  EXPECT_EQ(set[0].question, "Who?");
  EXPECT_EQ(set[0].context, "Tom sat.");
  EXPECT_EQ(set[0].answers[0].text, "Tom");
  EXPECT_EQ(set[1].question, "2?");
  EXPECT_EQ(set.columns().describe(),
            "questions from \"q\", contexts from \"passage\", answers from \"gold\"");
}

// The start block of a job names them.
TEST_F(ReadQuestions, TheColumnsThatWereReadAreNamed) {
  const auto columns = [&](std::string_view text, const ReadOptions& options = {},
                           const char* name = "q.json") {
    return read_questions(name, std::as_bytes(std::span(text)), options).columns().describe();
  };
  EXPECT_EQ(columns(kRow1),
            "questions from \"question\", contexts from \"context\", answers from \"answers\"");
  const ReadOptions plain{.require_id = false, .require_answers = false};
  EXPECT_EQ(columns(R"({"question": "Who?", "context": "Tom sat."})", plain),
            "questions from \"question\", contexts from \"context\"");
  EXPECT_EQ(columns(R"({"data": [{"paragraphs": [{"context": "c", "qas": []}, {"context": "c",
                       "qas": [{"id": "1", "question": "q", "answers": []}]}]}]})"),
            "questions from \"question\", contexts from \"context\", answers from \"answers\"");
  EXPECT_EQ(columns("q,text,note\nWho?,Tom sat.,x\n", plain, "q.csv"),
            "questions from \"q\", contexts from \"text\"");
}

TEST_F(ReadQuestions, IdsAndAnswersAreOptionalWhereAskedFor) {
  const std::string rows =
      R"([{"context": "c", "question": "a"}, {"context": "c", "question": "b"}])";
  const QuestionSet set = read(rows, {.require_id = false, .require_answers = false});
  EXPECT_EQ(set[1].id, "1");
  EXPECT_TRUE(set[1].answers.empty());
  EXPECT_THAT(error_of(rows), HasSubstr("record 1: key \"id\" is missing, found \"context\", "
                                        "\"question\""));
}

TEST_F(ReadQuestions, ViewsSurviveAMove) {
  QuestionSet set = read(kRaw);
  const QuestionSet moved = std::move(set);
  EXPECT_EQ(moved[0].answers[1].text, "Tom");
  EXPECT_EQ(moved.examples().size(), 2u);
}

TEST_F(ReadQuestions, NamesTheFaultAndItsPosition) {
  const std::string row = R"({"id": "i", "context": "Tom sat.", "question": "q", "answers": )";
  const std::pair<std::string, std::vector<std::string>> cases[] = {
      {"", {"q.json': the file is empty"}},
      {" \n ", {"the file is empty"}},
      {"{\"data\": []}", {"no question in it"}},
      {"{\"data\": [\n {\"id\": \"a\",, }]}", {"not valid JSON: line 2, column 13 (byte 23)"}},
      {std::string(kRaw.substr(0, 150)),
       {"not valid JSON: line 3, column 74", "missing closing quote"}},
      {"[1, 2]", {"record 1: a record is a number, expected an object"}},
      {"{\"rows\": []}", {"expected an object with \"data\"", "found an object with \"rows\""}},
      {"3", {"found a number"}},
      {"{\"data\": 3}", {"\"data\" is a number, expected a list"}},
      {std::string(kRow1) + "\n{\"id\": \"b\"}", {"line 2 (id 'b'): key \"context\" is missing"}},
      {std::string(kRow1) + "\n{\"id\": \"b\"", {"not valid JSON: line 2, column "}},
      {"[" + row + "[{\"text\": \"Tom\"}]}]",
       {"record 1 (id 'i'): key \"answer_start\" is missing"}},
      {"[" + row + "{\"text\": [\"Tom\"], \"answer_start\": []}}]",
       {"1 texts but 0 answer_starts"}},
      {"[" + row + "{\"text\": [\"Tom\"], \"answer_start\": [\"0\"]}}]",
       {"answer_start is a string, expected an integer"}},
      {"[" + row + "{\"text\": [\"Tom\"], \"answer_start\": [-1]}}]",
       {"lies outside of the context"}},
      {"[" + row + "{\"text\": [\"Tom\"], \"answer_start\": [6]}}]",
       {"(id 'i')",
        "'Tom' at answer_start 6 (3 characters) lies outside of the context of 8 characters"}},
      {"[" + row + "null}]", {"\"answers\" is null, expected an object"}},
      {R"([{"id": "i", "question": "q", "context": 3, "answers": []}])",
       {"\"context\" is a number, expected a string"}},
      {R"([{"id": ["i"], "question": "q", "context": "c", "answers": []}])",
       {"\"id\" is a list, expected a string"}},
      {fmt::format("[{},{}]", kRow1, kRow1), {"questions 1 and 2 have the same id '007'"}},
      {"[{\"id\": \"\xff\"}]", {"line 1, column 10 (byte 9): not UTF-8 (byte value 0xff)"}},
      {R"({"data": [{"title": "t", "paragraphs": [{"context": "c", "qas": [{"id": "x", "answers": []}]}]}]})",
       {"article 1, paragraph 1, question 1 (id 'x'): key \"question\" is missing"}},
      {R"({"data": [{"title": "t", "paragraphs": [{"qas": []}]}]})",
       {"article 1, paragraph 1: key \"context\" is missing, found \"qas\""}},
  };
  for (const auto& [text, parts] : cases) {
    const std::string error = error_of(text);
    EXPECT_THAT(error, HasSubstr("q.json'"));
    for (const std::string& part : parts) EXPECT_THAT(error, HasSubstr(part)) << text;
  }
}

// Keys that are not read hold what Python and pandas write there.
TEST_F(ReadQuestions, WhatIsNotReadHoldsAnything) {
  const std::string rest =
      R"("id": "i", "question": "q", "context": "Tom", "answers": {"text": [], "answer_start": []})";
  for (const char* other : {"NaN", "-Infinity", "1e999", "123456789012345678901234567890",
                            R"("\ud83d \ud83d\ude00")", R"({"text": "x", "deep": [NaN, {}]})"}) {
    for (const char* form : {"{{{1}, \"other\": {0}}}", "[{{{1}, \"other\": {0}}}]",
                             "{{\"data\": [{{{1}, \"other\": {0}}}]}}"}) {
      const QuestionSet set = read(fmt::format(fmt::runtime(form), other, rest));
      EXPECT_EQ(set[0].context, "Tom") << other;
    }
  }
  EXPECT_EQ(read(R"([{"title": NaN, )" + rest + "}]")[0].title, "");
  EXPECT_THAT(error_of(R"([{"id": NaN, "question": "q", "context": "c", "answers": []}])"),
              HasSubstr("\"id\" is a number, expected a string"));
  using namespace std::string_view_literals;
  EXPECT_THAT(error_of("\xff\xfe{\0"sv),
              HasSubstr("q.json': the text is not UTF-8: found UTF-16LE"));
}

TEST_F(ReadQuestions, TrainingDoesNotLookAtIds) {
  const std::string question = R"({"id": "x", "question": "q", "answers": []})";
  for (const std::string& twice :
       {fmt::format("[{0},{0}]", kRow1), fmt::format("{0}\n{0}\n", kRow1),
        fmt::format("{{\"data\": [{0},{0}]}}", kRow1),
        fmt::format(R"({{"data": [{{"paragraphs": [{{"context": "c", "qas": [{0},{0}]}}]}}]}})",
                    question),
        fmt::format(R"({{"data": [{{"paragraphs": [{{"context": "c", "qas": [{0}]}},
                                                   {{"context": "d", "qas": [{0}]}}]}}]}})",
                    question)}) {
    EXPECT_EQ(read(twice, {.require_id = false}).size(), 2u) << twice;
    EXPECT_THAT(error_of(twice), HasSubstr("evaluation and prediction need ids that are unique"))
        << twice;
  }
  const auto csv = folder_ / "q.csv";
  write_file(csv, "id,question,context,answers\n1,q,c,[]\n1,q,c,[]\n");
  EXPECT_EQ(read_questions(csv, {.require_id = false}).size(), 2u);
}

TEST_F(ReadQuestions, MissingFiles) {
  EXPECT_THROW(read_questions(folder_ / "absent.json"), IoError);
}

class ReportedQuestions : public testing::SharedDataTest {};

TEST_F(ReportedQuestions, AreRead) {
  const std::filesystem::path reported = testing::shared_data() / "reported";
  EXPECT_FALSE(read_questions(reported / "F07_json_nan" / "questions.jsonl").empty());
  const auto twice = reported / "F21_duplicate_ids_in_training" / "train.jsonl";
  EXPECT_FALSE(read_questions(twice, {.require_id = false}).empty());
  const auto chosen = [&](const char* name, std::vector<std::string> columns) {
    const std::vector<std::filesystem::path> files{reported / name};
    return read_rows(files, {.choose = [&](auto) { return columns; }}).size();
  };
  EXPECT_GT(chosen("F07_json_nan/train.json", {"sentence", "label"}), 1u);
  EXPECT_GT(chosen("F07_json_nan/words.json", {"tokens", "ner_tags"}), 1u);
  EXPECT_GT(chosen("F08_json_unused_object/train.json", {"sentence", "label"}), 1u);
  EXPECT_GT(chosen("F08_json_unused_object/meta.json", {"tokens", "ner_tags"}), 1u);
  EXPECT_GT(chosen("F08_json_unused_object/spans.json", {"tokens", "ner_tags"}), 1u);
}

class ReadSquad : public testing::SharedDataTest {};

TEST_F(ReadSquad, BothFilesWithEveryAnswerInItsPlace) {
  for (const auto& [name, size] :
       {std::pair{"squad1-train-head.json", 4370u}, {"xquad.en.json", 1190u}}) {
    const QuestionSet set = read_questions(testing::shared_data() / "squad" / name);
    EXPECT_EQ(set.size(), size);
    for (const QuestionExample& example : set) {
      ASSERT_EQ(example.answers.size(), 1u);
      const Answer& answer = example.answers[0];
      const auto start = static_cast<std::size_t>(answer.answer_start);
      const auto length = text::count_code_points(answer.text);
      EXPECT_EQ(text::slice_code_points(example.context, start, start + length), answer.text);
      EXPECT_FALSE(example.id.empty());
    }
  }
}

}  // namespace
}  // namespace tandem::data
