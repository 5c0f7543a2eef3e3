// SentencePiece's unigram between added tokens, as XLM-R and DeBERTa-v3 have it: the normalizer's
// steps, words that begin with "▁" (Metaspace), Viterbi (unigram.h); and what the files of a
// tokenizer contain about them. Internal to text.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/text/tokenizer_model.h"

namespace tandem::text {

std::unique_ptr<TokenizerModel> make_unigram_model(const TokenizerDefinition& definition);

// unigram_files.cc; documented at TokenizerModelType.
bool is_unigram(std::string_view named, const nlohmann::ordered_json& settings,
                const simdjson::dom::object& model);
void read_unigram_json(const TokenizerJsonSource& source, TokenizerDefinition& definition);
void read_sentencepiece_model(std::string_view bytes, const std::filesystem::path& path,
                              TokenizerDefinition& definition);
void apply_unigram_config(const nlohmann::ordered_json& config, const std::filesystem::path& path,
                          TokenizerDefinition& definition);
nlohmann::ordered_json unigram_sections(const TokenizerDefinition& definition);
void write_unigram_config(const TokenizerDefinition& definition, nlohmann::ordered_json& config);
std::vector<VocabularyFile> unigram_vocabulary_files(const TokenizerDefinition& definition);

// The file of DeBERTa-v3, whose ids are those of its pieces; XLM-R's has other names and ids.
inline constexpr std::string_view kDebertaVocabulary = "spm.model";

inline constexpr TokenizerModelType kUnigramType = {.name = "Unigram",
                                                    .vocabulary_file = "sentencepiece.bpe.model",
                                                    .tokenizer_class = "XLMRobertaTokenizer",
                                                    .special_tokens = {.unk = "<unk>",
                                                                       .sep = "</s>",
                                                                       .pad = "<pad>",
                                                                       .cls = "<s>",
                                                                       .mask = "<mask>",
                                                                       .bos = "<s>",
                                                                       .eos = "</s>",
                                                                       .mask_takes_blanks = true},
                                                    .is_type_of = is_unigram,
                                                    .read_json = read_unigram_json,
                                                    .read_vocabulary = read_sentencepiece_model,
                                                    .apply_config = apply_unigram_config,
                                                    .sections = unigram_sections,
                                                    .write_config = write_unigram_config,
                                                    .vocabulary_files = unigram_vocabulary_files,
                                                    .make = make_unigram_model};

}  // namespace tandem::text
