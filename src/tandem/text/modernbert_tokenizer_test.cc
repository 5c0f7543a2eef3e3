// ModernBERT's tokenizer: byte-level BPE of texts in NFC, with runs of blanks as added tokens.
// Goldens of transformers 4.57.6 (../shared/data/golden/next/tokenizers).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/text/tokenizer.h"
#include "tandem/text/tokenizer_json.h"

namespace tandem::text {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using Ids = std::vector<std::int32_t>;

fs::path own_model() {
  return fs::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/tokenizers/modernbert";
}

Encoding encode(const Tokenizer& tokenizer, std::string_view text) {
  Encoding encoding;
  tokenizer.encode(text, encoding);
  return encoding;
}

class ModernBertTokenizer : public testing::SharedDataTest {
 protected:
  static fs::path goldens() { return testing::shared_data() / "golden/next/tokenizers"; }

  // Ids and offsets of every text, special tokens included.
  static void expect_texts(const Tokenizer& tokenizer) {
    const Json golden = parse_ordered_json(read_file(goldens() / "tokens.json"));
    const Json& of_model = golden["modernbert"];
    const SequenceTemplate& frame = tokenizer.sequence_template();
    for (std::size_t i = 0; i < golden["texts"].size(); ++i) {
      const auto text = golden["texts"][i].get<std::string>();
      const Encoding encoding = encode(tokenizer, text);
      Json got = {frame.cls_id}, offsets = {{0, 0}};
      for (std::size_t t = 0; t < encoding.ids.size(); ++t) {
        got.push_back(encoding.ids[t]);
        offsets.push_back({encoding.offsets[t].begin, encoding.offsets[t].end});
      }
      got.push_back(frame.sep_id);
      offsets.push_back({0, 0});
      EXPECT_EQ(got, of_model["input_ids"][i]) << text;
      EXPECT_EQ(offsets, of_model["offsets"][i]) << text;
    }
    const Json& pair = golden["pairs"][0];
    Ids sequence;
    std::vector<std::int32_t> types;
    append_sequence(frame, encode(tokenizer, pair[0].get<std::string>()).ids,
                    encode(tokenizer, pair[1].get<std::string>()).ids, sequence, types);
    EXPECT_EQ(Json(sequence), of_model["pair"]["input_ids"]);
    EXPECT_THAT(types, ::testing::Each(0));
  }

  testing::TemporaryFolder folder_;
};

TEST_F(ModernBertTokenizer, HasTheTokensOfTransformers) {
  const Tokenizer tokenizer = Tokenizer::load(goldens() / "modernbert");
  expect_texts(tokenizer);
  EXPECT_THAT(tokenizer.notes(), ::testing::IsEmpty());
  EXPECT_EQ(tokenizer.vocab_size(), 432u);
  EXPECT_EQ(tokenizer.sequence_template().pad_id, 430);
  EXPECT_EQ(tokenizer.mask_token_id(), 431);
}

TEST_F(ModernBertTokenizer, KeepsItsTokensWhenSaved) {
  Tokenizer::load(goldens() / "modernbert").save(folder_.path());
  expect_texts(Tokenizer::load(folder_.path()));
  const Json saved = parse_ordered_json(read_file(folder_ / "tokenizer.json"));
  EXPECT_EQ(saved["normalizer"], Json({{"type", "NFC"}}));
}

// The class is config.json's where tokenizer_config.json has none.
TEST_F(ModernBertTokenizer, IsChosenByTheTypeOfTheModel) {
  fs::copy_file(own_model() / "tokenizer.json", folder_ / "tokenizer.json");
  Json config = parse_ordered_json(read_file(own_model() / "tokenizer_config.json"));
  config.erase("tokenizer_class");
  write_file(folder_ / "tokenizer_config.json", config.dump());
  write_file(folder_ / "config.json", R"({"model_type": "modernbert"})");
  expect_texts(Tokenizer::load(folder_.path()));
}

// Runs of blanks are tokens of the normalized text, and the mask takes the blank before it.
TEST(ModernBertBlanks, AreTokens) {
  const Tokenizer tokenizer = Tokenizer::load(own_model());
  EXPECT_THAT(encode(tokenizer, "a    b").ids, ElementsAre(::testing::_, 424, ::testing::_));
  EXPECT_EQ(encode(tokenizer, std::string(11, ' ')).ids, (Ids{420, 425}));
  const Encoding mask = encode(tokenizer, "a [MASK]b");
  EXPECT_EQ(mask.ids[1], 431);
  EXPECT_EQ(mask.offsets[1], (Span{1, 8}));
}

// A composed character has the position of its first part, and the next character the position
// behind all of its parts.
TEST(ModernBertNfc, PlacesAreThoseOfTheOriginal) {
  const Tokenizer tokenizer = Tokenizer::load(own_model());
  const Encoding composed = encode(tokenizer, "e\u0301,");
  const Encoding given = encode(tokenizer, "\u00e9,");
  EXPECT_EQ(composed.ids, given.ids);
  EXPECT_EQ(composed.offsets.front(), (Span{0, 1}));
  EXPECT_EQ(composed.offsets.back(), (Span{2, 3}));
  EXPECT_EQ(given.offsets.back(), (Span{1, 2}));
  EXPECT_EQ(encode(tokenizer, "\u1100\u1161\u11a8").ids, encode(tokenizer, "\uac01").ids);
  // Marks in another order, one of which the letter takes.
  EXPECT_EQ(encode(tokenizer, "a\u0323\u0302").ids, encode(tokenizer, "\u1ead").ids);
}

}  // namespace
}  // namespace tandem::text
