// Model directories: what Hugging Face's from_pretrained and save_pretrained do.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/thread_pool.h"
#include "tandem/formats/tensor_view.h"
#include "tandem/models/encoder/model_config.h"
#include "tandem/nn/parameter_layout.h"

namespace tandem::models {

// Matches between the names of file and model, for the start-up messages.
struct LoadReport {
  std::filesystem::path file;
  // Drawn, because the file has them not, or in another shape: "You should probably TRAIN this
  // model…".
  std::vector<std::string> newly_initialized;
  // Those in another shape: "classifier.bias: found shape [2] in the checkpoint and [3] in the
  // model".
  std::vector<std::string> mismatched;
  // Those of words that the model has more of, as `mismatched`.
  std::vector<std::string> grown;
  // In the file but unused: other heads and the like.
  std::vector<std::string> unused;
  // In the file, of known use elsewhere: pooler, pre-training heads, position_ids.
  std::vector<std::string> ignored;
};

// How parameters that the file does not give are filled.
struct LoadOptions {
  std::uint64_t seed = 42;
  // A tensor of another shape than its parameter is as good as none, instead of an error.
  bool ignore_mismatched_sizes = false;
  // The model may have more words than the file. The new rows are the mean of the file's rows, as
  // after resize_token_embeddings() of transformers, whose noise of about 1e-6 is left out.
  bool grows_vocabulary = false;
  // A directory with an adapter for the model (adapter_files.h): its values are the trained ones of
  // a model with config.lora, and are merged into the weights of another one. Empty: none.
  std::filesystem::path adapter = {};
  // Only the frozen parameters of a model with config.lora are filled.
  bool frozen_only = false;
  // Not empty: the bf16 copy of the weights, [layout.bf16_size()]. Frozen operands are rounded and
  // written to it alone, and the f32 weights end where they begin.
  std::span<bfloat16> bf16_copy = {};
};

// Fills `weights` (f32: [layout.size()], with a bf16 copy [layout.operands_begin()]) from those of
// `model_dir` in any of the forms of weight_files.h: model.safetensors or pytorch_model.bin, whole
// or in shards. Accepts F32, F16, BF16 and F64; names with or without the base prefix ("bert.");
// the old names gamma and beta.
// Parameters that the file lacks are drawn from the seed as torch draws them (torch_random.h), from
// the embeddings to the head; a lone missing head is Hugging Face's to 1e-8. Throws IoError, and
// DataError for a directory without the file, an invalid file, another shape (the message names the
// tensor and both shapes), a dtype that is not a float type, a parameter given twice, or a file
// without any parameter of the model.
LoadReport load_pretrained(const std::filesystem::path& model_dir, const ModelConfig& config,
                           const nn::ParameterLayout& layout, std::span<float> weights,
                           const LoadOptions& options = {});

// Whether the caller reads a tensor itself: one for a parameter of the model, whose values the
// caller writes afterwards, or (parameter null) one that the model has no parameter for.
using TensorTaken =
    FunctionRef<bool(const formats::TensorView& tensor, const nn::ParameterSpec* parameter)>;
LoadReport load_pretrained(const std::filesystem::path& model_dir, const ModelConfig& config,
                           const nn::ParameterLayout& layout, std::span<float> weights,
                           const LoadOptions& options, TensorTaken taken);

// Draws all parameters anew: weights and embeddings ~ N(0, initializer_range), biases 0, LayerNorm
// 1 and 0, padding rows 0.
void initialize_parameters(const ModelConfig& config, const nn::ParameterLayout& layout,
                           std::span<float> weights, std::uint64_t seed);

// model.safetensors, or pytorch_model.bin for programs that read only that (--save_safetensors
// false).
enum class WeightFormat { kSafetensors, kTorch };

// Writes the weights (f32) and config.json into an existing directory, each atomically; with
// config.lora the adapter instead (adapter_files.h). Throws IoError.
void save_pretrained(const std::filesystem::path& model_dir, const ModelConfig& config,
                     std::string_view architecture, const nn::ParameterLayout& layout,
                     std::span<const float> weights,
                     WeightFormat format = WeightFormat::kSafetensors);

// Tensors of a file that the model has no parameter for, as floats.
struct KeptTensor {
  std::string name;
  std::vector<std::size_t> shape;
  std::vector<float> values;
};

// The pooler of the weights in a directory: no head of tandem's reads it, but classes of
// transformers for bare encoders have it.
std::vector<KeptTensor> read_pooler(const std::filesystem::path& model_dir);

// The same for an encoder without the head of a task: parameters of the encoder alone, under their
// names without the base prefix ("embeddings.LayerNorm.bias"), and the tensors that were `kept`.
void save_bare_encoder(const std::filesystem::path& model_dir, const ModelConfig& config,
                       std::string_view architecture, const nn::ParameterLayout& layout,
                       std::span<const float> weights, std::span<const KeptTensor> kept,
                       WeightFormat format = WeightFormat::kSafetensors);

}  // namespace tandem::models
