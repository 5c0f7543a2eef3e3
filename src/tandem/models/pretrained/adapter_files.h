// Adapters as PEFT keeps them: adapter_config.json (encoder/lora_config.h) and
// adapter_model.safetensors.
//
// The tensors are "base_model.model." and the path of a module, with ".lora_A.weight" or
// ".lora_B.weight", and the parameters of modules that were trained whole. A model that was trained
// without a head, as those of sentence-transformers, has no base prefix in its paths.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/models/encoder/lora_config.h"
#include "tandem/models/encoder/model_config.h"
#include "tandem/models/pretrained/torch_random.h"
#include "tandem/models/pretrained/weight_files.h"
#include "tandem/nn/parameter_layout.h"

namespace tandem::models {

// adapter_model.safetensors, or the .bin of older versions. Throws DataError if both are missing.
std::filesystem::path find_adapter_weights(const std::filesystem::path& directory);

// The names of the parameters that the weights of a model directory hold, under today's names of
// transformers. For LoraConfig::base_tensors.
std::set<std::string, std::less<>> parameter_names(const std::filesystem::path& model_dir,
                                                   const ModelConfig& config);

// The initial values of all adapters of the layout, as PEFT draws them once the model is loaded: A
// uniform up to 1/√in_features, or normal with the deviation 1/r; B 0.
void draw_adapters(const LoraConfig& lora, const ModelConfig& config,
                   const nn::ParameterLayout& layout, std::span<float> weights,
                   TorchGenerator& generator);

// The parameters that an adapter gave values to, and its tensors without a parameter.
struct AdapterReport {
  std::set<std::string, std::less<>> filled;
  std::vector<std::string> unused;
};

// A weight that an adapter is added to.
struct AdaptedWeight {
  std::vector<std::size_t> shape;  // [out, in], or [in, out] if transposed
  bool transposed = false;
};

// Whether the weight of a module is stored [in, out], as GPT-2's Conv1D. `module` with or without
// the base prefix.
bool is_stored_transposed(std::string_view module, const ModelConfig& config,
                          const nn::ParameterLayout& layout);

// The tensors of an adapter directory, by the modules that they are for.
class AdapterTensors {
 public:
  // The matrices of a module: "bert.encoder.layer.0.attention.self.query".
  struct Module {
    std::string name;
    const formats::TensorView* down = nullptr;
    const formats::TensorView* up = nullptr;
  };

  // Throws IoError, and DataError for a file that is missing or invalid, and for one matrix without
  // the other.
  explicit AdapterTensors(const std::filesystem::path& directory);

  const std::filesystem::path& path() const { return files_.path(); }
  std::size_t size() const { return files_.tensors().size(); }
  const std::vector<Module>& modules() const { return modules_; }
  // Those of modules that were trained whole, by parameter.
  const std::map<std::string, const formats::TensorView*>& whole() const { return whole_; }

  // values += s·B·A, or its transpose, with sums in f64. Throws DataError unless the matrices have
  // the module's rank and fit the weight.
  void add_to(const Module& module, const LoraConfig& lora, const AdaptedWeight& weight,
              std::span<float> values) const;

 private:
  void check(const Module& module, std::size_t rank, const AdaptedWeight& weight) const;

  WeightFiles files_;
  std::vector<Module> modules_;
  std::map<std::string, const formats::TensorView*> whole_;
};

// Fills the trained parameters of a model with config.lora from an adapter directory. Throws
// IoError, and DataError for a file that is missing or invalid, for another shape, and for a
// trained parameter that the file lacks.
AdapterReport load_adapter(const std::filesystem::path& directory, const ModelConfig& config,
                           const nn::ParameterLayout& layout, std::span<float> weights);

// Adds an adapter to the weights of a model without config.lora: W + s·B·A, and the whole modules.
// Throws the errors of AdapterTensors and LoraConfig::load().
AdapterReport merge_adapter(const std::filesystem::path& directory, const ModelConfig& config,
                            const nn::ParameterLayout& layout, std::span<float> weights);

// How the adapter in a directory differs from the trained parameters of a model with `lora`, for
// people: "lora_r is 8, expected 16". Empty: one continues the other. Throws the errors of
// LoraConfig::load() and WeightFiles.
std::vector<std::string> adapter_differences(const std::filesystem::path& directory,
                                             const LoraConfig& lora,
                                             const nn::ParameterLayout& layout);

// The trained parameters in a directory that save_pretrained() wrote: the weights of a model, or an
// adapter for a layout with a frozen base.
class TrainedWeights {
 public:
  // Throws the errors of WeightFiles, and DataError for a model where an adapter is expected, and
  // for the reverse.
  TrainedWeights(const std::filesystem::path& directory, const nn::ParameterLayout& layout);

  const std::filesystem::path& path() const { return files_.path(); }
  // Whether the directory is to have this parameter.
  bool holds(const nn::ParameterSpec& parameter) const { return !adapter_ || parameter.trainable; }
  const formats::TensorView* find(const nn::ParameterSpec& parameter) const;  // null when absent

 private:
  bool adapter_;
  WeightFiles files_;
};

// Writes both files of the trained parameters into an existing directory, and for a class with
// labels config.json, which has their names. bare: under names without the base prefix. Throws
// IoError.
void save_adapter(const std::filesystem::path& directory, const ModelConfig& config,
                  std::string_view architecture, const nn::ParameterLayout& layout,
                  std::span<const float> weights, bool bare = false);

}  // namespace tandem::models
