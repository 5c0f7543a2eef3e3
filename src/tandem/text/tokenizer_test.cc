// Tests of the tokenizer: goldens of Hugging Face, corner cases, files and their errors.
#include "tandem/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "support/golden_files.h"
#include "support/linear.h"
#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"

namespace tandem::text {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using PlainJson = nlohmann::json;

std::vector<std::int32_t> with_specials(const Tokenizer& tokenizer, const Encoding& encoding) {
  std::vector<std::int32_t> ids, types;
  append_sequence(tokenizer.sequence_template(), encoding.ids, ids, types);
  return ids;
}

std::vector<std::array<std::uint32_t, 2>> with_specials(const std::vector<Span>& offsets) {
  std::vector<std::array<std::uint32_t, 2>> out = {{0, 0}};
  for (const Span& span : offsets) out.push_back({span.begin, span.end});
  out.push_back({0, 0});
  return out;
}

void expect_encodings(const Tokenizer& tokenizer, const std::vector<PlainJson>& rows) {
  Encoding encoding;
  int wrong = 0;
  for (const PlainJson& row : rows) {
    tokenizer.encode(row["text"].get<std::string>(), encoding);
    const auto ids = row["input_ids"].get<std::vector<std::int32_t>>();
    const auto offsets = row["offsets"].get<std::vector<std::array<std::uint32_t, 2>>>();
    EXPECT_EQ(with_specials(tokenizer, encoding), ids) << row["text"];
    EXPECT_EQ(with_specials(encoding.offsets), offsets) << row["text"];
    if (::testing::Test::HasFailure() && ++wrong == 10) FAIL() << "further rows are not compared";
  }
}

class TokenizerGolden : public testing::MiniLmTest {};

TEST_F(TokenizerGolden, EveryString) {
  const auto rows =
      testing::read_gzip_json_lines(testing::shared_data() / "golden" / "tokens.jsonl.gz");
  ASSERT_EQ(rows.size(), 410u);
  expect_encodings(Tokenizer::load(testing::minilm_dir()), rows);
}

TEST_F(TokenizerGolden, EveryStringFromVocabTxtAlone) {
  const testing::TemporaryFolder folder;
  std::filesystem::copy_file(testing::minilm_dir() / "vocab.txt", folder / "vocab.txt");
  const auto rows =
      testing::read_gzip_json_lines(testing::shared_data() / "golden" / "tokens.jsonl.gz");
  expect_encodings(Tokenizer::load(folder.path()), rows);
}

// --- corner cases with a small vocabulary; every expectation was compared with Hugging Face's
// tokenizer ---

constexpr std::string_view kVocabulary =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\ncat\n##s\n##at\nc\n.\n,\n-\n'"
    "\ncafe\nCat\nCafé\nç\nα\nσ\n中\nword\ni\n##\n"
    "\xcc\x87\n##\xcc\x87\na\n##b\n";

class SmallTokenizer : public ::testing::Test {
 protected:
  Tokenizer load(std::string_view config = "{}", std::string_view vocabulary = kVocabulary) const {
    write_file(folder_ / "vocab.txt", vocabulary);
    write_file(folder_ / "tokenizer_config.json", config);
    return Tokenizer::load(folder_.path());
  }

  // "token@begin-end …"
  static std::string tokens(const Tokenizer& tokenizer, std::string_view text) {
    Encoding encoding;
    tokenizer.encode(text, encoding);
    std::string out;
    for (std::size_t i = 0; i < encoding.ids.size(); ++i) {
      out += fmt::format("{}{}@{}-{}", i > 0 ? " " : "", tokenizer.token(encoding.ids[i]),
                         encoding.offsets[i].begin, encoding.offsets[i].end);
    }
    return out;
  }

  std::string error_of(std::string_view config, std::string_view vocabulary = kVocabulary) const {
    try {
      load(config, vocabulary);
    } catch (const DataError& error) {
      return error.what();
    }
    return "no error";
  }

  testing::TemporaryFolder folder_;
};

TEST_F(SmallTokenizer, WordsPiecesAndPunctuation) {
  const Tokenizer t = load();
  EXPECT_EQ(tokens(t, "The cats."), "the@0-3 cat@4-7 ##s@7-8 .@8-9");
  EXPECT_EQ(tokens(t, "cat-cat,\tthe\r\n"), "cat@0-3 -@3-4 cat@4-7 ,@7-8 the@9-12");
  EXPECT_EQ(tokens(t, "catdog the"), "[UNK]@0-6 the@7-10") << "an unmatched rest takes the word";
  EXPECT_EQ(tokens(t, "##"), "[UNK]@0-1 [UNK]@1-2") << "# is punctuation, never the prefix";
  EXPECT_EQ(tokens(t, ""), "");
  EXPECT_EQ(tokens(t, " \n\t "), "");
}

TEST_F(SmallTokenizer, WordIds) {
  const Tokenizer t = load();
  Encoding encoding;
  t.encode("The cats. [MASK]catdog \u4e2d", encoding);
  EXPECT_THAT(encoding.word_ids, ElementsAre(0, 1, 1, 2, 3, 4, 5));
  t.encode("cats", encoding);
  EXPECT_THAT(encoding.word_ids, ElementsAre(0, 0)) << "the object was used before";
}

TEST_F(SmallTokenizer, WordsThatAreSplitAlready) {
  const Tokenizer t = load();
  const std::vector<std::string_view> words = {"The", "cats.", "", "\u200b", "[SEP]", "cat the"};
  Encoding encoding;
  t.encode_words(words, encoding);
  EXPECT_THAT(encoding.ids, ElementsAre(5, 6, 7, 10, 3, 6, 5));
  EXPECT_THAT(encoding.word_ids, ElementsAre(0, 1, 1, 1, 4, 5, 5));
  EXPECT_THAT(encoding.offsets, ElementsAre(Span{0, 3}, Span{0, 3}, Span{3, 4}, Span{4, 5},
                                            Span{0, 5}, Span{0, 3}, Span{4, 7}));
  t.encode_words({}, encoding);
  EXPECT_TRUE(encoding.ids.empty() && encoding.offsets.empty() && encoding.word_ids.empty());
  const std::vector<std::string_view> broken = {"the", "c\xff"};
  try {
    t.encode_words(broken, encoding);
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("word 1: text is not UTF-8 at byte 1 (value 0xff)"));
  }
}

TEST_F(SmallTokenizer, LongWords) {
  const Tokenizer t = load("{}", std::string(kVocabulary) + "##a\n");
  const auto count = [&](const std::string& text) {
    Encoding encoding;
    t.encode(text, encoding);
    return encoding.ids.size();
  };
  EXPECT_EQ(count(std::string(100, 'a')), 100u);
  EXPECT_EQ(tokens(t, std::string(101, 'a')), "[UNK]@0-101");
  std::string accents;
  for (int i = 0; i < 100; ++i) accents += "á";  // counted after normalization, in characters
  EXPECT_EQ(count(accents), 100u);
  EXPECT_EQ(tokens(t, accents + "a"), "[UNK]@0-101");
}

TEST_F(SmallTokenizer, AccentsAndCase) {
  const Tokenizer t = load();
  EXPECT_EQ(tokens(t, "Café"), "cafe@0-4");
  EXPECT_EQ(tokens(t, "cafe\u0301."), "cafe@0-4 .@5-6") << "a trailing mark is not covered";
  EXPECT_EQ(tokens(t, "ca\u0301ts"), "cat@0-4 ##s@4-5") << "one inside is";
  EXPECT_EQ(tokens(t, "\u0130"), "i@0-1");
  EXPECT_EQ(tokens(t, "Σ σ \u0301"), "σ@0-1 σ@2-3");
}

// The step of sentence-transformers stands in front of the tokenizer's own, so that accents stay.
TEST_F(SmallTokenizer, LowerCaseInFront) {
  const Tokenizer plain = load(R"({"do_lower_case": false})");
  const Tokenizer lower =
      Tokenizer::load(folder_.path(), {.add_prefix_space = {}, .lower_case = true});
  EXPECT_EQ(tokens(lower, "CAT Cat CAFÉ"), tokens(plain, "cat cat café"));
  EXPECT_NE(tokens(lower, "CAT Cat CAFÉ"), tokens(plain, "CAT Cat CAFÉ"));
  EXPECT_EQ(tokens(lower, "[SEP]"), tokens(plain, "[SEP]"));
}

TEST_F(SmallTokenizer, NormalizerSettings) {
  EXPECT_EQ(tokens(load(R"({"do_lower_case": false})"), "Cat cat Café"),
            "Cat@0-3 cat@4-7 Café@8-12");
  EXPECT_EQ(tokens(load(R"({"strip_accents": false})"), "ç Ç \u0130"),
            "ç@0-1 ç@2-3 i@4-5 ##\xcc\x87@4-5");
  EXPECT_EQ(tokens(load(R"({"do_lower_case": false, "strip_accents": true})"), "Café cafe\u0301"),
            "[UNK]@0-4 cafe@5-9");
  EXPECT_EQ(tokens(load(), "a中中b"), "a@0-1 中@1-2 中@2-3 [UNK]@3-4");
  EXPECT_EQ(tokens(load(R"({"tokenize_chinese_chars": false})"), "中 a中"), "中@0-1 [UNK]@2-4");
}

TEST_F(SmallTokenizer, ControlCharactersAndSpaces) {
  const Tokenizer t = load();
  EXPECT_EQ(tokens(t, std::string_view("c\0at\x01 the\u200b\ufeff", 15)), "cat@0-4 the@6-9");
  EXPECT_EQ(tokens(t,
                   "cat\u00a0the\u3000c\u2003c\u0085\x1c"
                   "at"),
            "cat@0-3 the@4-7 c@8-9 cat@10-15");
  EXPECT_EQ(tokens(t, "c\ufffd"), "c@0-1");
  EXPECT_EQ(tokens(t, "the\u2028cat"), "the@0-3 cat@4-7");
}

TEST_F(SmallTokenizer, TablesOfHuggingFacesAge) {
  const Tokenizer t = load();
  EXPECT_EQ(tokens(t, "a\u2e3ab"), "a@0-1 [UNK]@1-2 [UNK]@2-3") << "a dash of Unicode 7 splits";
  EXPECT_EQ(tokens(t, "a\u2e43b"), "[UNK]@0-3") << "one of Unicode 9 does not";
  EXPECT_EQ(tokens(t, "a\u166db"), "a@0-1 [UNK]@1-2 [UNK]@2-3")
      << "was punctuation, is a symbol now";
  EXPECT_EQ(tokens(t, "a\u08d4b"), "[UNK]@0-3") << "a mark of Unicode 9 stays";
  EXPECT_EQ(tokens(t, "a\u1734b"), "a@0-1 ##b@2-3")
      << "was a nonspacing mark, is a spacing one now";
  // A mark of Unicode 11 has no combining class there: it does not move before U+0345, which would
  // change its source.
  EXPECT_EQ(tokens(t, "\u0345\U00010f46"), "[UNK]@1-2");
}

TEST_F(SmallTokenizer, SpecialTokensInTheText) {
  const Tokenizer t = load();
  EXPECT_EQ(tokens(t, "the[SEP]cat [CLS]"), "the@0-3 [SEP]@3-8 cat@8-11 [CLS]@12-17");
  EXPECT_EQ(tokens(t, "[sep][SE[PAD]"),
            "[UNK]@0-1 [UNK]@1-4 [UNK]@4-5 [UNK]@5-6 [UNK]@6-8 [PAD]@8-13");
  EXPECT_EQ(tokens(t, "é[MASK]é"), "[UNK]@0-1 [MASK]@1-7 [UNK]@7-8");
}

TEST_F(SmallTokenizer, AddedTokens) {
  write_file(folder_ / "added_tokens.json", R"({"ÉTÉ": 28, "the cat": 29})");
  const Tokenizer t = load(
      R"({"mask_token": {"content": "[MASK]", "lstrip": true, "rstrip": false, "normalized": false}})");
  EXPECT_EQ(tokens(t, "été cat"), "ÉTÉ@0-3 cat@4-7") << "looked for in the normalized text";
  EXPECT_EQ(tokens(t, "the  cat The cats"), "the@0-3 cat@5-8 the cat@9-16 [UNK]@16-17");
  EXPECT_EQ(tokens(t, "cat \t[MASK] the"), "cat@0-3 [MASK]@3-11 the@12-15") << "lstrip";
  EXPECT_EQ(t.vocab_size(), 30u);
}

TEST_F(SmallTokenizer, AddedTokensOfTheConfiguration) {
  const Tokenizer t = load(R"({"added_tokens_decoder": {
      "28": {"content": "dog", "single_word": true, "normalized": false},
      "29": {"content": "do", "rstrip": true, "normalized": false}}})");
  EXPECT_EQ(tokens(t, "dog dogs é"), "dog@0-3 [UNK]@4-8 [UNK]@9-10")
      << "a match inside of a word is skipped whole";
  EXPECT_EQ(tokens(t, "do \n the"), "do@0-5 the@5-8");
}

// The last of several with one text counts.
TEST_F(SmallTokenizer, AddedTokensThatAreGivenAgain) {
  write_file(folder_ / "added_tokens.json", R"({"dog": 28, "do": 29})");
  const Tokenizer t = load(R"({"added_tokens_decoder": {
      "29": {"content": "dog", "normalized": false}, "28": {"content": "cow", "normalized": false},
      "30": {"content": "dog", "normalized": false}}})");
  EXPECT_EQ(tokens(t, "dog cow do"), "dog@0-3 cow@4-7 do@8-10");
  EXPECT_EQ(t.vocab_size(), 31u);
}

// tokenizers ignores them, wherever they stand. The saved files can be read again.
TEST_F(SmallTokenizer, AddedTokensWithoutATextAreIgnored) {
  write_file(folder_ / "added_tokens.json", R"({"": 28, "dog": 29})");
  const Tokenizer t = load(R"({"additional_special_tokens": ["", {"content": ""}, "cow"],
      "added_tokens_decoder": {"40": {"content": ""}}})");
  EXPECT_EQ(tokens(t, "the dog cow"), "the@0-3 dog@4-7 cow@8-11");
  EXPECT_EQ(t.vocab_size(), 31u);
  const testing::TemporaryFolder saved;
  t.save(saved.path());
  EXPECT_EQ(tokens(Tokenizer::load(saved.path()), "the dog cow"), tokens(t, "the dog cow"));
}

TEST_F(SmallTokenizer, ManyAddedTokensTakeTimeInProportion) {
  const testing::TemporaryFolder saved;
  EXPECT_TRUE(testing::takes_linear_time(
      [&](std::size_t count) {
        std::string config = R"({"added_tokens_decoder": {)";
        for (std::size_t i = 0; i < count; ++i)
          config += fmt::format(R"({}"{}": {{"content": "t{}"}})", i > 0 ? "," : "", 28 + i, i);
        const Tokenizer t = load(config + "}}");
        EXPECT_EQ(t.vocab_size(), 28 + count);
        t.save(saved.path());
      },
      5000));
}

TEST_F(SmallTokenizer, FilesThatNestDeepAreRefused) {
  const std::string deep = R"({"a": )" + std::string(100, '[') + std::string(100, ']') + "}";
  EXPECT_THAT(error_of(deep),
              HasSubstr("tokenizer_config.json' is not read: values inside of more"));
  write_file(folder_ / "tokenizer.json", deep);
  EXPECT_THAT(error_of("{}"), HasSubstr("tokenizer.json' is not read: values inside of more"));
}

TEST_F(SmallTokenizer, SettingsOfTheModel) {
  EXPECT_EQ(load(R"({"model_max_length": 512})").model_max_length(), 512u);
  EXPECT_EQ(load().model_max_length(), Tokenizer::kUnlimited);
  EXPECT_EQ(load(R"({"model_max_length": 1000000000000000019884624838656})").model_max_length(),
            Tokenizer::kUnlimited);
  const Tokenizer t = load();
  EXPECT_EQ(t.sequence_template(), (SequenceTemplate{.cls_id = 2, .sep_id = 3, .pad_id = 0}));
  EXPECT_EQ(t.unk_token_id(), 1);
  EXPECT_EQ(t.token(7), "##s");
  EXPECT_EQ(t.token(-1), "");
  EXPECT_EQ(t.token(1000), "");
  const Tokenizer other = load(R"({"sep_token": "."})");
  EXPECT_EQ(other.sequence_template().sep_id, 10);
}

TEST_F(SmallTokenizer, Errors) {
  EXPECT_THAT(error_of("{}", "[PAD]\n[UNK]\n[CLS]\nthe\n"),
              AllOf(HasSubstr("vocab.txt': the vocabulary of 4 entries has no sep_token \"[SEP]\""),
                    HasSubstr("needs [UNK], [CLS], [SEP] and [PAD]")));
  EXPECT_THAT(error_of("{}", "[PAD]\n[UNK]\n[SEP]\nthe\n"), HasSubstr("no cls_token \"[CLS]\""));
  EXPECT_THAT(error_of("{}", "[CLS]\n[UNK]\n[SEP]\nthe\n"), HasSubstr("no pad_token \"[PAD]\""));
  EXPECT_THAT(error_of("{}", "[CLS]\n[PAD]\n[SEP]\nthe\n"), HasSubstr("no unk_token \"[UNK]\""));
  EXPECT_THAT(error_of("{}", "[CLS]\n[PAD]\n\xff"),
              HasSubstr("line 3, column 1 (byte 12): not UTF-8"));
  EXPECT_THAT(error_of(R"({"padding_side": "left"})"),
              HasSubstr("padding_side is \"left\"; expected \"right\""));
  EXPECT_THAT(error_of(R"({"do_lower_case": "yes"})"),
              HasSubstr("\"do_lower_case\" has the wrong type"));
  EXPECT_THAT(error_of(R"({"model_max_length": 0})"), HasSubstr("model_max_length is 0"));
  EXPECT_THAT(error_of("{\"a\":\n 1,}"),
              HasSubstr("tokenizer_config.json' is not JSON: line 2, column 4"));
  std::filesystem::create_directory(folder_ / "none");
  try {
    Tokenizer::load(folder_ / "none");
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(
        error.what(),
        AllOf(HasSubstr("no tokenizer in"),
              HasSubstr("tokenizer.json or vocab.txt or vocab.json or sentencepiece.bpe.model")));
  }
}

TEST_F(SmallTokenizer, InvalidUtf8NamesTheByte) {
  const Tokenizer t = load();
  Encoding encoding;
  try {
    t.encode("the cat \xc3(", encoding);
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("not UTF-8 at byte 8 (value 0xc3)"));
  }
}

TEST_F(SmallTokenizer, ThreadsShareOneTokenizer) {
  const Tokenizer t = load();
  std::vector<std::string> results(4);
  std::vector<std::thread> threads;
  for (std::string& result : results) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) result = tokens(t, "The café's cats. 中");
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& result : results) EXPECT_EQ(result, results[0]);
}

// --- tokenizer.json ---

class TokenizerJson : public SmallTokenizer {
 protected:
  // The tokenizer.json of the small vocabulary, changed by `edit`.
  void write(const std::function<void(PlainJson&)>& edit) const {
    const std::filesystem::path source = folder_ / "source";
    std::filesystem::create_directories(source);
    write_file(source / "vocab.txt", kVocabulary);
    Tokenizer::load(source).save(folder_.path());
    for (const char* name : {"vocab.txt", "tokenizer_config.json", "special_tokens_map.json"}) {
      std::filesystem::remove(folder_ / name);
    }
    PlainJson json = PlainJson::parse(read_file(folder_ / "tokenizer.json"));
    edit(json);
    write_file(folder_ / "tokenizer.json", json.dump());
  }

  std::string json_error(const std::function<void(PlainJson&)>& edit) const {
    write(edit);
    try {
      Tokenizer::load(folder_.path());
    } catch (const DataError& error) {
      return error.what();
    }
    return "no error";
  }
};

TEST_F(TokenizerJson, ConfigurationWinsOverTheNormalizer) {
  write([](PlainJson& json) { json["normalizer"]["lowercase"] = false; });
  EXPECT_EQ(tokens(Tokenizer::load(folder_.path()), "Cat"), "Cat@0-3")
      << "where no file names a class, tokenizer.json decides";
  write_file(folder_ / "config.json", R"({"model_type": "bert"})");
  EXPECT_EQ(tokens(Tokenizer::load(folder_.path()), "Cat"), "cat@0-3")
      << "without a configuration BertTokenizerFast lower-cases";
  write_file(folder_ / "tokenizer_config.json", R"({"do_lower_case": false})");
  EXPECT_EQ(tokens(Tokenizer::load(folder_.path()), "Cat"), "Cat@0-3");
  write_file(folder_ / "tokenizer_config.json",
             R"({"tokenizer_class": "PreTrainedTokenizerFast"})");
  EXPECT_EQ(tokens(Tokenizer::load(folder_.path()), "Cat"), "Cat@0-3")
      << "the general class keeps it";
}

TEST_F(TokenizerJson, OtherPostProcessorsAndNoNormalizer) {
  write([](PlainJson& json) {
    json["normalizer"] = nullptr;
    json["post_processor"] = {
        {"type", "BertProcessing"}, {"sep", {"[SEP]", 3}}, {"cls", {"[CLS]", 2}}};
  });
  const Tokenizer t = Tokenizer::load(folder_.path());
  EXPECT_EQ(t.sequence_template().sep_id, 3);
  EXPECT_EQ(tokens(t, "Cat cat Café\tthe"), "Cat@0-3 cat@4-7 Café@8-12 the@13-16");
}

TEST_F(TokenizerJson, Errors) {
  EXPECT_THAT(
      json_error([](PlainJson& j) { j["model"]["type"] = "WordLevel"; }),
      HasSubstr(
          "the model type is \"WordLevel\", expected \"WordPiece\" or \"BPE\" or \"Unigram\""));
  EXPECT_THAT(json_error([](PlainJson& j) {
                j["model"]["vocab"] = {1, 2};
              }),
              HasSubstr("expected \"WordPiece\""));
  EXPECT_THAT(json_error([](PlainJson& j) { j.erase("model"); }), HasSubstr("a member \"model\""));
  EXPECT_THAT(json_error([](PlainJson& j) { j["model"]["vocab"]["the"] = -1; }),
              HasSubstr("the id of token \"the\" is not an integer"));
  EXPECT_THAT(json_error([](PlainJson& j) { j["model"]["vocab"]["the"] = 1e9; }),
              HasSubstr("is not an integer"));
  EXPECT_THAT(json_error([](PlainJson& j) { j["normalizer"]["type"] = "NFKC"; }),
              HasSubstr("the normalizer is \"NFKC\", expected \"BertNormalizer\""));
  EXPECT_THAT(json_error([](PlainJson& j) { j["pre_tokenizer"]["type"] = "Whitespace"; }),
              HasSubstr("the pre_tokenizer is \"Whitespace\", expected \"BertPreTokenizer\""));
  EXPECT_THAT(
      json_error([](PlainJson& j) {
        j["post_processor"] = {{"type", "RobertaProcessing"}};
      }),
      HasSubstr("the post_processor (type \"RobertaProcessing\") does not make [CLS] A [SEP]"));
  EXPECT_THAT(json_error([](PlainJson& j) { j["added_tokens"][0]["id"] = 17; }),
              HasSubstr("added token \"[PAD]\" has the id 17, but the vocabulary gives it 0"));
  write_file(folder_ / "tokenizer.json", "{\"model\": ");
  EXPECT_THROW(Tokenizer::load(folder_.path()), DataError);
}

// --- saving ---

// As transformers does: a token in full where tokenizer_config.json names it and tokenizer.json
// adds it, otherwise its text.
TEST_F(TokenizerJson, SavesNamedSpecialTokensInFull) {
  write([](PlainJson&) {});
  write_file(folder_ / "tokenizer_config.json", R"({"cls_token": "[CLS]"})");
  const std::filesystem::path out = folder_ / "out";
  std::filesystem::create_directory(out);
  Tokenizer::load(folder_.path()).save(out);
  const PlainJson map = PlainJson::parse(read_file(out / "special_tokens_map.json"));
  EXPECT_EQ(map["cls_token"],
            PlainJson::parse(R"({"content": "[CLS]", "lstrip": false, "normalized": false,
                                              "rstrip": false, "single_word": false})"));
  EXPECT_EQ(map["sep_token"], "[SEP]");
}

TEST_F(SmallTokenizer, SavesFilesInHuggingFacesForm) {
  write_file(folder_ / "config.json", R"({"model_type": "distilbert"})");
  const Tokenizer t =
      load(R"({"model_max_length": 512, "strip_accents": null, "ours": [1], "name_or_path": "x"})");
  std::filesystem::create_directory(folder_ / "out");
  t.save(folder_ / "out");
  EXPECT_EQ(read_file(folder_ / "out" / "vocab.txt"), kVocabulary);
  const std::string config = read_file(folder_ / "out" / "tokenizer_config.json");
  EXPECT_TRUE(
      config.starts_with("{\n  \"added_tokens_decoder\": {\n    \"0\": {\n      \"content\": "
                         "\"[PAD]\",\n      \"lstrip\": false,"))
      << config;
  EXPECT_TRUE(
      config.ends_with("  \"tokenizer_class\": \"DistilBertTokenizer\",\n  \"unk_token\": "
                       "\"[UNK]\"\n}\n"))
      << config;
  EXPECT_THAT(config,
              AllOf(HasSubstr("\"ours\": [\n    1\n  ]"), HasSubstr("\"model_max_length\": 512"),
                    ::testing::Not(HasSubstr("name_or_path"))));
  EXPECT_EQ(read_file(folder_ / "out" / "special_tokens_map.json"),
            "{\n  \"cls_token\": \"[CLS]\",\n  \"mask_token\": \"[MASK]\",\n  \"pad_token\": "
            "\"[PAD]\",\n  \"sep_token\": \"[SEP]\",\n  \"unk_token\": \"[UNK]\"\n}\n");
  const std::string json = read_file(folder_ / "out" / "tokenizer.json");
  EXPECT_TRUE(
      json.starts_with("{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": "
                       "null,\n  \"added_tokens\": [\n    {\n      \"id\": 0,\n      \"content\": "
                       "\"[PAD]\",\n      \"single_word\": false,"))
      << json;
  const Tokenizer again = Tokenizer::load(folder_ / "out");
  EXPECT_EQ(tokens(again, "The café's cats[SEP]中"), tokens(t, "The café's cats[SEP]中"));
  EXPECT_EQ(again.model_max_length(), 512u);
}

TEST_F(SmallTokenizer, SavesAnUnlimitedLengthAsPythonDoes) {
  const Tokenizer t = load();
  t.save(folder_.path());
  EXPECT_THAT(read_file(folder_ / "tokenizer_config.json"),
              HasSubstr("\"model_max_length\": 1000000000000000019884624838656,"));
  EXPECT_EQ(Tokenizer::load(folder_.path()).model_max_length(), Tokenizer::kUnlimited);
}

TEST_F(TokenizerGolden, SavingKeepsEverythingButTruncationAndPadding) {
  const testing::TemporaryFolder folder;
  Tokenizer::load(testing::minilm_dir()).save(folder.path());
  auto original = PlainJson::parse(read_file(testing::minilm_dir() / "tokenizer.json"));
  EXPECT_FALSE(original["truncation"].is_null());
  original["truncation"] = nullptr;
  original["padding"] = nullptr;
  EXPECT_EQ(PlainJson::parse(read_file(folder / "tokenizer.json")), original);
  EXPECT_EQ(read_file(folder / "vocab.txt"), read_file(testing::minilm_dir() / "vocab.txt"));
}

}  // namespace
}  // namespace tandem::text
