// The configuration of a model that no file has: --model_type and --config_overrides of run_mlm.py.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tandem/models/encoder/family.h"

namespace tandem::models {

// A config.json text with the defaults of the family and `overrides`, "key=value,key=value", as
// PretrainedConfig.update_from_string() reads them: keys of the family's config.json and
// tie_word_embeddings; numbers, names of activations, and true, 1, y, yes or false, 0, n, no.
// ModelConfig::parse() checks the values. Throws ConfigError for a family that `known` lacks, an
// unknown key, and a value of another type.
std::string new_config_json(std::string_view model_type, std::string_view overrides,
                            std::span<const Family* const> known = families());

}  // namespace tandem::models
