// Tests of the tokenizers of MPNet, RoBERTa and XLM-R: goldens of Hugging Face, oracles, files and
// their errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unicode/brkiter.h>

#include <array>
#include <functional>
#include <memory>
#include <random>
#include <set>

#include "support/golden_files.h"
#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/text/bpe.h"
#include "tandem/text/charsmap.h"
#include "tandem/text/tokenizer.h"
#include "tandem/text/unigram.h"
#include "tandem/text/utf8.h"

namespace tandem::text {
namespace {

using ::testing::HasSubstr;
using PlainJson = nlohmann::json;
namespace fs = std::filesystem;

// The encoding with special tokens as transformers describes it.
PlainJson with_family_specials(const Tokenizer& tokenizer, const Encoding& encoding) {
  const SequenceTemplate& frame = tokenizer.sequence_template();
  PlainJson ids = {frame.cls_id}, offsets = {{0, 0}}, words = {nullptr};
  for (std::size_t i = 0; i < encoding.ids.size(); ++i) {
    ids.push_back(encoding.ids[i]);
    offsets.push_back({encoding.offsets[i].begin, encoding.offsets[i].end});
    words.push_back(encoding.word_ids[i]);
  }
  ids.push_back(frame.sep_id);
  offsets.push_back({0, 0});
  words.push_back(nullptr);
  return {{"input_ids", ids}, {"offsets", offsets}, {"word_ids", words}};
}

// `row` with the same keys.
void expect_equal(const PlainJson& got, const PlainJson& row, const PlainJson& text) {
  for (const char* key : {"input_ids", "offsets", "word_ids"})
    EXPECT_EQ(got[key], row[key]) << key << " of " << text;
}

class FamilyGolden : public testing::SharedDataTest {
 protected:
  static fs::path tasks() { return testing::shared_data() / "golden" / "tasks"; }
  static fs::path model(const char* name) { return tasks() / "models" / name; }

  // A folder with some of a model's files.
  static void copy(const fs::path& from, std::initializer_list<const char*> names,
                   const testing::TemporaryFolder& to) {
    for (const char* name : names) fs::copy_file(from / name, to / name);
  }

  static void expect_texts(const Tokenizer& tokenizer, const char* file,
                           const char* part = nullptr) {
    const auto rows = testing::read_gzip_json_lines(tasks() / file);
    ASSERT_EQ(rows.size(), 363u);
    Encoding encoding;
    for (const PlainJson& row : rows) {
      tokenizer.encode(row["text"].get<std::string>(), encoding);
      expect_equal(with_family_specials(tokenizer, encoding), part == nullptr ? row : row[part],
                   row["text"]);
      if (HasFailure()) FAIL() << "further rows are not compared";
    }
  }

  static void expect_words(const Tokenizer& tokenizer, const char* file) {
    const auto rows = testing::read_gzip_json_lines(tasks() / file);
    ASSERT_EQ(rows.size(), 80u);
    Encoding encoding;
    for (const PlainJson& row : rows) {
      const auto words = row["words"].get<std::vector<std::string>>();
      tokenizer.encode_words(std::vector<std::string_view>(words.begin(), words.end()), encoding);
      expect_equal(with_family_specials(tokenizer, encoding), row, row["words"]);
    }
  }
};

TEST_F(FamilyGolden, Roberta) {
  const Tokenizer tokenizer = Tokenizer::load(model("tiny-roberta"));
  expect_texts(tokenizer, "tokens_bpe.jsonl.gz");
  EXPECT_EQ(tokenizer.sequence_template(),
            (SequenceTemplate{
                .cls_id = 0, .sep_id = 2, .pad_id = 1, .num_separators = 2, .second_type_id = 0}));
  EXPECT_EQ(tokenizer.model_max_length(), 128u);
}

TEST_F(FamilyGolden, RobertaWithASpaceInFront) {
  const Tokenizer tokenizer = Tokenizer::load(model("tiny-roberta"), {.add_prefix_space = true});
  expect_texts(tokenizer, "tokens_bpe.jsonl.gz", "prefix_space");
  expect_words(tokenizer, "words_bpe.jsonl.gz");
}

TEST_F(FamilyGolden, RobertaFromVocabularyAndMerges) {
  const testing::TemporaryFolder folder;
  copy(model("tiny-roberta"), {"vocab.json", "merges.txt"}, folder);
  expect_texts(Tokenizer::load(folder.path()), "tokens_bpe.jsonl.gz");
}

TEST_F(FamilyGolden, XlmRoberta) {
  const Tokenizer tokenizer = Tokenizer::load(model("tiny-xlmr"));
  expect_texts(tokenizer, "tokens_unigram.jsonl.gz");
  expect_words(tokenizer, "words_unigram.jsonl.gz");
}

TEST_F(FamilyGolden, XlmRobertaInTheOlderLayout) {
  const Tokenizer tokenizer = Tokenizer::load(model("tiny-xlmr-hub"));
  expect_texts(tokenizer, "tokens_unigram_hub.jsonl.gz");
  expect_words(tokenizer, "words_unigram_hub.jsonl.gz");
}

TEST_F(FamilyGolden, XlmRobertaFromTheSentencePieceModel) {
  const testing::TemporaryFolder folder;
  copy(model("tiny-xlmr"), {"sentencepiece.bpe.model"}, folder);
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  expect_texts(tokenizer, "tokens_unigram.jsonl.gz");
  EXPECT_EQ(tokenizer.sequence_template().num_separators, 2u);
}

// --- the project's own goldens: small tokenizers, trained on the demo's texts ---

fs::path small(const char* name) {
  return fs::path(TANDEM_SOURCE_DIR) / "tests" / "parity" / "golden" / "tokenizers" / name;
}

void expect_cases(const Tokenizer& tokenizer, const char* key) {
  const PlainJson goldens = PlainJson::parse(read_file(small("tokens.json")));
  const PlainJson& cases = goldens[key];
  EXPECT_GT(cases["texts"].size(), 40u);
  Encoding encoding;
  for (const PlainJson& row : cases["texts"]) {
    tokenizer.encode(row["text"].get<std::string>(), encoding);
    expect_equal(with_family_specials(tokenizer, encoding), row, row["text"]);
  }
  for (const PlainJson& row : cases["words"]) {
    const auto words = row["text"].get<std::vector<std::string>>();
    tokenizer.encode_words(std::vector<std::string_view>(words.begin(), words.end()), encoding);
    expect_equal(with_family_specials(tokenizer, encoding), row, row["text"]);
  }
}

TEST(SmallFamilies, TokensOfHuggingFace) {
  expect_cases(Tokenizer::load(small("deberta")), "deberta");
  expect_cases(Tokenizer::load(small("deberta_5")), "deberta_5");
  expect_cases(Tokenizer::load(small("modernbert")), "modernbert");
  expect_cases(Tokenizer::load(small("mpnet")), "mpnet");
  expect_cases(Tokenizer::load(small("roberta")), "roberta");
  expect_cases(Tokenizer::load(small("roberta"), {.add_prefix_space = true}),
               "roberta_prefix_space");
  expect_cases(Tokenizer::load(small("xlmr"), {.add_prefix_space = true}), "xlmr");
  expect_cases(Tokenizer::load(small("xlmr_older")), "xlmr_older");
}

// A folder with some of a small tokenizer's files, and a place to save to.
class SmallFamily : public ::testing::Test {
 protected:
  void copy(const char* from, std::initializer_list<const char*> names) const {
    for (const char* name : names)
      fs::copy_file(small(from) / name, folder_ / name, fs::copy_options::overwrite_existing);
  }

  // tokenizer.json, changed.
  void write(const char* from, const std::function<void(PlainJson&)>& edit) const {
    PlainJson json = PlainJson::parse(read_file(small(from) / "tokenizer.json"));
    edit(json);
    write_file(folder_ / "tokenizer.json", json.dump());
  }

  std::string error_of(const char* from, const std::function<void(PlainJson&)>& edit) const {
    write(from, edit);
    return error();
  }

  std::string error() const {
    try {
      Tokenizer::load(folder_.path());
    } catch (const DataError& error) {
      return error.what();
    }
    return "no error";
  }

  std::string tokens(std::string_view text) const {
    const Tokenizer tokenizer = Tokenizer::load(folder_.path());
    Encoding encoding;
    tokenizer.encode(text, encoding);
    std::string out;
    for (std::size_t i = 0; i < encoding.ids.size(); ++i) {
      out += fmt::format("{}{}@{}-{}", i > 0 ? " " : "", tokenizer.token(encoding.ids[i]),
                         encoding.offsets[i].begin, encoding.offsets[i].end);
    }
    return out;
  }

  // The files that save() writes equal those of `original`.
  void expect_saves(const char* original, std::initializer_list<const char*> names) const {
    const testing::TemporaryFolder out;
    Tokenizer::load(folder_.path()).save(out.path());
    for (const char* name : names) {
      const std::string got = read_file(out / name), want = read_file(small(original) / name);
      if (std::string_view(name).ends_with(".json")) {
        EXPECT_EQ(PlainJson::diff(PlainJson::parse(want), PlainJson::parse(got)),
                  PlainJson::array())
            << name;
      } else {
        EXPECT_EQ(got, want) << name;
      }
    }
  }

  testing::TemporaryFolder folder_;
};

// A tokenizer.json that tandem makes equals the one that Hugging Face's tools make.
TEST_F(SmallFamily, SavesWhatItRead) {
  copy("roberta", {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"});
  expect_saves("roberta", {"tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json",
                           "special_tokens_map.json"});
  copy("xlmr", {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                "sentencepiece.bpe.model"});
  expect_saves("xlmr", {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                        "sentencepiece.bpe.model"});
}

TEST_F(SmallFamily, MakesTokenizerJsonOfVocabularyAndMerges) {
  copy("roberta", {"vocab.json", "merges.txt"});
  expect_saves("roberta", {"tokenizer.json", "vocab.json", "merges.txt"});
  expect_cases(Tokenizer::load(folder_.path()), "roberta");
}

TEST_F(SmallFamily, MakesTokenizerJsonOfASentencePieceModel) {
  copy("xlmr", {"sentencepiece.bpe.model"});
  expect_saves("xlmr", {"tokenizer.json", "special_tokens_map.json", "sentencepiece.bpe.model"});
  expect_cases(Tokenizer::load(folder_.path()), "xlmr");
}

TEST_F(SmallFamily, AddPrefixSpaceIsSaved) {
  copy("roberta", {"tokenizer.json", "tokenizer_config.json"});
  const testing::TemporaryFolder out;
  Tokenizer::load(folder_.path(), {.add_prefix_space = true}).save(out.path());
  const PlainJson config = PlainJson::parse(read_file(out / "tokenizer_config.json"));
  EXPECT_EQ(config["add_prefix_space"], true);
  expect_cases(Tokenizer::load(out.path()), "roberta_prefix_space");
}

TEST_F(SmallFamily, MergesInTheOlderForm) {
  write("roberta", [](PlainJson& json) {
    for (PlainJson& merge : json["model"]["merges"])
      merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  });
  expect_cases(Tokenizer::load(folder_.path()), "roberta");
}

TEST_F(SmallFamily, MetaspaceInItsForms) {
  const auto with = [&](const PlainJson& metaspace) {
    write("xlmr", [&](PlainJson& json) {
      json["pre_tokenizer"] = metaspace;
      json["pre_tokenizer"]["type"] = "Metaspace";
      json["pre_tokenizer"]["replacement"] = "\u2581";
    });
    return tokens("a <s>a");
  };
  EXPECT_EQ(with({{"add_prefix_space", true}, {"str_rep", "\u2581"}}), with({}));
  EXPECT_EQ(with({{"add_prefix_space", false}}), with({{"prepend_scheme", "never"}}));
  const std::string first = with({{"prepend_scheme", "first"}});
  EXPECT_NE(first, with({{"prepend_scheme", "always"}}));
  EXPECT_NE(first, with({{"prepend_scheme", "never"}}));
}

// --- files that are broken or of other kinds ---

TEST_F(SmallFamily, ErrorsOfBpe) {
  const auto error = [&](const std::function<void(PlainJson&)>& edit) {
    return error_of("roberta", edit);
  };
  EXPECT_THAT(error([](PlainJson& j) { j["model"]["merges"][3] = "a"; }),
              HasSubstr("merge 3 is \"a\", expected two tokens with one blank between them"));
  EXPECT_THAT(error([](PlainJson& j) { j["model"]["merges"][3] = {"a"}; }),
              HasSubstr("merge 3 is neither"));
  EXPECT_THAT(error([](PlainJson& j) {
                j["model"]["merges"][3] = {"a", "\u4e2d"};
              }),
              HasSubstr("merge 3 needs the token \"\u4e2d\", which the vocabulary does not have"));
  EXPECT_THAT(error([](PlainJson& j) { j["model"]["vocab"].erase("a"); }),
              HasSubstr("no token \"a\" for byte 97"));
  EXPECT_THAT(error([](PlainJson& j) { j["model"]["vocab"]["a"] = -4; }),
              HasSubstr("the id of token \"a\" is not an integer"));
  EXPECT_THAT(error([](PlainJson& j) { j["model"]["dropout"] = 0.1; }),
              HasSubstr("dropout = 0.1, which is not supported"));
  EXPECT_THAT(error([](PlainJson& j) { j["model"].erase("merges"); }), HasSubstr("has no merges"));
  EXPECT_THAT(error([](PlainJson& j) {
                j["normalizer"] = {{"type", "NFKC"}};
              }),
              HasSubstr("the normalizer is \"NFKC\", expected \"NFC\" or none with byte-level "
                        "BPE"));
  EXPECT_THAT(error([](PlainJson& j) { j["pre_tokenizer"]["type"] = "Whitespace"; }),
              HasSubstr("the pre_tokenizer is \"Whitespace\", expected \"ByteLevel\""));
  EXPECT_THAT(error([](PlainJson& j) { j["post_processor"].erase("sep"); }),
              HasSubstr("type \"RobertaProcessing\") does not make [CLS] A [SEP] B [SEP]"));
  fs::remove(folder_ / "tokenizer.json");
  copy("roberta", {"vocab.json"});
  EXPECT_THAT(this->error(),
              HasSubstr("merges.txt', which byte-level BPE needs in addition to vocab.json"));
  write_file(folder_ / "merges.txt", "#version: 0.2\na b c\n");
  EXPECT_THAT(this->error(), HasSubstr("merges.txt': merge 0 is \"a b c\""));
  write_file(folder_ / "vocab.json", "[1]");
  EXPECT_THAT(this->error(), HasSubstr("expected a JSON object of tokens and ids"));
}

TEST_F(SmallFamily, ErrorsOfUnigram) {
  const auto error = [&](const std::function<void(PlainJson&)>& edit) {
    return error_of("xlmr", edit);
  };
  EXPECT_THAT(error([](PlainJson& j) { j["model"]["vocab"][7] = {"a"}; }),
              HasSubstr("entry 7 of the vocabulary is not [\"token\", score]"));
  EXPECT_THAT(error([](PlainJson& j) {
                j["model"]["vocab"][7] = {std::string(513, 'a'), -1.0};
              }),
              HasSubstr("token 7 has 513 bytes and the score -1, expected at most 512 bytes"));
  EXPECT_THAT(error([](PlainJson& j) { j["model"]["unk_id"] = 100000; }),
              HasSubstr("unk_id of the Unigram model is 100000, expected 0 to"));
  EXPECT_THAT(error([](PlainJson& j) { j["model"]["byte_fallback"] = true; }),
              HasSubstr("byte_fallback of the Unigram model is not supported"));
  EXPECT_THAT(error([](PlainJson& j) {
                j["normalizer"] = {{"type", "NFKC"}};
              }),
              HasSubstr("the normalizer is \"NFKC\", expected \"Precompiled\""));
  EXPECT_THAT(error([](PlainJson& j) {
                j["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", "AAA"}};
              }),
              HasSubstr("precompiled_charsmap is not base64"));
  EXPECT_THAT(error([](PlainJson& j) {
                j["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", "/wAAAAAA"}};
              }),
              HasSubstr("has 6 bytes and a trie of 255 bytes"));
  EXPECT_THAT(error([](PlainJson& j) {
                j["normalizer"]["normalizers"][2]["pattern"] = {{"Regex", "a+"}};
              }),
              HasSubstr("replaces the pattern {\"Regex\":\"a+\"}"));
  EXPECT_THAT(error([](PlainJson& j) { j["pre_tokenizer"]["prepend_scheme"] = "last"; }),
              HasSubstr("prepend_scheme is \"last\""));
  EXPECT_THAT(error([](PlainJson& j) { j["pre_tokenizer"]["type"] = "Split"; }),
              HasSubstr("expected \"Metaspace\""));
  EXPECT_THAT(error([](PlainJson& j) { j["post_processor"]["pair"].erase(0); }),
              HasSubstr("does not make [CLS] A [SEP]"));
  fs::remove(folder_ / "tokenizer.json");
  const std::string model = read_file(small("xlmr") / "sentencepiece.bpe.model");
  write_file(folder_ / "sentencepiece.bpe.model", model.substr(0, model.size() - 1));
  EXPECT_THAT(this->error(), HasSubstr("is not a SentencePiece model: it is cut off before byte"));
  write_file(folder_ / "sentencepiece.bpe.model", "");
  EXPECT_THAT(this->error(), HasSubstr("type 1 with 0 pieces, expected type 1 (unigram)"));
}

// --- the fast paths and their plain references ---

std::vector<std::array<std::int64_t, 2>> pieces_of(const auto& work) {
  std::vector<std::array<std::int64_t, 2>> out;
  for (const auto& piece : work.pieces) out.push_back({piece.id, piece.end});
  return out;
}

std::string random_word(std::mt19937& rng, std::string_view letters, std::size_t most) {
  std::string word;
  for (std::size_t size = 1 + rng() % most; word.size() < size;)
    word += letters[rng() % letters.size()];
  return word;
}

TEST(Bpe, EqualsItsReference) {
  std::mt19937 rng(7);
  std::vector<std::string> vocabulary;
  std::array<std::int32_t, 256> byte_ids{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    byte_ids[byte] = static_cast<std::int32_t>(byte);
    append_utf8(byte_symbol(static_cast<unsigned char>(byte)), vocabulary.emplace_back());
  }
  std::vector<Bpe::Merge> merges;
  std::set<std::string> known(vocabulary.begin(), vocabulary.end());
  while (merges.size() < 300) {
    const auto pick = [&] {
      return static_cast<std::int32_t>(rng() % 2 ? 'a' + rng() % 4 : rng() % vocabulary.size());
    };
    const std::int32_t left = pick(), right = pick();
    const std::string token =
        vocabulary[static_cast<std::size_t>(left)] + vocabulary[static_cast<std::size_t>(right)];
    if (!known.insert(token).second) continue;
    merges.push_back({left, right, static_cast<std::int32_t>(vocabulary.size())});
    vocabulary.push_back(token);
  }
  const Bpe bpe(vocabulary, byte_ids, merges, false);
  Bpe::Work fast, plain;
  for (int i = 0; i < 3000; ++i) {
    const std::string word = random_word(rng, "aaabbcd\xc3\xa9", 40);
    bpe.encode(word, fast);
    bpe.encode_reference(word, plain);
    ASSERT_EQ(pieces_of(fast), pieces_of(plain)) << word;
  }
}

TEST(Unigram, EqualsItsReference) {
  std::mt19937 rng(7);
  std::vector<std::string> vocabulary = {"<unk>"};
  std::vector<double> scores = {0};
  std::set<std::string> known;
  while (vocabulary.size() < 200) {
    const std::string token = random_word(rng, "abcd", 5);
    if (!known.insert(token).second) continue;
    vocabulary.push_back(token);
    scores.push_back(-static_cast<double>(rng() % 12));  // many ties
  }
  const Unigram unigram(vocabulary, scores, 0);
  Unigram::Work fast, plain;
  for (int i = 0; i < 3000; ++i) {
    const std::string text = random_word(rng, "aabbccddx", 40);
    unigram.encode(text, fast);
    unigram.encode_reference(text, plain);
    ASSERT_EQ(pieces_of(fast), pieces_of(plain)) << text;
  }
}

TEST(Unigram, UnknownNeighboursThatMakeATokenAreThatToken) {
  const std::vector<std::string> vocabulary = {"<unk>", "xy", "a"};
  const std::vector<double> scores = {0, -1000, -1};
  Unigram::Work work;
  Unigram(vocabulary, scores, 0).encode("axyaxx", work);
  EXPECT_EQ(pieces_of(work),
            (std::vector<std::array<std::int64_t, 2>>{{2, 1}, {1, 3}, {2, 4}, {0, 6}}));
}

TEST(Charsmap, ClustersAreThoseOfIcu) {
  std::mt19937 rng(7);
  constexpr char32_t kCharacters[] = {'a',    '\r',    '\n',    0x300,   0x200d, 0x1f468, 0x2764,
                                      0xfe0f, 0x1f1eb, 0x1f1f7, 0x1100,  0x1161, 0x11a8,  0xac00,
                                      0xac01, 0x903,   0x600,   0x1f3fb, 0x0e33, 0xa9};
  UErrorCode status = U_ZERO_ERROR;
  const std::unique_ptr<icu::BreakIterator> breaks(
      icu::BreakIterator::createCharacterInstance(icu::Locale::getRoot(), status));
  ASSERT_TRUE(U_SUCCESS(status));
  for (int i = 0; i < 5000; ++i) {
    std::vector<Encoding::Character> characters;
    icu::UnicodeString text;
    for (std::uint32_t j = 0; j < 8; ++j) {
      const char32_t c = kCharacters[rng() % std::size(kCharacters)];
      characters.push_back({c, j, 0, 0});
      text.append(static_cast<UChar32>(c));
    }
    breaks->setText(text);
    for (std::size_t begin = 0; begin < characters.size();) {
      begin = grapheme_end(characters, begin);
      ASSERT_EQ(text.countChar32(0, breaks->next()), static_cast<int32_t>(begin)) << i;
    }
  }
}

// --- saving ---

TEST_F(FamilyGolden, SavesWhatItRead) {
  for (const char* name : {"tiny-roberta", "tiny-xlmr", "tiny-xlmr-hub"}) {
    const testing::TemporaryFolder folder;
    Tokenizer::load(model(name)).save(folder.path());
    for (const auto& file : fs::directory_iterator(model(name))) {
      const std::string leaf = file.path().filename();
      if (leaf == "config.json" || leaf == "model.safetensors") continue;
      SCOPED_TRACE(fmt::format("{} of {}", leaf, name));
      const std::string got = read_file(folder / leaf), want = read_file(file.path());
      if (leaf.ends_with(".json")) {
        EXPECT_EQ(PlainJson::diff(PlainJson::parse(want), PlainJson::parse(got)),
                  PlainJson::array());
      } else {
        EXPECT_EQ(got, want);
      }
    }
  }
}

}  // namespace
}  // namespace tandem::text
