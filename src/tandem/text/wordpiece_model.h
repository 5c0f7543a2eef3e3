// BERT's stages between added tokens: normalizer (normalizer.h), words at white space and
// punctuation, WordPiece (wordpiece.h); and what the files of a tokenizer contain about them.
// Internal to text.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/text/tokenizer_model.h"

namespace tandem::text {

std::unique_ptr<TokenizerModel> make_wordpiece_model(const TokenizerDefinition& definition);

// wordpiece_files.cc; documented at TokenizerModelType.
bool is_wordpiece(std::string_view named, const nlohmann::ordered_json& settings,
                  const simdjson::dom::object& model);
void read_wordpiece_json(const TokenizerJsonSource& source, TokenizerDefinition& definition);
void read_vocab_txt(std::string_view text, const std::filesystem::path& path,
                    TokenizerDefinition& definition);
void apply_wordpiece_config(const nlohmann::ordered_json& config, const std::filesystem::path& path,
                            TokenizerDefinition& definition);
// TokenizerOptions::lower_case. Accents stay where the files leave them.
void lower_case_in_front(const std::filesystem::path& directory, TokenizerDefinition& definition);
nlohmann::ordered_json wordpiece_sections(const TokenizerDefinition& definition);
void write_wordpiece_config(const TokenizerDefinition& definition, nlohmann::ordered_json& config);
std::vector<VocabularyFile> wordpiece_vocabulary_files(const TokenizerDefinition& definition);

inline constexpr TokenizerModelType kWordPieceType = {
    .name = "WordPiece",
    .vocabulary_file = "vocab.txt",
    .tokenizer_class = "BertTokenizer",
    .special_tokens =
        {.unk = "[UNK]", .sep = "[SEP]", .pad = "[PAD]", .cls = "[CLS]", .mask = "[MASK]"},
    .is_type_of = is_wordpiece,
    .read_json = read_wordpiece_json,
    .read_vocabulary = read_vocab_txt,
    .apply_config = apply_wordpiece_config,
    .sections = wordpiece_sections,
    .write_config = write_wordpiece_config,
    .vocabulary_files = wordpiece_vocabulary_files,
    .make = make_wordpiece_model};

}  // namespace tandem::text
