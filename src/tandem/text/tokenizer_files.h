// The files of a tokenizer directory: their contents, and writing them again.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tandem/core/json.h"
#include "tandem/text/added_tokens.h"
#include "tandem/text/bpe.h"
#include "tandem/text/byte_level_words.h"
#include "tandem/text/charsmap.h"
#include "tandem/text/normalizer.h"
#include "tandem/text/tokenizer.h"

namespace tandem::text {

struct TokenizerModelType;  // tokenizer_model.h

// Ids are below this, so that a file cannot ask for more memory than it has bytes by much: most ids
// are in use.
inline constexpr std::size_t kMostTokenIds = std::size_t{1} << 24;
constexpr std::size_t most_ids(std::size_t entries) {
  return std::min(kMostTokenIds, 4 * entries + 65536);
}

struct WordPieceOptions {
  std::string continuing_subword_prefix = "##";
  std::size_t max_input_chars_per_word = 100;
  NormalizerOptions normalizer;
  // add_prefix_space of a post-processor that trims white space from offsets.
  std::optional<bool> trims_with_prefix_space;
};

struct BpeOptions {
  std::array<std::int32_t, 256> byte_ids{};  // [byte] → token
  std::vector<Bpe::Merge> merges;            // by rank
  bool ignore_merges = false;
  bool add_prefix_space = false;
  WordRule words = WordRule::kGpt2;
  bool single_digits = false;  // with the pre-tokenizer Digits in front
  bool nfc = false;            // with the normalizer NFC
  // The post-processor: offsets lose white space, but not that of add_prefix_space.
  bool trim_offsets = true;
  bool trim_with_prefix_space = false;
};

// White space at the ends is removed.
struct StripStep {
  bool left = true, right = true;
};

// A text becomes another.
struct ReplaceStep {
  enum class Pattern : std::uint8_t {
    kText,
    kBlanks,      // two blanks or more
    kWhiteSpace,  // two characters of white space or more, or one that ends a line, or a tab
  };
  Pattern pattern = Pattern::kText;
  std::u32string text, content;  // `text`: for kText alone
};

struct NfcStep {
  std::shared_ptr<const CharacterTable> characters;
};

using NormalizerStep =
    std::variant<std::shared_ptr<const Charsmap>, StripStep, ReplaceStep, NfcStep>;

// Where Metaspace puts its character in front: every stretch, the beginning of the text, nowhere.
enum class PrependScheme : std::uint8_t { kAlways, kFirst, kNever };

struct UnigramOptions {
  std::vector<double> scores;              // [id]
  std::vector<NormalizerStep> normalizer;  // in order
  bool splits_white_space = false;         // before Metaspace
  char32_t replacement = U'\u2581';
  PrependScheme prepend = PrependScheme::kAlways;
  bool split = true;
  std::string sentencepiece_file;  // the file's name and its bytes; "" when absent
  std::string sentencepiece_model;
  nlohmann::ordered_json made_sections;  // for tokenizer.json where it is absent
};

// Special tokens in front of a text and behind it; "": none. The ids are known once all files are
// read.
struct OpenFrame {
  // Between the texts of a pair.
  struct Separators {
    std::string token = {};
    std::uint32_t count = 0;
    std::optional<std::int32_t> id = {};
  };

  std::string begin, end;
  std::optional<Separators> separators = Separators{};  // nothing: the file's pairs are others
  TextFrame ids = {};
};

// Everything that Tokenizer needs to know, whichever files it came from.
struct TokenizerDefinition {
  const TokenizerModelType* model_type = nullptr;  // never null once it was read
  TokenizerOptions options;
  // [id] → token of the model; "" where an id is not in use.
  std::vector<std::string> vocabulary;
  // The last two are empty where the family has none.
  std::string unk_token, sep_token, pad_token, cls_token, mask_token, bos_token, eos_token;
  std::int32_t unk_id = 0;
  SequenceTemplate frame;                // with the ids of the other special tokens
  std::optional<OpenFrame> open_frame;   // a decoder has it instead of `frame`
  WordPieceOptions wordpiece;            // options of that model
  BpeOptions bpe;                        // options of that model
  UnigramOptions unigram;                // options of that model
  std::vector<AddedToken> added_tokens;  // by id; always holds the special tokens
  std::size_t model_max_length = Tokenizer::kUnlimited;
  std::string tokenizer_class;  // to be saved
  // Whether tokenizer.json alone defines how texts become tokens; else the class sets some of it.
  bool exact = false;
  // The template of conversations, in Jinja; and whether it has a file of its own.
  std::string chat_template;
  bool chat_template_file = false;
  bool token_types = true;         // whether the second text of a pair has its own token type
  std::vector<std::string> notes;  // what a user of the files should know, one line each

  // The files as they were read, to be written again with their unknown keys; null when absent.
  // tokenizer_json is without the vocabulary and the merges.
  nlohmann::ordered_json tokenizer_json, tokenizer_config, special_tokens_map;
};

// The keys of special tokens in the files of settings.
inline constexpr std::pair<const char*, std::string TokenizerDefinition::*> kSpecialTokens[] = {
    {"unk_token", &TokenizerDefinition::unk_token},
    {"sep_token", &TokenizerDefinition::sep_token},
    {"pad_token", &TokenizerDefinition::pad_token},
    {"cls_token", &TokenizerDefinition::cls_token},
    {"mask_token", &TokenizerDefinition::mask_token},
    {"bos_token", &TokenizerDefinition::bos_token},
    {"eos_token", &TokenizerDefinition::eos_token}};

// The vocabulary as a JSON object of tokens and ids.
nlohmann::ordered_json vocabulary_json(const TokenizerDefinition& definition);

// Documented at Tokenizer::load.
TokenizerDefinition read_tokenizer_definition(const std::filesystem::path& directory,
                                              const TokenizerOptions& options);

// Documented at Tokenizer::save.
void write_tokenizer_definition(const TokenizerDefinition& definition,
                                const std::filesystem::path& directory);

}  // namespace tandem::text
