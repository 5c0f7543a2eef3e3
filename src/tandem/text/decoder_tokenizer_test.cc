// The tokenizers of decoders: byte-level BPE with the words of GPT-2, SmolLM2, Qwen and Llama 3.
// Goldens of transformers 4.57.6 (../shared/data/golden/next/tokenizers).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/text/byte_level_words.h"
#include "tandem/text/tokenizer.h"
#include "tandem/text/tokenizer_json.h"

namespace tandem::text {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> words(WordRule rule, std::string_view text) {
  const ByteLevelWords splitter(rule);
  std::vector<std::string> found;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = splitter.end_of_word(text, at);
    found.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return found;
}

constexpr std::string_view kQwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

TEST(SplitWords, KnowsThePatternsOfQwenAndLlama) {
  EXPECT_EQ(word_rule_of(kQwenPattern), WordRule::kOneDigit);
  std::string llama(kQwenPattern);
  llama.insert(llama.find("| ?["), "{1,3}");
  EXPECT_EQ(word_rule_of(llama), WordRule::kThreeDigits);
  EXPECT_EQ(word_rule_of("\\p{N}"), std::nullopt);
  EXPECT_EQ(word_rule_of(""), std::nullopt);
}

TEST(SplitWords, AreThoseOfThePattern) {
  EXPECT_THAT(words(WordRule::kOneDigit, "It'S 1234 !!\n\n (x)  y\tz"),
              ElementsAre("It", "'S", " ", "1", "2", "3", "4", " !!\n\n", " (", "x", ")", " ", " y",
                          "\tz"));
  EXPECT_THAT(words(WordRule::kThreeDigits, "12345 6"), ElementsAre("123", "45", " ", "6"));
  EXPECT_THAT(words(WordRule::kOneDigit, " \n \n  a  "), ElementsAre(" \n \n", " ", " a", "  "));
  EXPECT_THAT(words(WordRule::kGpt2, "It'S 12"), ElementsAre("It", "'", "S", " 12"));
}

Json second_text() { return {{"Sequence", {{"id", "B"}, {"type_id", 0}}}}; }

class DecoderTokenizer : public testing::SharedDataTest {
 protected:
  static fs::path goldens() { return testing::shared_data() / "golden/next/tokenizers"; }

  static void expect_texts(const Tokenizer& tokenizer, const char* name) {
    const Json golden = parse_ordered_json(read_file(goldens() / "tokens.json"));
    Encoding encoding;
    for (std::size_t i = 0; i < golden["texts"].size(); ++i) {
      const auto text = golden["texts"][i].get<std::string>();
      tokenizer.encode(text, encoding);
      Json offsets = Json::array();
      for (const Span& span : encoding.offsets) offsets.push_back({span.begin, span.end});
      EXPECT_EQ(Json(encoding.ids), golden[name]["input_ids"][i]) << text;
      EXPECT_EQ(offsets, golden[name]["offsets"][i]) << text;
    }
  }

  // Copies the files of a golden to the folder, with a change in one of them.
  void use(const char* name, const char* file, const std::function<void(Json&)>& edit) {
    for (const auto& entry : fs::directory_iterator(goldens() / name)) {
      fs::copy_file(entry.path(), folder_ / entry.path().filename().string(),
                    fs::copy_options::overwrite_existing);
      fs::permissions(folder_ / entry.path().filename().string(), fs::perms::owner_all);
    }
    Json json = parse_ordered_json(read_file(folder_ / file));
    edit(json);
    write_file(folder_ / file, json.dump());
  }
  std::string error() {
    try {
      Tokenizer::load(folder_.path());
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  }

  testing::TemporaryFolder folder_;
};

TEST_F(DecoderTokenizer, HasTheTokensOfTransformers) {
  for (const char* name : {"smollm2", "qwen3"}) {
    const Tokenizer tokenizer = Tokenizer::load(goldens() / name);
    expect_texts(tokenizer, name);
    EXPECT_THAT(tokenizer.notes(), ::testing::IsEmpty());
    EXPECT_FALSE(tokenizer.text_frame().begin || tokenizer.text_frame().end);
  }
  const Tokenizer qwen = Tokenizer::load(goldens() / "qwen3");
  EXPECT_EQ(qwen.vocab_size(), 383u);
  EXPECT_EQ(qwen.eos_token_id(), 382);
  EXPECT_EQ(qwen.pad_token_id(), 380);
}

TEST_F(DecoderTokenizer, KeepsItsTokensWhenSaved) {
  for (const char* name : {"smollm2", "qwen3"}) {
    const Tokenizer loaded = Tokenizer::load(goldens() / name);
    loaded.save(folder_.path());
    expect_texts(Tokenizer::load(folder_.path()), name);
    const auto file = [](const fs::path& folder, const char* of) {
      return parse_ordered_json(read_file(folder / of));
    };
    for (const char* section : {"normalizer", "pre_tokenizer", "post_processor", "decoder"}) {
      EXPECT_EQ(file(folder_.path(), "tokenizer.json")[section],
                file(goldens() / name, "tokenizer.json")[section]);
    }
    EXPECT_EQ(file(folder_.path(), "tokenizer_config.json"),
              file(goldens() / name, "tokenizer_config.json"));
  }
}

TEST_F(DecoderTokenizer, KeepsTheClassesOfDecoders) {
  for (const char* name : {"GPT2Tokenizer", "Qwen2Tokenizer"}) {
    use("smollm2", "tokenizer_config.json", [&](Json& json) { json["tokenizer_class"] = name; });
    const Tokenizer tokenizer = Tokenizer::load(folder_.path());
    expect_texts(tokenizer, "smollm2");
    tokenizer.save(folder_.path());
    EXPECT_EQ(parse_ordered_json(read_file(folder_ / "tokenizer_config.json"))["tokenizer_class"],
              name);
    fs::remove(folder_ / "tokenizer.json");
    EXPECT_THAT(error(),
                HasSubstr("expected tokenizer.json, for the class is " + std::string(name)));
  }
}

TEST_F(DecoderTokenizer, PutsTheBeginningOfLlama3InFront) {
  use("qwen3", "tokenizer.json", [&](Json& json) {
    const Json begin = {{"SpecialToken", {{"id", "<|im_start|>"}, {"type_id", 0}}}};
    const Json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
    json["post_processor"] = {
        {"type", "Sequence"},
        {"processors",
         {{{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", false}},
          {{"type", "TemplateProcessing"},
           {"single", {begin, text}},
           {"pair", {begin, text, begin, second_text()}},
           {"special_tokens", Json::object()}}}}};
  });
  const Tokenizer tokenizer = Tokenizer::load(folder_.path());
  EXPECT_EQ(tokenizer.text_frame().begin, 381);
  EXPECT_FALSE(tokenizer.text_frame().end);
  EXPECT_THROW(tokenizer.sequence_template(), DataError);
  EXPECT_EQ(tokenizer.pair_template(), (SequenceTemplate{.cls_id = 381,
                                                         .sep_id = SequenceTemplate::kNoToken,
                                                         .pad_id = 380,
                                                         .num_separators = 1,
                                                         .separator_id = 381,
                                                         .second_type_id = 0}));
  expect_texts(tokenizer, "qwen3");
}

// As Qwen3-Embedding has it, which pads on the left.
TEST_F(DecoderTokenizer, PutsATokenBehind) {
  use("qwen3", "tokenizer.json", [&](Json& json) {
    const Json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
    const Json end = {{"SpecialToken", {{"id", "<|endoftext|>"}, {"type_id", 0}}}};
    json["post_processor"] = {{"type", "TemplateProcessing"},
                              {"single", {text, end}},
                              {"pair", {text, end, second_text(), end}},
                              {"special_tokens", Json::object()}};
    json["padding"] = {{"direction", "Left"}};
  });
  const Tokenizer tokenizer = Tokenizer::load(folder_.path());
  EXPECT_EQ(tokenizer.text_template(),
            (SequenceTemplate{.cls_id = SequenceTemplate::kNoToken, .sep_id = 380, .pad_id = 380}));
  EXPECT_EQ(tokenizer.text_template().special_tokens_of_one(), 1u);
  EXPECT_EQ(tokenizer.pair_template(), (SequenceTemplate{.cls_id = SequenceTemplate::kNoToken,
                                                         .sep_id = 380,
                                                         .pad_id = 380,
                                                         .num_separators = 1,
                                                         .separator_id = 380,
                                                         .second_type_id = 0}));
  std::vector<std::int32_t> ids, types;
  append_sequence(tokenizer.text_template(), std::vector<std::int32_t>{7, 8}, ids, types);
  EXPECT_EQ(ids, (std::vector<std::int32_t>{7, 8, 380}));
  EXPECT_EQ(types.size(), 3u);
}

TEST_F(DecoderTokenizer, JoinsTheTextsOfAPair) {
  const SequenceTemplate pair = Tokenizer::load(goldens() / "qwen3").pair_template();
  EXPECT_EQ(pair.special_tokens_of_pair(), 0u);
}

TEST_F(DecoderTokenizer, RefusesOtherTemplatesOfPairs) {
  const Json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const Json end = {{"SpecialToken", {{"id", "<|endoftext|>"}, {"type_id", 0}}}};
  const Json other = {{"SpecialToken", {{"id", "<|im_start|>"}, {"type_id", 0}}}};
  for (const Json& pair : {Json::array(), Json{text, second_text()}, Json{second_text(), text, end},
                           Json{text, end, other, second_text(), end}, Json{text, end, end}}) {
    use("qwen3", "tokenizer.json", [&](Json& json) {
      json["post_processor"] = {{"type", "TemplateProcessing"},
                                {"single", {text, end}},
                                {"pair", pair},
                                {"special_tokens", Json::object()}};
    });
    const Tokenizer tokenizer = Tokenizer::load(folder_.path());
    EXPECT_EQ(tokenizer.text_template().sep_id, 380);
    EXPECT_THROW(tokenizer.pair_template(), DataError) << pair;
  }
}

TEST_F(DecoderTokenizer, RefusesOtherSteps) {
  const auto error_of = [&](const std::function<void(Json&)>& edit) {
    use("qwen3", "tokenizer.json",
        [&](Json& json) { edit(json["pre_tokenizer"]["pretokenizers"]); });
    return error();
  };
  const auto refused = HasSubstr("expected ByteLevel, Digits and ByteLevel");
  EXPECT_THAT(error_of([](Json& steps) { steps[0]["pattern"]["Regex"] = "\\s+"; }), refused);
  EXPECT_THAT(error_of([](Json& steps) { steps[0]["behavior"] = "Removed"; }), refused);
  EXPECT_THAT(error_of([](Json& steps) { steps[1]["use_regex"] = true; }), refused);
  EXPECT_THAT(error_of([](Json& steps) { steps[1]["add_prefix_space"] = true; }), refused);
  EXPECT_THAT(error_of([](Json& steps) { steps.push_back(steps[0]); }), refused);
  EXPECT_THAT(error_of([](Json& steps) {
                steps[0] = {{"type", "Digits"}, {"individual_digits", false}};
              }),
              refused);
}

// transformers 5 puts a space in front, 4 does not.
TEST_F(DecoderTokenizer, RefusesASpaceInFrontOfSteps) {
  use("smollm2", "tokenizer_config.json", [](Json& json) { json["add_prefix_space"] = true; });
  EXPECT_THAT(error(), HasSubstr("add_prefix_space is true, but the pre_tokenizer"));
}

TEST_F(DecoderTokenizer, KeepsTheTemplateOfConversations) {
  use("smollm2", "tokenizer_config.json", [](Json& json) { json["chat_template"] = "{{ a }}"; });
  EXPECT_EQ(Tokenizer::load(folder_.path()).chat_template(), "{{ a }}");
  write_file(folder_ / "chat_template.jinja", "{{ b }}");
  const Tokenizer tokenizer = Tokenizer::load(folder_.path());
  EXPECT_EQ(tokenizer.chat_template(), "{{ b }}");
  fs::remove(folder_ / "chat_template.jinja");
  tokenizer.save(folder_.path());
  EXPECT_EQ(read_file(folder_ / "chat_template.jinja"), "{{ b }}");
}

}  // namespace
}  // namespace tandem::text
