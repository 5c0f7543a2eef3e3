// The post_processor of tokenizer.json: which special tokens frame a sequence, and whether offsets
// are trimmed. Internal to text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "tandem/text/added_token_files.h"

namespace tandem::text {

struct OpenFrame;
struct TokenizerDefinition;

struct PostProcessor {
  std::string cls, sep;
  std::uint32_t num_separators = 1;  // as in SequenceTemplate
  std::int32_t second_type_id = 1;
  // Set where offsets lose their white space (byte-level BPE): the value of add_prefix_space there.
  std::optional<bool> trims_with_prefix_space;
};

// Reads that of definition.tokenizer_json, and sets what frames a sequence. It is BertProcessing,
// RobertaProcessing, TemplateProcessing, or a Sequence of ByteLevel and one of them; throws
// DataError that names `path` for anything else.
PostProcessor apply_post_processor(const std::filesystem::path& path,
                                   TokenizerDefinition& definition);

// The same where a text may have fewer special tokens (definition.open_frame): none, ByteLevel
// alone, or a template with one token in front of a text or behind it.
PostProcessor apply_open_post_processor(const std::filesystem::path& path,
                                        TokenizerDefinition& definition);

// Sets the ids of the frame's tokens. Throws DataError that names `path` for a token without one.
void find_ids(const std::filesystem::path& path, const TokenIds& ids, OpenFrame& frame);

// TemplateProcessing's section.
nlohmann::ordered_json template_processing(const std::string& cls, std::int32_t cls_id,
                                           const std::string& sep, std::int32_t sep_id,
                                           std::uint32_t num_separators,
                                           std::int32_t second_type_id);

}  // namespace tandem::text
