#include "tandem/text/chat/pair_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/decoder_tokenizer.h"
#include "support/test_support.h"
#include "tandem/core/error.h"

namespace tandem::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

constexpr const char* kQuery =
    R"({{ messages | selectattr("role", "eq", "query") | map(attribute="content") | first }})";
constexpr const char* kDocument =
    R"({{ messages | selectattr("role", "eq", "document") | map(attribute="content") | first }})";

class PairPromptTest : public ::testing::Test {
 protected:
  Tokenizer tokenizer(const std::string& chat_template) const {
    testing::write_decoder_tokenizer(folder_.path(), chat_template);
    return Tokenizer::load(folder_.path());
  }
  std::string error_of(const std::string& chat_template) const {
    try {
      const PairPrompt prompt(tokenizer(chat_template), "");
    } catch (const DataError& error) {
      return error.what();
    }
    return "no error";
  }

  testing::TemporaryFolder folder_;
};

TEST_F(PairPromptTest, JoinsAQueryAndAPassage) {
  const Tokenizer read = tokenizer(std::string(
      "{% for m in messages %}{{ m.role }}: {{ m.content }};{% endfor %}<|endoftext|>"));
  EXPECT_EQ(PairPrompt(read, "").text("a", "{{ b }}"), "query: a;document: {{ b }};<|endoftext|>");
  const PairPrompt with(read, "judge");
  EXPECT_EQ(with.text("a", ""), "system: judge;query: a;document: ;<|endoftext|>");
}

TEST_F(PairPromptTest, HasTheFormatOfTheModel) {
  const Tokenizer read = tokenizer(
      "{% for m in messages %}{{ m.content[0].text }};{% endfor %}"
      "{% if add_generation_prompt %}answer: {% endif %}");
  const PairPrompt prompt(read, "judge", {.structured = true, .add_generation_prompt = true});
  EXPECT_EQ(prompt.text("a", "b"), "judge;a;b;answer: ");
  EXPECT_FALSE(prompt.end().empty());
  EXPECT_TRUE(PairPrompt(read, "", {.structured = true, .keeps_end = false}).end().empty());
}

// The tokens behind a passage, whatever the passage is.
TEST_F(PairPromptTest, KnowsTheEnd) {
  const Tokenizer read = tokenizer(std::string(kQuery) + kDocument + "<|endoftext|>[SEP]");
  const PairPrompt prompt(read, "");
  const std::span<const std::int32_t> end = prompt.end();
  ASSERT_EQ(end.size(), 2u);
  EXPECT_EQ(read.token(end[0]), "<|endoftext|>");
  EXPECT_EQ(read.token(end[1]), "[SEP]");
  EXPECT_TRUE(PairPrompt(tokenizer(std::string(kQuery) + kDocument), "").end().empty());
}

TEST_F(PairPromptTest, RefusesATemplateWithoutBothTexts) {
  EXPECT_THAT(error_of(""), HasSubstr("no chat template"));
  EXPECT_THAT(error_of(kDocument), HasSubstr("writes no query"));
  EXPECT_THAT(error_of(kQuery), HasSubstr("writes no document"));
  EXPECT_THAT(error_of("{{ raise_exception('no roles') }}"), HasSubstr("no roles"));
}

TEST(CutButKeepEnd, KeepsTheLastTokens) {
  const auto cut = [](std::size_t room, const Ids& end) {
    Ids ids = {1, 2, 3, 4, 5};
    cut_but_keep_end(room, end, ids);
    return ids;
  };
  EXPECT_THAT(cut(5, {8, 9}), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(cut(4, {8, 9}), ElementsAre(1, 2, 8, 9));
  EXPECT_THAT(cut(4, {}), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(cut(1, {8, 9}), ElementsAre(9));
}

}  // namespace
}  // namespace tandem::text
