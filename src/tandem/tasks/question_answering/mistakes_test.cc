#include "tandem/tasks/question_answering/mistakes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/core/error.h"

namespace tandem::question_answering {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string cut(const Mistake& mistake, const ByteRange& range) {
  return mistake.context.substr(range.begin, range.end - range.begin);
}

class MistakesTest : public ::testing::Test {
 protected:
  MistakesTest() {
    const std::string context = "Caf\u00e9 Lund opens at ten. The ferry leaves at nine.";
    const data::Answer ten[] = {{"ten", 19}, {"at ten", 16}, {"ten", 19}};
    const data::Answer wrong_place[] = {{"nine", 3}};
    data::QuestionSet::Builder builder;
    builder.add({.id = "a", .title = "", .context = context, .question = "When?", .answers = ten});
    builder.add({.id = "b", .title = "", .context = context, .question = "Who?", .answers = {}});
    builder.add(
        {.id = "c", .title = "", .context = context, .question = "And?", .answers = wrong_place});
    questions_ = builder.finish();
  }
  std::string_view part(std::size_t question, std::string_view text) const {
    const std::string_view context = questions_[question].context;
    return context.substr(context.find(text), text.size());
  }
  data::QuestionSet questions_;
};

TEST_F(MistakesTest, AreWhatIsNotExactlyRight) {
  const Mistakes mistakes = find_mistakes(
      questions_.examples(), std::vector{part(0, "opens at ten"), part(1, "nine"), part(2, "nine")},
      true, 10);
  EXPECT_EQ(mistakes.num_questions, 3u);
  EXPECT_EQ(mistakes.num_wrong, 2u);
  ASSERT_EQ(mistakes.shown.size(), 2u);
  const Mistake& first = mistakes.shown[0];
  EXPECT_EQ(first.id, "a");
  EXPECT_EQ(cut(first, *first.predicted_at), "opens at ten");
  EXPECT_THAT(first.expected, ElementsAre("ten", "at ten"));
  EXPECT_EQ(cut(first, first.expected_at.at(0)), "ten");
  EXPECT_EQ(cut(first, first.expected_at.at(1)), "at ten");
  EXPECT_NEAR(first.f1, 0.8, 1e-12);  // two of three words, two of two
  EXPECT_THAT(mistakes.shown[1].expected, IsEmpty());
}

TEST_F(MistakesTest, PlacesThatDoNotHoldTheAnswerAreLeftOut) {
  const Mistakes mistakes = find_mistakes(
      questions_.examples(), std::vector<std::string_view>{"ten", "", "empty"}, true, 10);
  ASSERT_EQ(mistakes.shown.size(), 1u);
  EXPECT_EQ(mistakes.shown[0].id, "c");
  EXPECT_FALSE(mistakes.shown[0].predicted_at);
  EXPECT_THAT(mistakes.shown[0].expected_at, IsEmpty());
}

TEST_F(MistakesTest, ShowsTheFirstOnesOnly) {
  const std::vector<std::string_view> predictions = {"x", "x", "x"};
  const Mistakes mistakes = find_mistakes(questions_.examples(), predictions, true, 1);
  EXPECT_EQ(mistakes.num_wrong, 3u);
  EXPECT_EQ(mistakes.shown.size(), 1u);
  EXPECT_THROW(find_mistakes(questions_.examples(), std::vector<std::string_view>{"x"}, true, 1),
               InvalidArgument);
}

}  // namespace
}  // namespace tandem::question_answering
