// Every key of config.json that transformers reads or writes for these families, and what tandem
// does with it; docs/model_keys.md lists the same rows.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/known_keys.h"

namespace tandem::models {

struct Family;

// The scope is a model_type.
std::span<const KnownKey> model_keys();

// Throws ConfigError for a refused value, and appends a note for unknown keys. Keys of the family's
// own table are known.
void check_model_keys(const nlohmann::json& config, const Family& family, std::string_view where,
                      std::vector<std::string>& notes);

}  // namespace tandem::models
