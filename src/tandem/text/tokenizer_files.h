// The files of a tokenizer directory: what they say, and writing them again.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tandem/text/added_tokens.h"
#include "tandem/text/normalizer.h"
#include "tandem/text/tokenizer.h"

namespace tandem::text {

struct TokenizerModelType;  // tokenizer_model.h

// Ids are below this, so that a file cannot ask for more memory than it has bytes by much.
inline constexpr std::size_t kMostTokenIds = std::size_t{1} << 24;

struct WordPieceOptions {
  std::string continuing_subword_prefix = "##";
  std::size_t max_input_chars_per_word = 100;
  NormalizerOptions normalizer;
};

// Everything that Tokenizer needs to know, whichever files it came from.
struct TokenizerDefinition {
  const TokenizerModelType* model_type = nullptr;  // never null once it was read
  TokenizerOptions options;
  // [id] → token of the WordPiece model; "" where an id is not in use.
  std::vector<std::string> vocabulary;
  std::string unk_token = "[UNK]", sep_token = "[SEP]", pad_token = "[PAD]", cls_token = "[CLS]",
              mask_token = "[MASK]";
  std::int32_t unk_id = 0;
  SequenceTemplate frame;                // with the ids of the other special tokens
  WordPieceOptions wordpiece;            // of that model
  std::vector<AddedToken> added_tokens;  // by id; always holds the special tokens
  std::size_t model_max_length = Tokenizer::kUnlimited;
  std::string tokenizer_class = "BertTokenizer";

  // The files as they were read, to be written again with their unknown keys; null when absent.
  // tokenizer_json is without the vocabulary.
  nlohmann::ordered_json tokenizer_json, tokenizer_config, special_tokens_map;
};

// Documented at Tokenizer::load.
TokenizerDefinition read_tokenizer_definition(const std::filesystem::path& directory,
                                              const TokenizerOptions& options);

// Documented at Tokenizer::save.
void write_tokenizer_definition(const TokenizerDefinition& definition,
                                const std::filesystem::path& directory);

}  // namespace tandem::text
