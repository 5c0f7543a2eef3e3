// Byte-level BPE between added tokens, as RoBERTa and decoders have it: words (byte_level_words.h),
// merges of their bytes (bpe.h), offsets without the blanks around words; and what the files of a
// tokenizer contain about them. Internal to text.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/text/tokenizer_model.h"

namespace tandem::text {

std::unique_ptr<TokenizerModel> make_bpe_model(const TokenizerDefinition& definition);

// bpe_files.cc; documented at TokenizerModelType.
bool is_bpe(std::string_view named, const nlohmann::ordered_json& settings,
            const simdjson::dom::object& model);
void read_bpe_json(const TokenizerJsonSource& source, TokenizerDefinition& definition);
// vocab.json; merges.txt must be in the same folder.
void read_vocab_json(std::string_view text, const std::filesystem::path& path,
                     TokenizerDefinition& definition);
void apply_bpe_config(const nlohmann::ordered_json& config, const std::filesystem::path& path,
                      TokenizerDefinition& definition);
nlohmann::ordered_json bpe_sections(const TokenizerDefinition& definition);
void write_bpe_config(const TokenizerDefinition& definition, nlohmann::ordered_json& config);
std::vector<VocabularyFile> bpe_vocabulary_files(const TokenizerDefinition& definition);

inline constexpr TokenizerModelType kBpeType = {.name = "BPE",
                                                .vocabulary_file = "vocab.json",
                                                .tokenizer_class = "RobertaTokenizer",
                                                .special_tokens = {.unk = "<unk>",
                                                                   .sep = "</s>",
                                                                   .pad = "<pad>",
                                                                   .cls = "<s>",
                                                                   .mask = "<mask>",
                                                                   .bos = "<s>",
                                                                   .eos = "</s>",
                                                                   .normalized = true,
                                                                   .mask_takes_blanks = true},
                                                .is_type_of = is_bpe,
                                                .read_json = read_bpe_json,
                                                .read_vocabulary = read_vocab_json,
                                                .apply_config = apply_bpe_config,
                                                .sections = bpe_sections,
                                                .write_config = write_bpe_config,
                                                .vocabulary_files = bpe_vocabulary_files,
                                                .make = make_bpe_model};

}  // namespace tandem::text
