// The post_processor of tokenizer.json: which special tokens frame a sequence, and whether offsets
// are trimmed. Internal to text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace tandem::text {

struct PostProcessor {
  std::string cls, sep;
  std::uint32_t num_separators = 1;  // as in SequenceTemplate
  std::int32_t second_type_id = 1;
  // Set where offsets lose their white space (byte-level BPE): the value of add_prefix_space there.
  std::optional<bool> trims_with_prefix_space;
};

// Of BertProcessing, RobertaProcessing, TemplateProcessing, or a Sequence of ByteLevel and one of
// them. Throws DataError that names `path` for anything else.
PostProcessor read_post_processor(const nlohmann::ordered_json& section,
                                  const std::filesystem::path& path);

// TemplateProcessing's section.
nlohmann::ordered_json template_processing(const std::string& cls, std::int32_t cls_id,
                                           const std::string& sep, std::int32_t sep_id,
                                           std::uint32_t num_separators,
                                           std::int32_t second_type_id);

}  // namespace tandem::text
