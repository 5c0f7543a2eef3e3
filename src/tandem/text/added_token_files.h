// Added tokens as the files of a tokenizer have them. Internal to text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tandem/text/added_tokens.h"

namespace tandem::text {

// By text.
using TokenIds = std::unordered_map<std::string_view, std::int32_t>;

// The id of an added token that has none yet.
inline constexpr std::int32_t kNoTokenId = std::numeric_limits<std::int32_t>::min();

// An object, or the text alone. `special`: whether tokens are special where the file
// has no flag. Throws DataError that names `path`.
AddedToken parse_added_token(const nlohmann::ordered_json& json, const std::filesystem::path& path,
                             bool special);

// Keeps the last of several added tokens with one text, under its id, and none without a text:
// tokenizers ignores them.
void keep_last_of_each(std::vector<AddedToken>& tokens);

// Tokens without an id get that of the vocabulary, which has `vocabulary` ids, or the next free
// one.
void number_added_tokens(const TokenIds& ids, std::size_t vocabulary,
                         std::vector<AddedToken>& tokens);

// Throws DataError that names `path` for an id out of range, and for another one than the
// vocabulary's.
void check_added_tokens(const TokenIds& ids, std::size_t vocabulary,
                        const std::vector<AddedToken>& tokens, const std::filesystem::path& path);

}  // namespace tandem::text
