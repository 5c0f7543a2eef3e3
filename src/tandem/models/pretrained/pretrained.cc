#include "tandem/models/pretrained/pretrained.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/mappings.h"
#include "tandem/formats/safetensors.h"
#include "tandem/formats/torch_file.h"
#include "tandem/models/pretrained/adapter_files.h"
#include "tandem/models/pretrained/initial_values.h"
#include "tandem/models/pretrained/parameter_names.h"
#include "tandem/models/pretrained/parameter_order.h"
#include "tandem/models/pretrained/torch_random.h"
#include "tandem/models/pretrained/weight_files.h"

namespace tandem::models {

std::string modern_name(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kSuffixes = {
      {{".gamma", ".weight"}, {".beta", ".bias"}}};
  for (const auto& [old_suffix, new_suffix] : kSuffixes) {
    if (name.ends_with(old_suffix)) {
      return std::string(name.substr(0, name.size() - old_suffix.size())).append(new_suffix);
    }
  }
  return std::string(name);
}

std::string_view output_bias_alias(const Family& family, std::string_view tensor) {
  const MaskedLanguageHeadParts& head = family.masked_language_head;
  const bool is_alias = !head.output.empty() && tensor == std::string(head.output) + ".bias";
  return is_alias ? head.bias : std::string_view();
}

namespace {

// The parameter that a tensor of the file is for: of the same name, or of that name behind the base
// prefix.
const nn::ParameterSpec* target_of(const nn::ParameterLayout& layout, std::string_view prefix,
                                   std::string_view tensor_name) {
  const std::string name = modern_name(tensor_name);
  if (const nn::ParameterSpec* same = layout.find(name)) return same;
  return layout.find(std::string(prefix) + name);
}

// The bias of an output layer under its other name, as files have it that lack the first one.
const nn::ParameterSpec* target_of_alias(const nn::ParameterLayout& layout, const Family& family,
                                         const WeightFiles& files, std::string_view tensor_name) {
  const std::string_view bias = output_bias_alias(family, tensor_name);
  return bias.empty() || files.find(bias) != nullptr ? nullptr : layout.find(bias);
}

// Tensors that checkpoints of the family carry for other tasks: pooler, heads of pre-training, and
// buffers, which are of any dtype.
bool belongs_to_other_tasks(const Family& family, std::string_view name) {
  const auto begins_name = [&](std::string_view head) { return name.starts_with(head); };
  const auto ends_name = [&](std::string_view buffer) { return name.ends_with(buffer); };
  return std::any_of(family.pretraining_heads.begin(), family.pretraining_heads.end(),
                     begins_name) ||
         name.starts_with("pooler.") || name.find(".pooler.") != std::string_view::npos ||
         std::any_of(family.buffers.begin(), family.buffers.end(), ends_name) ||
         name.starts_with(kLossParameters) || name.ends_with("position_ids") ||
         name.ends_with("embeddings.token_type_ids");
}

void check_fits(const formats::TensorView& tensor, const nn::ParameterSpec& parameter,
                const std::filesystem::path& file, std::string_view base_prefix) {
  if (tensor.shape != parameter.shape) {
    const std::string_view advice =
        parameter.name.starts_with(base_prefix)
            ? "config.json and these weights do not belong together"
            : "the head was trained for another number of labels; a job draws it anew with "
              "--ignore_mismatched_sizes";
    raise<DataError>("{}: tensor '{}' has shape {}; the model needs {} for {} ({})", file.string(),
                     tensor.name, formats::shape_to_string(tensor.shape),
                     formats::shape_to_string(parameter.shape), parameter.name, advice);
  }
  if (!formats::is_float(tensor.dtype)) {
    raise<DataError>("{}: tensor '{}' is {}; expected {}", file.string(), tensor.name,
                     to_string(tensor.dtype), formats::kFloatNames);
  }
}

std::string describe_shapes(const formats::TensorView& tensor, const nn::ParameterSpec& parameter) {
  return fmt::format("{}: found shape {} in the checkpoint and {} in the model", parameter.name,
                     formats::shape_to_string(tensor.shape),
                     formats::shape_to_string(parameter.shape));
}

// A tensor of words that stands for a longer parameter of the model.
bool is_of_fewer_words(const formats::TensorView& tensor, const nn::ParameterSpec& parameter,
                       const ModelConfig& config) {
  const MaskedLanguageHeadParts& head = config.family->masked_language_head;
  const auto is_output = [&](std::string_view module) {
    return !module.empty() && parameter.name == std::string(module) + ".weight";
  };
  const bool of_words = parameter.name == word_embeddings_name(*config.family) ||
                        is_output(head.output) ||
                        is_output(config.family->causal_language_head.output) ||
                        (!head.output.empty() && parameter.name == head.bias);
  return of_words && tensor.shape.size() == parameter.shape.size() && !tensor.shape.empty() &&
         tensor.shape[0] > 0 && tensor.shape[0] < parameter.shape[0] &&
         std::equal(tensor.shape.begin() + 1, tensor.shape.end(), parameter.shape.begin() + 1) &&
         formats::is_float(tensor.dtype);
}

// New rows are the mean of those that the file has.
void copy_and_grow(const formats::TensorView& tensor, const nn::ParameterSpec& parameter,
                   std::span<float> values) {
  const std::size_t rows = tensor.shape[0], width = parameter.size / parameter.shape[0];
  formats::copy_to_float(tensor, values.first(rows * width));
  std::vector<double> mean(width, 0.0);
  for (std::size_t i = 0; i < rows * width; ++i) mean[i % width] += values[i];
  for (std::size_t i = rows * width; i < values.size(); ++i)
    values[i] = static_cast<float>(mean[i % width] / static_cast<double>(rows));
}

[[noreturn]] void nothing_found(const WeightFiles& files, const ModelConfig& config,
                                const nn::ParameterLayout& layout) {
  raise<DataError>(
      "{}: holds no parameter of a {} model; its tensors are called '{}' and the like, expected "
      "'{}'",
      files.path().string(), config.family->model_type,
      files.tensors().empty() ? "" : files.tensors().front().name, layout.parameters().back().name);
}

// Alignment gaps hold 0, so that norms and checksums of whole arenas mean something.
void clear_gaps(const nn::ParameterLayout& layout, std::span<float> weights) {
  std::vector<const nn::ParameterSpec*> parameters;
  for (const nn::ParameterSpec& parameter : layout.parameters()) {
    if (parameter.offset < weights.size()) parameters.push_back(&parameter);
  }
  std::ranges::sort(parameters, {}, &nn::ParameterSpec::offset);
  std::size_t end = 0;
  for (const nn::ParameterSpec* parameter : parameters) {
    std::fill(weights.begin() + end, weights.begin() + parameter->offset, 0.0f);
    end = parameter->end();
  }
  std::fill(weights.begin() + end, weights.end(), 0.0f);
}

constexpr bool is_adapter(const nn::ParameterSpec& parameter) {
  return parameter.kind == nn::ParameterKind::kLowRankDown ||
         parameter.kind == nn::ParameterKind::kLowRankUp;
}

// Fills the parameters that are not `loaded` (one flag per parameter), from the embeddings to the
// head as the modules of the model stand, and returns their names in that order. Adapters, which
// files of models never have, follow without being named.
std::vector<std::string> initialize_missing(const ModelConfig& config,
                                            const nn::ParameterLayout& layout,
                                            const std::vector<bool>& loaded,
                                            std::span<float> weights, std::uint64_t seed) {
  std::vector<std::string> names;
  TorchGenerator generator(seed);
  const std::vector<nn::ParameterSpec>& parameters = layout.parameters();
  for (std::size_t i = parameters.size(); i-- > 0;) {
    if (loaded[i] || is_adapter(parameters[i])) continue;
    draw_initial_values(config, parameters[i], parameters[i].values_in(weights), generator);
    names.push_back(parameters[i].name);
  }
  if (config.lora) draw_adapters(*config.lora, config, layout, weights, generator);
  return names;
}

struct Target {
  const ModelConfig& config;
  const LoadOptions& options;
  std::span<float> weights;
};

// False: the tensor has another shape, and the parameter is to be drawn.
bool read_values(const formats::TensorView& tensor, const nn::ParameterSpec& parameter,
                 const std::filesystem::path& file, const Target& target, LoadReport& report) {
  if (target.options.grows_vocabulary && is_of_fewer_words(tensor, parameter, target.config)) {
    copy_and_grow(tensor, parameter, parameter.values_in(target.weights));
    report.grown.push_back(describe_shapes(tensor, parameter));
    return true;
  }
  if (target.options.ignore_mismatched_sizes && tensor.shape != parameter.shape) {
    report.mismatched.push_back(describe_shapes(tensor, parameter));
    return false;
  }
  check_fits(tensor, parameter, file, target.config.family->base_prefix);
  if (parameter.offset < target.weights.size()) {
    formats::copy_to_float(tensor, parameter.values_in(target.weights));
  } else {
    formats::copy_to_bfloat16(tensor,
                              target.options.bf16_copy.subspan(parameter.offset, parameter.size));
  }
  release_pages(tensor.bytes);  // the file is as large as the model
  return true;
}

void check_size(std::size_t size, std::size_t expected) {
  if (size != expected) {
    raise<InvalidArgument>("room for {} weights; expected {}", size, expected);
  }
}

// A frozen parameter whose values are not the file's would be lost: an adapter does not hold it.
void refuse_changed_base(const ModelConfig& config, const nn::ParameterLayout& layout,
                         const std::vector<bool>& loaded, const LoadReport& report,
                         const std::filesystem::path& file) {
  if (!config.lora) return;
  if (!report.grown.empty()) {
    raise<ConfigError>(
        "{}: found fewer words than the tokenizer has, expected as many: adapters do not hold new "
        "words; train without --use_peft, or take the model's own tokenizer",
        file.string());
  }
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    const nn::ParameterSpec& parameter = layout.parameters()[i];
    if (loaded[i] || parameter.offset < layout.trained_size()) continue;
    raise<ConfigError>(
        "{}: found no usable {}, expected it in the base model, which is frozen; list its module "
        "in --lora_modules_to_save",
        file.string(), parameter.name);
  }
}

// Reads the adapter. Its parameters are neither drawn nor missing.
void take_adapter(const ModelConfig& config, const nn::ParameterLayout& layout,
                  const LoadOptions& options, std::span<float> weights, LoadReport& report) {
  const AdapterReport adapter = config.lora
                                    ? load_adapter(options.adapter, config, layout, weights)
                                    : merge_adapter(options.adapter, config, layout, weights);
  std::erase_if(report.newly_initialized,
                [&](const std::string& name) { return adapter.filled.contains(name); });
  report.unused.insert(report.unused.end(), adapter.unused.begin(), adapter.unused.end());
}

}  // namespace

LoadReport load_pretrained(const std::filesystem::path& model_dir, const ModelConfig& config,
                           const nn::ParameterLayout& layout, std::span<float> weights,
                           const LoadOptions& options) {
  return load_pretrained(
      model_dir, config, layout, weights, options,
      [](const formats::TensorView&, const nn::ParameterSpec*) { return false; });
}

LoadReport load_pretrained(const std::filesystem::path& model_dir, const ModelConfig& config,
                           const nn::ParameterLayout& layout, std::span<float> weights,
                           const LoadOptions& options, TensorTaken taken) {
  const std::span<bfloat16> copy = options.bf16_copy;
  check_size(weights.size(), copy.empty() ? layout.size() : layout.operands_begin());
  check_size(copy.size(), copy.empty() ? 0 : layout.bf16_size());
  const WeightFiles files(model_dir);
  const std::string_view prefix = config.family->base_prefix;
  const nn::ParameterSpec* const first = layout.parameters().data();

  LoadReport report;
  report.file = files.path();
  std::vector<bool> loaded(layout.parameters().size(), false);
  std::vector<std::size_t> drawn_anew;  // tensors of another shape
  for (std::size_t i = 0; i < files.tensors().size(); ++i) {
    const formats::TensorView& tensor = files.tensors()[i];
    const nn::ParameterSpec* parameter = target_of(layout, prefix, tensor.name);
    if (parameter == nullptr)
      parameter = target_of_alias(layout, *config.family, files, tensor.name);
    const bool caller_reads = taken(tensor, parameter);
    if (parameter == nullptr) {
      if (caller_reads) continue;
      (belongs_to_other_tasks(*config.family, tensor.name) ? report.ignored : report.unused)
          .push_back(tensor.name);
      continue;
    }
    const auto index = static_cast<std::size_t>(parameter - first);
    if (loaded[index]) {
      raise<DataError>(
          "{}: tensor '{}' is a second value of {}; expected one (with or without the prefix '{}')",
          files.file_of(i).string(), tensor.name, parameter->name, prefix);
    }
    loaded[index] = true;
    if (caller_reads || (options.frozen_only && parameter->trainable)) continue;
    if (!read_values(tensor, *parameter, files.file_of(i), {config, options, weights}, report))
      drawn_anew.push_back(index);
  }
  if (std::find(loaded.begin(), loaded.end(), true) == loaded.end())
    nothing_found(files, config, layout);
  for (const std::size_t index : drawn_anew) loaded[index] = false;
  refuse_changed_base(config, layout, loaded, report, files.path());
  if (options.frozen_only) return report;
  clear_gaps(layout, weights);
  report.newly_initialized = initialize_missing(config, layout, loaded, weights, options.seed);
  if (!options.adapter.empty()) take_adapter(config, layout, options, weights, report);
  return report;
}

void initialize_parameters(const ModelConfig& config, const nn::ParameterLayout& layout,
                           std::span<float> weights, std::uint64_t seed) {
  check_size(weights.size(), layout.size());
  clear_gaps(layout, weights);
  const std::vector<bool> none_loaded(layout.parameters().size(), false);
  initialize_missing(config, layout, none_loaded, weights, seed);
}

namespace {

// Tensors in the order in which transformers defines the parameters.
std::vector<formats::TensorView> tensors_to_save(const ModelConfig& config,
                                                 const nn::ParameterLayout& layout,
                                                 std::span<const float> weights) {
  check_size(weights.size(), layout.size());
  std::vector<formats::TensorView> tensors;
  for (const nn::ParameterSpec* parameter :
       parameters_as_defined(layout, newest_definition_order(config.family->model_type))) {
    tensors.push_back(
        {.name = parameter->name,
         .dtype = formats::DType::kF32,
         .shape = parameter->shape,
         .bytes = std::as_bytes(weights.subspan(parameter->offset, parameter->size))});
  }
  return tensors;
}

void write_model(const std::filesystem::path& model_dir, const ModelConfig& config,
                 std::string_view architecture, const std::vector<formats::TensorView>& tensors,
                 WeightFormat format) {
  if (format == WeightFormat::kSafetensors) {
    formats::write_safetensors(model_dir / "model.safetensors", tensors);
  } else {
    formats::write_torch_state_dict(model_dir / "pytorch_model.bin", tensors);
  }
  write_file(model_dir / "config.json", config.to_json(architecture));
}

}  // namespace

void save_pretrained(const std::filesystem::path& model_dir, const ModelConfig& config,
                     std::string_view architecture, const nn::ParameterLayout& layout,
                     std::span<const float> weights, WeightFormat format) {
  if (config.lora) return save_adapter(model_dir, config, architecture, layout, weights);
  write_model(model_dir, config, architecture, tensors_to_save(config, layout, weights), format);
}

std::vector<KeptTensor> read_pooler(const std::filesystem::path& model_dir) {
  constexpr std::string_view kPooler = "pooler.";
  std::vector<KeptTensor> kept;
  const WeightFiles files(model_dir);
  for (const formats::TensorView& tensor : files.tensors()) {
    const std::size_t begin = tensor.name.find(kPooler);
    if (begin == std::string::npos || (begin > 0 && tensor.name[begin - 1] != '.') ||
        !formats::is_float(tensor.dtype))
      continue;
    KeptTensor& one = kept.emplace_back();
    one.name = tensor.name.substr(begin);
    one.shape = tensor.shape;
    one.values.resize(tensor.size());
    formats::copy_to_float(tensor, one.values);
  }
  return kept;
}

void save_bare_encoder(const std::filesystem::path& model_dir, const ModelConfig& config,
                       std::string_view architecture, const nn::ParameterLayout& layout,
                       std::span<const float> weights, std::span<const KeptTensor> kept,
                       WeightFormat format) {
  if (config.lora)
    return save_adapter(model_dir, config, architecture, layout, weights, /*bare=*/true);
  const std::string_view prefix = config.family->base_prefix;
  std::vector<formats::TensorView> tensors = tensors_to_save(config, layout, weights);
  std::erase_if(
      tensors, [&](const formats::TensorView& tensor) { return !tensor.name.starts_with(prefix); });
  for (formats::TensorView& tensor : tensors) tensor.name.erase(0, prefix.size());
  for (const KeptTensor& one : kept) {
    tensors.push_back({.name = one.name,
                       .dtype = formats::DType::kF32,
                       .shape = one.shape,
                       .bytes = std::as_bytes(std::span(one.values))});
  }
  write_model(model_dir, config, architecture, tensors, format);
}

}  // namespace tandem::models
