// JSON of files that others wrote, in which no object may have a key twice (JSON itself leaves open
// which of the two would count). For sources of this library.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tandem::formats {

// Throws DataError that names `where`, for example "model.safetensors: the header".
nlohmann::json parse_unique_json(std::string_view text, const std::string& where);

}  // namespace tandem::formats
