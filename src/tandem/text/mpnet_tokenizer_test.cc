// MPNet's tokenizer: BERT's words and pieces between RoBERTa's special tokens. Goldens of
// transformers 4.57.6 (../shared/data/golden/next/tokenizers).
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
using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

class MpnetTokenizer : public testing::SharedDataTest {
 protected:
  static fs::path goldens() { return testing::shared_data() / "golden/next/tokenizers"; }
  static fs::path model() { return goldens() / "mpnet"; }

  void copy(std::initializer_list<const char*> names) const {
    for (const char* name : names) fs::copy_file(model() / name, folder_ / name);
  }
  void edit(const char* name, void (*change)(Json&)) const {
    Json json = parse_ordered_json(read_file(folder_ / name));
    change(json);
    write_file(folder_ / name, json.dump());
  }

  static Ids ids(const Tokenizer& tokenizer, std::string_view text) {
    Encoding encoding;
    tokenizer.encode(text, encoding);
    return encoding.ids;
  }

  // Ids and offsets of every text, special tokens included.
  static void expect_texts(const Tokenizer& tokenizer) {
    const Json golden = parse_ordered_json(read_file(goldens() / "tokens.json"));
    const Json& of_model = golden["mpnet"];
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
    Ids sequence;
    std::vector<std::int32_t> types;
    append_sequence(frame, ids(tokenizer, pair[0].get<std::string>()),
                    ids(tokenizer, pair[1].get<std::string>()), sequence, types);
    EXPECT_EQ(Json(sequence), of_model["pair"]["input_ids"]);
    EXPECT_THAT(types, ::testing::Each(0));
  }

  testing::TemporaryFolder folder_;
};

TEST_F(MpnetTokenizer, HasTheTokensOfTransformers) {
  const Tokenizer tokenizer = Tokenizer::load(model());
  expect_texts(tokenizer);
  EXPECT_THAT(tokenizer.notes(), ::testing::IsEmpty());
  EXPECT_EQ(tokenizer.vocab_size(), 416u);
  EXPECT_EQ(tokenizer.model_max_length(), 64u);
  EXPECT_EQ(tokenizer.unk_token_id(), 4);
  EXPECT_EQ(tokenizer.sequence_template().pad_id, 1);
}

TEST_F(MpnetTokenizer, KeepsItsTokensWhenSaved) {
  Tokenizer::load(model()).save(folder_.path());
  expect_texts(Tokenizer::load(folder_.path()));
  const Json config = parse_ordered_json(read_file(folder_ / "tokenizer_config.json"));
  EXPECT_EQ(config["tokenizer_class"], "MPNetTokenizer");
  EXPECT_EQ(config["bos_token"], "<s>");
  EXPECT_EQ(config["added_tokens_decoder"]["415"]["lstrip"], true);
}

// The class is config.json's where tokenizer_config.json has none.
TEST_F(MpnetTokenizer, IsChosenByTheTypeOfTheModel) {
  copy({"tokenizer.json"});
  write_file(folder_ / "config.json", R"({"model_type": "mpnet"})");
  expect_texts(Tokenizer::load(folder_.path()));
}

// Without tokenizer.json a mask keeps the blank before it in its offsets: the frame that
// transformers builds of a vocabulary does not trim.
TEST_F(MpnetTokenizer, IsReadFromAVocabulary) {
  copy({"vocab.txt", "tokenizer_config.json"});
  const Tokenizer tokenizer = Tokenizer::load(folder_.path());
  EXPECT_EQ(ids(tokenizer, "the <mask> sea"), (Ids{390, 415, 378}));
  EXPECT_EQ(ids(tokenizer, "the <MASK> sea"), (Ids{390, 4, 28, 129, 62, 4, 378}));
  EXPECT_EQ(ids(tokenizer, "a [UNK] b [unk]"), (Ids{16, 4, 17, 4, 36, 65, 62, 4}));
  EXPECT_EQ(ids(tokenizer, "<S> x </s>"), (Ids{4, 34, 4, 39, 2}));
  EXPECT_EQ(ids(tokenizer, "<unk> q"), (Ids{4, 36, 65, 62, 4, 32}));
  EXPECT_EQ(tokenizer.sequence_template(),
            (SequenceTemplate{
                .cls_id = 0, .sep_id = 2, .pad_id = 1, .num_separators = 2, .second_type_id = 0}));
  Encoding encoding;
  tokenizer.encode("x  <mask>  y", encoding);
  EXPECT_THAT(encoding.offsets, ElementsAre(Span{0, 1}, Span{1, 9}, Span{11, 12}));
  tokenizer.save(folder_.path());
  const Json saved = parse_ordered_json(read_file(folder_ / "tokenizer.json"));
  EXPECT_EQ(saved["post_processor"]["type"], "TemplateProcessing");
  EXPECT_EQ(saved["post_processor"]["pair"].size(), 6u);
  EXPECT_EQ(ids(Tokenizer::load(folder_.path()), "the <mask> sea"), (Ids{390, 415, 378}));
}

TEST_F(MpnetTokenizer, TrimsOffsetsAsThePostProcessorDoes) {
  copy({"tokenizer.json", "tokenizer_config.json"});
  const auto mask = [&] {
    Encoding encoding;
    Tokenizer::load(folder_.path()).encode("x  <mask>  y", encoding);
    return encoding.offsets.at(1);
  };
  EXPECT_EQ(mask(), (Span{3, 9}));
  edit("tokenizer.json", [](Json& json) { json["post_processor"]["trim_offsets"] = false; });
  EXPECT_EQ(mask(), (Span{1, 9}));
}

// Settings of tokenizer_config.json win over the normalizer, but not over its rule for ideographs:
// MPNetTokenizerFast of transformers 4.
TEST_F(MpnetTokenizer, TakesLowerCaseFromItsSettings) {
  copy({"tokenizer.json", "tokenizer_config.json"});
  edit("tokenizer_config.json", [](Json& json) {
    json["do_lower_case"] = false;
    json["tokenize_chinese_chars"] = false;
  });
  const Tokenizer tokenizer = Tokenizer::load(folder_.path());
  EXPECT_EQ(ids(tokenizer, "sea SEA"), (Ids{378, 4}));
  EXPECT_EQ(ids(tokenizer, "\u6771\u4eac").size(), 2u) << "each ideograph is a word";
}

TEST_F(MpnetTokenizer, NamesTheTokensThatAVocabularyLacks) {
  write_file(folder_ / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n");
  write_file(folder_ / "config.json", R"({"model_type": "mpnet"})");
  try {
    Tokenizer::load(folder_.path());
    FAIL() << "expected DataError";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("[UNK], <s>, </s> and <pad>"));
  }
}

}  // namespace
}  // namespace tandem::text
