// The output activation of a cross-encoder, in every form in which sentence-transformers 2 to 6
// keeps it: config_sentence_transformers.json, config.json and its older key.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/models/encoder/model_config.h"
#include "tandem/models/heads/sentence_files.h"

namespace tandem::models {

struct CrossEncoderFiles {
  DenseActivation activation = DenseActivation::kSigmoid;
  bool from_files = false;  // false: the default for the number of labels
  std::vector<std::string> warnings = {};
};

// Sigmoid for one label, the identity for several, unless a file names another one. A name that
// does not begin with "torch." is not trusted: it adds a warning. Throws DataError that names the
// file for an activation of torch that tandem does not compute.
CrossEncoderFiles read_cross_encoder_files(const std::filesystem::path& directory,
                                           const ModelConfig& config, std::size_t num_labels);

// config.json of a saved cross-encoder: `config` with the key "sentence_transformers" that
// sentence-transformers 4 and later read. `version`: the oldest one that reads these files.
std::string with_cross_encoder_key(const std::string& config, DenseActivation activation,
                                   std::string_view version = "4.0.0");

}  // namespace tandem::models
