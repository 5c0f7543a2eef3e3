// Which rules apply to the files of a tokenizer: classes of transformers, tokenizer.json, settings.
// Expected tokens were written down from transformers 4.57.6 and 5.24.0 (where they differ, the
// test states which is followed).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/text/tokenizer.h"
#include "tandem/text/tokenizer_json.h"

namespace tandem::text {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Edit = std::function<void(Json&)>;

constexpr std::string_view kMark = "\xef\xbb\xbf";

// A copy of a tokenizer's files, to be changed.
class TokenizerClasses : public ::testing::Test {
 protected:
  void use(const fs::path& source) const {
    for (const auto& entry : fs::directory_iterator(folder_.path())) fs::remove(entry.path());
    for (const auto& entry : fs::directory_iterator(source)) {
      const fs::path name = entry.path().filename();
      if (name.extension() == ".safetensors" || name.extension() == ".model") continue;
      fs::copy_file(entry.path(), folder_ / name.native(), fs::copy_options::overwrite_existing);
    }
  }
  void use_demo() const { use(fs::path(TANDEM_SOURCE_DIR) / "examples/demo/model"); }
  void use_roberta() const {
    use(fs::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/tokenizers/roberta");
  }
  void edit(const char* name, const Edit& change) const {
    const fs::path path = folder_ / name;
    Json json = fs::exists(path) ? parse_ordered_json(read_file(path)) : Json::object();
    change(json);
    write_file(path, json.dump());
  }
  // A class in tokenizer_config.json, with further settings; a null removes one.
  void configure(const char* name, const Json& settings = Json::object()) const {
    edit("tokenizer_config.json", [&](Json& config) {
      config["tokenizer_class"] = name;
      for (const auto& [key, value] : settings.items()) config[key] = value;
    });
  }
  void normalizer(const char* key, const Json& value) const {
    edit("tokenizer.json", [&](Json& json) { json["normalizer"][key] = value; });
  }

  Tokenizer load(const TokenizerOptions& options = {}) const {
    return Tokenizer::load(folder_.path(), options);
  }
  std::string error() const {
    try {
      load();
    } catch (const DataError& error) {
      return error.what();
    }
    return "no error";
  }
  std::string tokens(std::string_view text, const TokenizerOptions& options = {}) const {
    const Tokenizer tokenizer = load(options);
    Encoding encoding;
    tokenizer.encode(text, encoding);
    std::string out;
    for (const std::int32_t id : encoding.ids)
      out.append(out.empty() ? "" : " ").append(tokenizer.token(id));
    return out;
  }

  static constexpr std::string_view kText = "The Ship\x01 sails caf\u00e9 \u4e2d";
  static constexpr std::string_view kLowered = "the s ##h ##i ##p sails c ##a ##f ##e [UNK]";
  static constexpr std::string_view kAsItIs = "[UNK] [UNK] sails [UNK] [UNK]";

  testing::TemporaryFolder folder_;
};

TEST_F(TokenizerClasses, TheGeneralClassFollowsTokenizerJson) {
  use_demo();
  normalizer("lowercase", false);
  for (const char* name : {"TokenizersBackend", "PreTrainedTokenizerFast"}) {
    configure(name);
    EXPECT_EQ(tokens(kText), kAsItIs) << name;
  }
  for (const char* name :
       {"BertTokenizer", "BertTokenizerFast", "DistilBertTokenizer", "ElectraTokenizerFast",
        "MobileBertTokenizer", "ConvBertTokenizer", "LayoutLMTokenizer", "SqueezeBertTokenizer"}) {
    configure(name);
    EXPECT_EQ(tokens(kText), kLowered) << name;
  }
}

// Every other class has the mask of its family.
TEST_F(TokenizerClasses, TheGeneralClassHasNoMaskUnlessTheFilesNameOne) {
  for (const char* name : {"TokenizersBackend", "PreTrainedTokenizerFast"}) {
    use_demo();
    configure(name);
    const auto mask = load().mask_token_id();
    EXPECT_TRUE(mask.has_value()) << name;
    const auto drop = [](Json& json) { json.erase("mask_token"); };
    edit("tokenizer_config.json", drop);
    EXPECT_EQ(load().mask_token_id(), std::nullopt) << name;
    const testing::TemporaryFolder saved;
    load().save(saved.path());
    EXPECT_EQ(Tokenizer::load(saved.path()).mask_token_id(), std::nullopt) << name;
    configure("BertTokenizer");
    EXPECT_EQ(load().mask_token_id(), mask);
  }
}

// F02 of the reported inputs.
TEST_F(TokenizerClasses, ReportedTokenizersBackend) {
  const fs::path reported = testing::shared_data() / "reported" / "F02_tokenizers_backend";
  if (!fs::exists(reported)) GTEST_SKIP() << "needs the shared test data, which is absent";
  use_demo();
  fs::remove(folder_ / "vocab.txt");
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
    fs::copy_file(reported / name, folder_ / name, fs::copy_options::overwrite_existing);
  EXPECT_EQ(tokens("The Ship sails"), "[UNK] [UNK] sails");
}

TEST_F(TokenizerClasses, OtherClassesAreRefusedByName) {
  for (const bool with_json : {true, false}) {
    for (const char* name : {"BertJapaneseTokenizer", "BloomTokenizer", "BloomTokenizerFast",
                             "CamembertTokenizer", "FunnelTokenizerFast", "PreTrainedTokenizer",
                             "bertTokenizer", "PreTrainedTokenizerFastFast", "NoSuchTokenizer"}) {
      use_demo();
      if (!with_json) fs::remove(folder_ / "tokenizer.json");
      configure(name);
      EXPECT_THAT(
          error(),
          AllOf(HasSubstr("tokenizer_config.json': tokenizer_class is " + std::string(name) + ","),
                HasSubstr("expected one of PreTrainedTokenizerFast, TokenizersBackend")));
      edit("tokenizer_config.json", [](Json& config) { config.erase("tokenizer_class"); });
      edit("config.json", [&](Json& config) { config["tokenizer_class"] = name; });
      EXPECT_THAT(error(),
                  HasSubstr("/config.json': tokenizer_class is " + std::string(name) + ","));
    }
  }
  use_demo();
  edit("tokenizer_config.json", [](Json& config) { config.erase("tokenizer_class"); });
  edit("config.json", [](Json& config) { config["model_type"] = "funnel"; });
  EXPECT_THAT(error(), HasSubstr("/config.json': model_type is funnel, a tokenizer whose rules"));
}

TEST_F(TokenizerClasses, TheClassDecidesWhichVocabularyIsRead) {
  use_demo();
  fs::remove(folder_ / "tokenizer.json");
  configure("RobertaTokenizer");
  EXPECT_THAT(error(),
              HasSubstr("expected tokenizer.json or vocab.json, for the class is Roberta"));
  configure("TokenizersBackend");
  EXPECT_THAT(error(), HasSubstr("expected tokenizer.json, for the class is TokenizersBackend"));
  configure("BertTokenizerFast");
  write_file(folder_ / "vocab.json", "{}");
  EXPECT_EQ(tokens("sails"), "sails");
}

// transformers 4 reads tokenizer.json as it is; 5 fails.
TEST_F(TokenizerClasses, AClassOfAnotherModelLeavesTokenizerJsonAlone) {
  use_roberta();
  configure("BertTokenizer");
  EXPECT_THAT(load().notes(),
              Contains(HasSubstr("BertTokenizer is for WordPiece, but tokenizer.json holds BPE")));
}

TEST_F(TokenizerClasses, DifferencesBetweenVersionsAreReported) {
  use_demo();
  EXPECT_THAT(load().notes(), IsEmpty());
  normalizer("clean_text", false);
  EXPECT_EQ(tokens(kText), "the [UNK] sails c ##a ##f ##e [UNK]") << "transformers 4";
  EXPECT_THAT(load().notes(), Contains(HasSubstr("tokenizer.json has clean_text = false")));

  use_demo();
  edit("tokenizer.json", [](Json& json) { json["model"]["max_input_chars_per_word"] = 3; });
  EXPECT_EQ(tokens(kText), "the [UNK] [UNK] [UNK] [UNK]") << "transformers 4";
  EXPECT_THAT(load().notes(), Contains(HasSubstr("max_input_chars_per_word = 3")));

  use_demo();
  edit("tokenizer.json", [](Json& json) { json["normalizer"] = nullptr; });
  EXPECT_EQ(tokens(kText), kLowered) << "transformers 5; 4 does not read the file";
  configure("PreTrainedTokenizerFast");
  EXPECT_THAT(load().notes(), Contains(HasSubstr("no model_input_names")));
}

TEST_F(TokenizerClasses, ABlankInFrontOfBytePairs) {
  const auto with = [&](const char* name, bool file, const Json& config) {
    use_roberta();
    edit("tokenizer.json", [&](Json& json) { json["pre_tokenizer"]["add_prefix_space"] = file; });
    edit("tokenizer_config.json", [](Json& json) { json.erase("add_prefix_space"); });
    configure(name, config);
    return tokens("xy").starts_with("\u0120");
  };
  const Json none = Json::object(), yes = {{"add_prefix_space", true}},
             no = {{"add_prefix_space", false}};
  for (const bool file : {true, false}) {
    for (const Json& config : {none, yes, no}) {
      EXPECT_EQ(with("TokenizersBackend", file, config), file);
      EXPECT_EQ(with("PreTrainedTokenizerFast", file, config), file) << "transformers 5";
      EXPECT_EQ(load().notes().empty(), file == (config == yes)) << config;
      for (const char* name : {"RobertaTokenizer", "RobertaTokenizerFast", "BartTokenizer",
                               "LongformerTokenizerFast"}) {
        EXPECT_EQ(with(name, file, config), config == yes) << name;
      }
    }
  }
}

TEST_F(TokenizerClasses, TokenTypesAreThoseOfTheClassAndItsInputs) {
  use_demo();
  const auto type = [&](const char* name, const Json& settings = Json::object()) {
    configure(name, settings);
    return load().sequence_template().second_type_id;
  };
  const Json with = {{"model_input_names", {"input_ids", "token_type_ids", "attention_mask"}}};
  const Json without = {{"model_input_names", {"input_ids", "attention_mask"}}};
  EXPECT_EQ(type("BertTokenizer"), 1);
  EXPECT_EQ(type("DistilBertTokenizer"), 0);
  EXPECT_EQ(type("PreTrainedTokenizerFast"), 1) << "transformers 4";
  EXPECT_EQ(type("TokenizersBackend"), 0);
  EXPECT_EQ(type("BertTokenizer", without), 0);
  EXPECT_EQ(type("DistilBertTokenizer", with), 1);
  EXPECT_EQ(type("TokenizersBackend", with), 1);
  const testing::TemporaryFolder out;
  configure("DistilBertTokenizer", without);
  load().save(out.path());
  const Json saved = parse_ordered_json(read_file(out / "tokenizer.json"));
  EXPECT_EQ(saved["post_processor"],
            parse_ordered_json(read_file(folder_ / "tokenizer.json"))["post_processor"]);
}

TEST_F(TokenizerClasses, FurtherSpecialTokensAreFoundInTexts) {
  for (const Json& settings :
       {Json{{"additional_special_tokens", {"[E1]"}}}, Json{{"extra_special_tokens", {"[E1]"}}},
        Json{{"extra_special_tokens", {{"entity", "[E1]"}}}},
        Json{{"additional_special_tokens", Json::array({{{"content", "[E1]"}}})}}}) {
    use_roberta();
    const std::size_t before = load().vocab_size();
    configure("RobertaTokenizer", settings);
    const Tokenizer tokenizer = load();
    Encoding encoding;
    tokenizer.encode("x[E1]", encoding);
    EXPECT_EQ(tokenizer.token(encoding.ids.back()), "[E1]") << settings;
    EXPECT_EQ(encoding.ids.back(), static_cast<std::int32_t>(before)) << "the next free id";
    EXPECT_EQ(tokenizer.vocab_size(), before + 1);
  }
  use_demo();
  configure("BertTokenizer", {{"additional_special_tokens", {"sails"}}});
  EXPECT_EQ(tokens("xsails"), "x sails") << "a token of the vocabulary keeps its id";
  configure("BertTokenizer", {{"additional_special_tokens", "sails"}});
  EXPECT_THAT(error(), HasSubstr("\"additional_special_tokens\" has the wrong type"));
}

// The flags in tokenizer_config.json win over those in tokenizer.json.
TEST_F(TokenizerClasses, FlagsOfAddedTokens) {
  const auto takes_blank = [&](bool file, const Json& settings) {
    use_roberta();
    edit("tokenizer.json", [&](Json& json) {
      for (Json& token : json["added_tokens"])
        if (token["content"] == "<mask>") token["lstrip"] = file;
    });
    edit("tokenizer_config.json", [](Json& json) {
      json.erase("added_tokens_decoder");
      json["mask_token"] = "<mask>";
    });
    write_file(folder_ / "special_tokens_map.json", "{}");
    configure("PreTrainedTokenizerFast", settings);
    const Tokenizer tokenizer = load();
    Encoding encoding;
    tokenizer.encode("x <mask>", encoding);
    EXPECT_EQ(tokenizer.token(encoding.ids.back()), "<mask>");
    return encoding.ids.size() == 2;  // else the blank is a token
  };
  const Json mask = {{"content", "<mask>"}, {"lstrip", true}, {"special", true}};
  EXPECT_FALSE(takes_blank(false, Json::object()));
  EXPECT_TRUE(takes_blank(true, Json::object()));
  EXPECT_TRUE(takes_blank(false, {{"mask_token", mask}}));
  EXPECT_TRUE(takes_blank(false, {{"added_tokens_decoder", {{"699", mask}}}}))
      << "the id is tokenizer.json's";
}

TEST_F(TokenizerClasses, SettingsThatChangeTokensAreReadOrRefused) {
  const auto with = [&](const Json& settings) {
    use_demo();
    configure("BertTokenizer", settings);
    return error();
  };
  EXPECT_THAT(with({{"truncation_side", "left"}}),
              HasSubstr("truncation_side is \"left\"; expected \"right\""));
  EXPECT_THAT(with({{"split_special_tokens", true}}),
              HasSubstr("split_special_tokens is true; expected false"));
  EXPECT_THAT(with({{"from_slow", true}}), HasSubstr("from_slow is true; expected false"));
  EXPECT_THAT(with({{"sp_model_kwargs", {{"enable_sampling", true}}}}),
              HasSubstr("sp_model_kwargs is {\"enable_sampling\":true}; expected {}"));
  EXPECT_THAT(with({{"fast_tokenizer_files", {"tokenizer.json", "tokenizer.4.0.0.json"}}}),
              HasSubstr("fast_tokenizer_files is"));
  EXPECT_EQ(with({{"truncation_side", "right"}, {"do_basic_tokenize", false}, {"errors", "x"}}),
            "no error");
  use_demo();
  edit("tokenizer.json", [](Json& json) {
    json["truncation"] = {{"direction", "Left"}, {"max_length", 8}, {"stride", 0}};
  });
  EXPECT_THAT(error(), HasSubstr("direction is \"Left\"; expected \"Right\""));
  configure("BertTokenizer", {{"truncation_side", "right"}});
  EXPECT_EQ(error(), "no error");
  use_demo();
  edit("tokenizer.json", [](Json& json) { json["padding"] = {{"direction", "Left"}}; });
  EXPECT_THAT(error(), HasSubstr("direction is \"Left\"; expected \"Right\""));

  use_demo();
  configure("BertTokenizer", {{"max_len", 77}, {"model_max_length", nullptr}});
  EXPECT_EQ(load().model_max_length(), 77u);
  configure("BertTokenizer", {{"max_len", 77}, {"model_max_length", 55}});
  EXPECT_EQ(load().model_max_length(), 55u);
}

TEST_F(TokenizerClasses, UnknownKeysGetOneNote) {
  use_demo();
  configure("BertTokenizer", {{"colour", "red"}, {"shape", 1}});
  EXPECT_THAT(load().notes(),
              ::testing::ElementsAre(
                  HasSubstr("tokenizer_config.json': unknown keys are ignored: colour, shape")));
  use_demo();
  edit("tokenizer.json", [](Json& json) { json["model"]["temperature"] = 1; });
  EXPECT_THAT(load().notes(),
              ::testing::ElementsAre(HasSubstr("ignored: temperature (in WordPiece)")));
}

// transformers takes the mark in vocab.txt for a part of the first token and does not read it in
// JSON; an owner did not put it there.
TEST_F(TokenizerClasses, ByteOrderMarksAreNoText) {
  const auto mark = [&](const char* name) {
    write_file(folder_ / name, std::string(kMark) + read_file(folder_ / name));
  };
  use_demo();
  mark("tokenizer_config.json");
  mark("config.json");
  mark("tokenizer.json");
  EXPECT_EQ(tokens(kText), kLowered);
  fs::remove(folder_ / "tokenizer.json");
  const Tokenizer plain = load();
  mark("vocab.txt");
  EXPECT_EQ(tokens(kText), kLowered);
  EXPECT_EQ(load().token(0), plain.token(0));
  EXPECT_EQ(load().vocab_size(), plain.vocab_size());

  use_roberta();
  const std::string expected = tokens("The ship sails <mask>");
  fs::remove(folder_ / "tokenizer.json");
  for (const char* name : {"vocab.json", "merges.txt", "special_tokens_map.json"}) mark(name);
  EXPECT_EQ(tokens("The ship sails <mask>"), expected);
}

}  // namespace
}  // namespace tandem::text
