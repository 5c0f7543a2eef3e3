// Model directories: what Hugging Face's from_pretrained and save_pretrained do.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/models/model_config.h"
#include "tandem/nn/parameter_layout.h"

namespace tandem::models {

// What happened to the names of file and model; for the start-up messages.
struct LoadReport {
  std::filesystem::path file;
  std::vector<std::string>
      newly_initialized;  // in the model, not in the file ("You should probably TRAIN this model…")
  std::vector<std::string> unused;   // in the file, expected by nobody
  std::vector<std::string> ignored;  // in the file, known not to belong to this task: pooler,
                                     // pre-training heads, position_ids
};

// Fills `weights` ([layout.size()] f32) from <model_dir>/model.safetensors. Accepts F32, F16 and
// BF16; names with or without the base prefix ("bert.", "distilbert."); the old names gamma and
// beta. Parameters that the file lacks are drawn from `seed` as torch draws them (torch_random.h)
// in the order of Hugging Face's modules. Throws IoError, and DataError for an invalid file, a
// shape that differs (names tensor, both shapes and the config), a dtype that is no float, or a
// file without any parameter of the model.
LoadReport load_pretrained(const std::filesystem::path& model_dir, const ModelConfig& config,
                           const nn::ParameterLayout& layout, std::span<float> weights,
                           std::uint64_t seed);

// Draws all parameters anew: weights and embeddings ~ N(0, initializer_range), biases 0, LayerNorm
// 1 and 0, padding row 0.
void initialize_parameters(const ModelConfig& config, const nn::ParameterLayout& layout,
                           std::span<float> weights, std::uint64_t seed);

// Writes model.safetensors (f32) and config.json into an existing directory, each atomically.
// Throws IoError.
void save_pretrained(const std::filesystem::path& model_dir, const ModelConfig& config,
                     std::string_view architecture, const nn::ParameterLayout& layout,
                     std::span<const float> weights);

}  // namespace tandem::models
