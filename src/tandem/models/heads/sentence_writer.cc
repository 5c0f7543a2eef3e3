#include "tandem/models/heads/sentence_writer.h"

#include <fmt/format.h>

#include <algorithm>

#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"
#include "tandem/formats/safetensors.h"
#include "tandem/formats/torch_writer.h"
#include "tandem/models/heads/module_files.h"

namespace tandem::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

void write_pooling(const fs::path& folder, const SentenceFiles& files, std::size_t hidden_size) {
  ordered_json config{{"word_embedding_dimension", hidden_size}};
  for (const char* key : {"pooling_mode_cls_token", "pooling_mode_mean_tokens",
                          "pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens",
                          "pooling_mode_weightedmean_tokens", "pooling_mode_lasttoken"})
    config[key] = false;
  for (const PoolingName& known : pooling_names()) {
    if (std::find(files.poolings.begin(), files.poolings.end(), known.pooling) !=
        files.poolings.end())
      config[known.old_key] = true;
  }
  config["include_prompt"] = files.include_prompt;
  write_json(folder / "config.json", config);
}

void write_dense(const fs::path& folder, const DenseModule& dense) {
  write_json(folder / "config.json", {{"in_features", dense.in_features},
                                      {"out_features", dense.out_features},
                                      {"bias", !dense.bias.empty()},
                                      {"activation_function", activation_path(dense.activation)}});
  std::vector<formats::TensorView> tensors;
  if (!dense.bias.empty()) {
    tensors.push_back({.name = "linear.bias",
                       .dtype = formats::DType::kF32,
                       .shape = {dense.out_features},
                       .bytes = std::as_bytes(std::span(dense.bias))});
  }
  tensors.push_back({.name = "linear.weight",
                     .dtype = formats::DType::kF32,
                     .shape = {dense.out_features, dense.in_features},
                     .bytes = std::as_bytes(std::span(dense.weight))});
  formats::write_safetensors(folder / "model.safetensors", tensors);
  // sentence-transformers 2 reads this file alone.
  formats::TorchItem::Dict state{.entries = {}, .is_ordered = true};
  for (const formats::TensorView& tensor : tensors)
    state.set(tensor.name, formats::TorchItem{tensor});
  formats::write_torch_file(folder / "pytorch_model.bin", formats::TorchItem{std::move(state)});
}

}  // namespace

void write_sentence_files(const fs::path& directory, const SentenceFiles& files,
                          std::size_t hidden_size) {
  ordered_json modules = ordered_json::array();
  const auto add = [&](const std::string& path, const char* type) {
    const std::size_t index = modules.size();
    modules.push_back({{"idx", index},
                       {"name", std::to_string(index)},
                       {"path", path},
                       {"type", fmt::format("sentence_transformers.models.{}", type)}});
    if (!path.empty()) fs::create_directories(directory / path);
    return directory / path;
  };
  add("", "Transformer");
  write_pooling(add("1_Pooling", "Pooling"), files, hidden_size);
  for (const EmbeddingModule& module : files.modules) {
    const std::size_t index = modules.size();
    if (const auto* dense = std::get_if<DenseModule>(&module))
      write_dense(add(fmt::format("{}_Dense", index), "Dense"), *dense);
    else
      add(fmt::format("{}_Normalize", index), "Normalize");
  }
  write_json(directory / "modules.json", modules);
  ordered_json length{{"max_seq_length", nullptr}, {"do_lower_case", files.do_lower_case}};
  if (files.max_seq_length) length["max_seq_length"] = *files.max_seq_length;
  write_json(directory / "sentence_bert_config.json", length);
  ordered_json config{
      {"__version__",
       {{"sentence_transformers", "2.0.0"}, {"transformers", "4.6.1"}, {"pytorch", "1.8.1"}}},
      {"prompts", files.prompts},
      {"default_prompt_name", nullptr},
      {"similarity_fn_name", files.similarity}};
  if (files.default_prompt_name) config["default_prompt_name"] = *files.default_prompt_name;
  write_json(directory / "config_sentence_transformers.json", config);
}

}  // namespace tandem::models
