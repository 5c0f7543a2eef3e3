// A base model and an adapter of PEFT as one model directory.
#pragma once

#include <cstddef>
#include <filesystem>

namespace tandem::models {

struct MergeSources {
  std::filesystem::path base;     // directory of the base model
  std::filesystem::path adapter;  // adapter_config.json and adapter_model.safetensors
  std::filesystem::path config;   // holds the config.json of the merged model's class and labels
};

struct MergeReport {
  std::size_t adapted = 0;   // matrices with an adapter
  std::size_t replaced = 0;  // parameters of modules that were trained whole
};

// Writes model.safetensors, config.json and the files of tokenizer and sentence-transformers into
// an existing directory. Works on the tensors of the files, so for any architecture: W + s·B·A in
// f32, and every other tensor as the base has it. Throws IoError, ConfigError (LoraConfig::load(),
// ModelConfig::load()), and DataError for an adapter that does not fit the base; then no file of
// weights is written.
MergeReport write_merged_model(const MergeSources& sources,
                               const std::filesystem::path& output_dir);

}  // namespace tandem::models
