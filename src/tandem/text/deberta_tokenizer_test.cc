// DeBERTa-v3's tokenizer: SentencePiece's unigram with the ids of its pieces, between BERT's
// special tokens. Goldens of transformers 4.57.6 (../shared/data/golden/next/tokenizers).
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
using ::testing::HasSubstr;
using DebertaIds = std::vector<std::int32_t>;

class DebertaTokenizer : public testing::SharedDataTest {
 protected:
  static fs::path goldens() { return testing::shared_data() / "golden/next/tokenizers"; }
  static fs::path model() { return goldens() / "deberta-v3"; }

  void copy(std::initializer_list<const char*> names) const {
    for (const char* name : names) fs::copy_file(model() / name, folder_ / name);
  }

  static DebertaIds ids(const Tokenizer& tokenizer, std::string_view text) {
    Encoding encoding;
    tokenizer.encode(text, encoding);
    return encoding.ids;
  }

  // Ids and offsets of every text, special tokens included.
  static void expect_texts(const Tokenizer& tokenizer) {
    const Json golden = parse_ordered_json(read_file(goldens() / "tokens.json"));
    const Json& of_model = golden["deberta-v3"];
    const SequenceTemplate& frame = tokenizer.sequence_template();
    Encoding encoding;
    for (std::size_t i = 0; i < golden["texts"].size(); ++i) {
      const auto text = golden["texts"][i].get<std::string>();
      tokenizer.encode(text, encoding);
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
    DebertaIds sequence;
    std::vector<std::int32_t> types;
    append_sequence(frame, ids(tokenizer, pair[0].get<std::string>()),
                    ids(tokenizer, pair[1].get<std::string>()), sequence, types);
    EXPECT_EQ(Json(sequence), of_model["pair"]["input_ids"]);
    EXPECT_EQ(Json(types), of_model["pair"]["token_type_ids"]);
  }

  testing::TemporaryFolder folder_;
};

TEST_F(DebertaTokenizer, HasTheTokensOfTransformers) {
  const Tokenizer tokenizer = Tokenizer::load(model());
  expect_texts(tokenizer);
  EXPECT_THAT(tokenizer.notes(), ::testing::IsEmpty());
  EXPECT_EQ(tokenizer.model_max_length(), 128u);
  EXPECT_EQ(tokenizer.unk_token_id(), 3);
  EXPECT_EQ(tokenizer.mask_token_id(), 220);
  EXPECT_EQ(tokenizer.sequence_template().pad_id, 0);
}

TEST_F(DebertaTokenizer, KeepsItsTokensWhenSaved) {
  Tokenizer::load(model()).save(folder_.path());
  expect_texts(Tokenizer::load(folder_.path()));
  EXPECT_EQ(read_file(folder_ / "spm.model"), read_file(model() / "spm.model"));
  const Json config = parse_ordered_json(read_file(folder_ / "tokenizer_config.json"));
  EXPECT_EQ(config["tokenizer_class"], "DebertaV2Tokenizer");
  EXPECT_EQ(parse_ordered_json(read_file(folder_ / "tokenizer.json")),
            parse_ordered_json(read_file(model() / "tokenizer.json")));
}

// The files of microsoft/deberta-v3-base: the class is that of the kind of model, and [MASK] is in
// no file.
TEST_F(DebertaTokenizer, IsReadFromTheSentencePieceModel) {
  copy({"spm.model"});
  write_file(folder_ / "config.json", R"({"model_type": "deberta-v2"})");
  write_file(folder_ / "tokenizer_config.json", R"({"do_lower_case": false, "vocab_type": "spm"})");
  const Tokenizer tokenizer = Tokenizer::load(folder_.path());
  expect_texts(tokenizer);
  EXPECT_THAT(tokenizer.notes(), ::testing::IsEmpty());
  EXPECT_EQ(tokenizer.mask_token_id(), 220);
  const testing::TemporaryFolder saved;
  tokenizer.save(saved.path());
  expect_texts(Tokenizer::load(saved.path()));
  const Json made = parse_ordered_json(read_file(saved / "tokenizer.json"));
  const Json want = parse_ordered_json(read_file(model() / "tokenizer.json"));
  for (const char* section :
       {"added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder"})
    EXPECT_EQ(made[section], want[section]) << section;
  EXPECT_EQ(made["model"]["unk_id"], want["model"]["unk_id"]);
  EXPECT_EQ(made["model"]["vocab"].size(), want["model"]["vocab"].size());
}

TEST_F(DebertaTokenizer, AddedTokensOfOlderFilesKeepTheirIds) {
  copy({"spm.model", "added_tokens.json", "special_tokens_map.json"});
  write_file(folder_ / "config.json", R"({"model_type": "deberta-v2"})");
  expect_texts(Tokenizer::load(folder_.path()));
}

// transformers 5 saves another normalizer, without the table of replacements.
TEST(DebertaOfTransformers5, KeepsItsNormalizerWhenSaved) {
  const fs::path model = fs::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/tokenizers/deberta_5";
  const testing::TemporaryFolder saved;
  Tokenizer::load(model).save(saved.path());
  EXPECT_EQ(parse_ordered_json(read_file(saved / "tokenizer.json")),
            parse_ordered_json(read_file(model / "tokenizer.json")));
  EXPECT_FALSE(fs::exists(saved / "spm.model"));
  const Tokenizer tokenizer = Tokenizer::load(saved.path());
  EXPECT_THAT(tokenizer.notes(), ::testing::IsEmpty());
  Encoding composed, given;
  tokenizer.encode("\u2003\na\u0301\t,\n", composed);
  tokenizer.encode(" \u00e1 ,", given);
  EXPECT_EQ(composed.ids, given.ids);
  EXPECT_EQ(composed.offsets.back().end, 6u);
  EXPECT_EQ(given.offsets.back().end, 4u);
}

TEST(DebertaOfTransformers5, RefusesLowerCase) {
  const fs::path model = fs::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/tokenizers/deberta_5";
  const testing::TemporaryFolder folder;
  Json file = parse_ordered_json(read_file(model / "tokenizer.json"));
  file["normalizer"]["normalizers"][1] = {{"type", "Lowercase"}};
  write_file(folder / "tokenizer.json", file.dump());
  try {
    Tokenizer::load(folder.path());
    FAIL() << "accepted";
  } catch (const DataError& problem) {
    EXPECT_THAT(problem.what(), HasSubstr("the normalizer is \"Lowercase\", expected"));
  }
}

TEST_F(DebertaTokenizer, RefusesWhatItDoesNotHave) {
  copy({"spm.model"});
  write_file(folder_ / "config.json", R"({"model_type": "deberta-v2"})");
  const auto error = [&](const char* config) -> std::string {
    write_file(folder_ / "tokenizer_config.json", config);
    try {
      Tokenizer::load(folder_.path());
    } catch (const DataError& problem) {
      return problem.what();
    }
    return "";
  };
  EXPECT_EQ(error("{}"), "");
  EXPECT_THAT(error(R"({"do_lower_case": true})"), HasSubstr("do_lower_case is true"));
  EXPECT_THAT(error(R"({"split_by_punct": true})"),
              HasSubstr("split_by_punct is true; expected false"));
  fs::remove(folder_ / "spm.model");
  EXPECT_THAT(error("{}"), HasSubstr("expected tokenizer.json or spm.model"));
}

}  // namespace
}  // namespace tandem::text
