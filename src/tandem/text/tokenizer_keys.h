// Every key of the files of a tokenizer, and what tandem does with it; docs/model_keys.md lists
// the same rows. Internal to text.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/known_keys.h"

namespace tandem::text {

struct TokenizerDefinition;

std::span<const KnownKey> tokenizer_config_keys();
std::span<const KnownKey> special_tokens_map_keys();
// The scope is "file" for the sections of tokenizer.json, a section's name, or a component's type.
std::span<const KnownKey> tokenizer_json_keys();

// Check a file that was read. Each throws DataError for a refused value and appends a note for
// unknown keys. `json` may be null.
void check_tokenizer_config(const nlohmann::ordered_json& json, const std::filesystem::path& path,
                            std::vector<std::string>& notes);
void check_special_tokens_map(const nlohmann::ordered_json& json, const std::filesystem::path& path,
                              std::vector<std::string>& notes);
// `model` is the type of the model, which old files do not name; `config` is
// tokenizer_config.json, whose sides of truncation and padding win.
void check_tokenizer_json(const nlohmann::ordered_json& json, std::string_view model,
                          const nlohmann::ordered_json& config, const std::filesystem::path& path,
                          std::vector<std::string>& notes);

// Refuses padding on the left for an encoder, which counts positions from the begin of the padding;
// those of a decoder are relative.
void check_padding_side(const TokenizerDefinition& definition,
                        const std::filesystem::path& directory);

}  // namespace tandem::text
