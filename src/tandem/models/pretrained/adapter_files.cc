#include "tandem/models/pretrained/adapter_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/volume.h"
#include "tandem/formats/safetensors.h"
#include "tandem/models/encoder/lora.h"
#include "tandem/models/pretrained/parameter_names.h"
#include "tandem/models/pretrained/parameter_order.h"
#include "tandem/models/pretrained/weight_files.h"

namespace tandem::models {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWithLabels = "Classification";  // the end of the names of such classes
constexpr std::string_view kRoot = "base_model.model.";
constexpr std::string_view kDown = ".lora_A.weight";
constexpr std::string_view kUp = ".lora_B.weight";
constexpr std::string_view kFileNames[] = {"adapter_model.safetensors", "adapter_model.bin"};

std::string_view without_suffix(std::string_view name, std::string_view suffix) {
  return name.substr(0, name.size() - suffix.size());
}

// "base_model.model.X" -> "X"
std::string_view without_root(std::string_view tensor) {
  return tensor.starts_with(kRoot) ? tensor.substr(kRoot.size()) : tensor;
}

// The parameter X, or X behind the base prefix; null if the model has neither.
const nn::ParameterSpec* find_parameter(std::string_view name, const ModelConfig& config,
                                        const nn::ParameterLayout& layout) {
  if (const nn::ParameterSpec* const found = layout.find(name)) return found;
  return layout.find(fmt::format("{}{}", config.family->base_prefix, name));
}

bool is_transposed(const nn::ParameterSpec& weight, const nn::ParameterLayout& layout) {
  const auto found = std::ranges::find(layout.linears(), weight.offset, &nn::Linear::weight);
  return found != layout.linears().end() && found->transposed;
}

void check_shape(const formats::TensorView& tensor, const std::vector<std::size_t>& shape,
                 const fs::path& file) {
  if (!formats::is_float(tensor.dtype) || tensor.shape != shape) {
    raise<DataError>(
        "{}: tensor '{}' is {} {}; expected {} {}: base model and adapter belong "
        "together",
        file.native(), tensor.name, formats::to_string(tensor.dtype),
        formats::shape_to_string(tensor.shape), formats::kFloatNames,
        formats::shape_to_string(shape));
  }
}

std::vector<float> floats_of(const formats::TensorView& tensor) {
  std::vector<float> values(tensor.size());
  formats::copy_to_float(tensor, values);
  return values;
}

std::string task_type_of(std::string_view architecture, bool bare) {
  if (architecture.ends_with("ForSequenceClassification")) return "SEQ_CLS";
  if (architecture.ends_with("ForTokenClassification")) return "TOKEN_CLS";
  if (architecture.ends_with("ForQuestionAnswering")) return "QUESTION_ANS";
  if (architecture.ends_with("ForCausalLM") || architecture.ends_with("LMHeadModel"))
    return "CAUSAL_LM";
  return bare ? "FEATURE_EXTRACTION" : "";
}

// The modules with adapters and those that are trained whole, in the order of their definition.
SavedLora found_modules(const LoraConfig& lora, const ModelConfig& config,
                        const nn::ParameterLayout& layout, bool bare) {
  SavedLora saved;
  const auto add = [&](std::string_view module, std::vector<std::string>& names) {
    if (bare && module.starts_with(config.family->base_prefix))
      module.remove_prefix(config.family->base_prefix.size());
    if (std::ranges::find(names, module) == names.end()) names.emplace_back(module);
  };
  for (const nn::ParameterSpec* parameter : parameters_as_defined(layout)) {
    if (!parameter->trainable || parameter->kind == nn::ParameterKind::kLowRankUp) continue;
    const std::string_view name = parameter->name;
    if (parameter->kind == nn::ParameterKind::kLowRankDown) {
      add(without_suffix(name, kDown), saved.target_modules);
    } else {
      const std::string_view listed = name_of_whole_module(lora, name);
      add(listed.empty() ? name.substr(0, name.rfind('.')) : listed, saved.modules_to_save);
    }
  }
  saved.fan_in_fan_out = std::ranges::any_of(layout.linears(), [](const nn::Linear& linear) {
    return linear.transposed && !linear.low_rank.empty();
  });
  const ModuleNames& targets = lora.target_modules;
  if (!targets.names.empty()) saved.target_modules = targets.names;
  if (targets.empty()) saved.target_modules = default_targets(*config.family);
  return saved;
}

// Modules by what is trained of them, in one of two places.
struct TrainedModules {
  std::set<std::string> adapted, whole;

  void add(std::string_view parameter) {
    for (const std::string_view suffix : {kDown, kUp}) {
      if (!parameter.ends_with(suffix)) continue;
      adapted.emplace(without_suffix(parameter, suffix));
      return;
    }
    whole.emplace(parameter.substr(0, parameter.rfind('.')));
  }
};

// The names of `some` that `others` lacks: "a, b and 3 more"; empty: none.
std::string names_beyond(const std::set<std::string>& some, const std::set<std::string>& others) {
  constexpr std::size_t kNamed = 2;
  std::vector<std::string> beyond;
  std::ranges::set_difference(some, others, std::back_inserter(beyond));
  const std::size_t named = std::min(beyond.size(), kNamed);
  std::string text = fmt::format("{}", fmt::join(beyond.begin(), beyond.begin() + named, ", "));
  if (beyond.size() > named) text += fmt::format(" and {} more", beyond.size() - named);
  return text;
}

void compare_modules(std::string_view what, const std::set<std::string>& found,
                     const std::set<std::string>& expected, std::vector<std::string>& differences) {
  if (const std::string more = names_beyond(found, expected); !more.empty())
    differences.push_back(fmt::format("{} are also {}", what, more));
  if (const std::string fewer = names_beyond(expected, found); !fewer.empty())
    differences.push_back(fmt::format("{} lack {}", what, fewer));
}

fs::path trained_file(const fs::path& directory, const nn::ParameterLayout& layout) {
  const bool adapter = is_adapter_directory(directory);
  if (adapter != layout.has_frozen_base()) {
    raise<DataError>(
        "{}: found {}, expected {}; resume with the --use_peft of the run that wrote it",
        directory.native(), adapter ? "an adapter" : "a whole model",
        adapter ? "a whole model" : "an adapter");
  }
  return adapter ? find_adapter_weights(directory) : directory;
}

}  // namespace

fs::path find_adapter_weights(const fs::path& directory) {
  for (const std::string_view name : kFileNames) {
    if (is_there(directory / name)) return directory / name;
  }
  raise<DataError>("{}: found {} alone; expected {} next to it", directory.native(),
                   kAdapterConfigFile, kFileNames[0]);
}

TrainedWeights::TrainedWeights(const fs::path& directory, const nn::ParameterLayout& layout)
    : adapter_(layout.has_frozen_base()), files_(trained_file(directory, layout)) {}

const formats::TensorView* TrainedWeights::find(const nn::ParameterSpec& parameter) const {
  if (!adapter_) return files_.find_parameter(parameter.name);
  const std::string_view name = parameter.name;
  if (const auto* tensor = files_.find(fmt::format("{}{}", kRoot, name))) return tensor;
  return files_.find(fmt::format("{}{}", kRoot, name.substr(name.find('.') + 1)));
}

std::set<std::string, std::less<>> parameter_names(const fs::path& model_dir,
                                                   const ModelConfig& config) {
  std::set<std::string, std::less<>> names;
  const WeightFiles files(model_dir);
  for (const formats::TensorView& tensor : files.tensors()) {
    names.insert(modern_name(tensor.name));
    const std::string_view alias = output_bias_alias(*config.family, tensor.name);
    if (!alias.empty()) names.emplace(alias);
  }
  return names;
}

void draw_adapters(const LoraConfig& lora, const ModelConfig& config,
                   const nn::ParameterLayout& layout, std::span<float> weights,
                   TorchGenerator& generator) {
  for (const nn::ParameterSpec* down :
       parameters_as_defined(layout, newest_definition_order(config.family->model_type))) {
    if (down->kind != nn::ParameterKind::kLowRankDown) continue;
    const std::string_view module = without_suffix(down->name, kDown);
    const nn::ParameterSpec* const up = layout.find(fmt::format("{}{}", module, kUp));
    TANDEM_CHECK(up != nullptr, "{} without its other matrix", down->name);
    generator.skip_uniform(down->size + up->size);  // both are layers of torch first
    const std::span<float> values = down->values_in(weights);
    if (lora.gaussian_init) {
      generator.fill_normal(values, 0.0, 1.0 / static_cast<double>(down->shape[0]));
    } else {
      const double bound = 1.0 / std::sqrt(static_cast<double>(down->shape[1]));
      generator.fill_uniform(values, static_cast<float>(-bound), static_cast<float>(bound));
    }
    std::ranges::fill(up->values_in(weights), 0.0f);
  }
}

AdapterReport load_adapter(const fs::path& directory, const ModelConfig& config,
                           const nn::ParameterLayout& layout, std::span<float> weights) {
  const WeightFiles file(find_adapter_weights(directory));
  AdapterReport report;
  for (const formats::TensorView& tensor : file.tensors()) {
    const nn::ParameterSpec* const parameter =
        find_parameter(without_root(tensor.name), config, layout);
    if (parameter == nullptr || !parameter->trainable) {
      report.unused.push_back(tensor.name);
      continue;
    }
    check_shape(tensor, parameter->shape, file.path());
    formats::copy_to_float(tensor, parameter->values_in(weights));
    report.filled.insert(parameter->name);
  }
  for (const nn::ParameterSpec& parameter : layout.parameters()) {
    if (!parameter.trainable || report.filled.contains(parameter.name)) continue;
    raise<DataError>("{}: found no tensor '{}{}'; expected one: it is trained by these flags",
                     file.path().native(), kRoot, parameter.name);
  }
  return report;
}

std::vector<std::string> adapter_differences(const fs::path& directory, const LoraConfig& lora,
                                             const nn::ParameterLayout& layout) {
  const LoraConfig found = LoraConfig::load(directory);
  std::vector<std::string> differences;
  const auto compare = [&](std::string_view name, const auto& value, const auto& expected) {
    if (value != expected)
      differences.push_back(fmt::format("{} is {}, expected {}", name, value, expected));
  };
  compare("lora_r", found.r, lora.r);
  compare("lora_alpha", found.lora_alpha, lora.lora_alpha);
  compare("lora_dropout", found.lora_dropout, lora.lora_dropout);
  compare("use_rslora", found.use_rslora, lora.use_rslora);
  if (found.rank_pattern != lora.rank_pattern) differences.emplace_back("rank_pattern is another");
  if (found.alpha_pattern != lora.alpha_pattern)
    differences.emplace_back("alpha_pattern is another");
  const WeightFiles file(find_adapter_weights(directory));
  TrainedModules saved, trained;
  for (const formats::TensorView& tensor : file.tensors()) saved.add(without_root(tensor.name));
  for (const nn::ParameterSpec& parameter : layout.parameters()) {
    if (!parameter.trainable) continue;
    const std::string_view name = parameter.name;
    const std::string_view bare = name.substr(name.find('.') + 1);  // of an encoder alone
    const bool has_prefix = file.find(fmt::format("{}{}", kRoot, bare)) == nullptr;
    trained.add(has_prefix ? name : bare);
  }
  compare_modules("lora_target_modules", saved.adapted, trained.adapted, differences);
  compare_modules("modules_to_save", saved.whole, trained.whole, differences);
  return differences;
}

AdapterTensors::AdapterTensors(const fs::path& directory)
    : files_(find_adapter_weights(directory)) {
  std::map<std::string, Module> modules;
  for (const formats::TensorView& tensor : files_.tensors()) {
    const std::string_view name = without_root(tensor.name);
    const bool down = name.ends_with(kDown);
    if (!down && !name.ends_with(kUp)) {
      whole_.emplace(name, &tensor);
      continue;
    }
    Module& module = modules[std::string(without_suffix(name, down ? kDown : kUp))];
    (down ? module.down : module.up) = &tensor;
  }
  for (auto& [name, module] : modules) {
    if (module.down == nullptr || module.up == nullptr) {
      raise<DataError>("{}: {} has {} alone; expected lora_A and lora_B", path().native(), name,
                       module.down == nullptr ? "lora_B" : "lora_A");
    }
    module.name = name;
    modules_.push_back(std::move(module));
  }
}

void AdapterTensors::check(const Module& module, std::size_t rank,
                           const AdaptedWeight& weight) const {
  if (weight.shape.size() != 2) {
    raise<DataError>("{}: adapts {}, whose weight has shape {}; expected a matrix", path().native(),
                     module.name, formats::shape_to_string(weight.shape));
  }
  check_shape(*module.down, {rank, weight.shape[weight.transposed ? 0 : 1]}, path());
  check_shape(*module.up, {weight.shape[weight.transposed ? 1 : 0], rank}, path());
}

void AdapterTensors::add_to(const Module& module, const LoraConfig& lora,
                            const AdaptedWeight& weight, std::span<float> values) const {
  const std::size_t rank = lora_rank(lora, module.name);
  check(module, rank, weight);
  const std::vector<float> down = floats_of(*module.down), up = floats_of(*module.up);
  const double scale = lora_scale(lora, module.name);
  const std::size_t in = down.size() / rank, out = up.size() / rank;
  const std::size_t row_step = weight.transposed ? 1 : in, step = weight.transposed ? out : 1;
  std::vector<double> row(in);
  for (std::size_t o = 0; o < out; ++o) {
    std::ranges::fill(row, 0.0);
    for (std::size_t k = 0; k < rank; ++k) {
      const double factor = up[o * rank + k];
      for (std::size_t i = 0; i < in; ++i) row[i] += factor * down[k * in + i];
    }
    for (std::size_t i = 0; i < in; ++i) {
      float& value = values[o * row_step + i * step];
      value = static_cast<float>(static_cast<double>(value) + scale * row[i]);
    }
  }
}

bool is_stored_transposed(std::string_view module, const ModelConfig& config,
                          const nn::ParameterLayout& layout) {
  const nn::ParameterSpec* const weight =
      find_parameter(fmt::format("{}.weight", module), config, layout);
  return weight != nullptr && is_transposed(*weight, layout);
}

AdapterReport merge_adapter(const fs::path& directory, const ModelConfig& config,
                            const nn::ParameterLayout& layout, std::span<float> weights) {
  const LoraConfig lora = LoraConfig::load(directory);
  const AdapterTensors adapter(directory);
  AdapterReport report;
  for (const auto& [name, tensor] : adapter.whole()) {
    const nn::ParameterSpec* const parameter = find_parameter(name, config, layout);
    if (parameter == nullptr) {
      report.unused.push_back(tensor->name);
      continue;
    }
    check_shape(*tensor, parameter->shape, adapter.path());
    formats::copy_to_float(*tensor, parameter->values_in(weights));
    report.filled.insert(parameter->name);
  }
  std::size_t merged = 0;
  for (const AdapterTensors::Module& module : adapter.modules()) {
    const nn::ParameterSpec* const parameter =
        find_parameter(fmt::format("{}.weight", module.name), config, layout);
    if (parameter == nullptr) {
      report.unused.push_back(module.down->name);
      continue;
    }
    adapter.add_to(module, lora,
                   {.shape = parameter->shape, .transposed = is_transposed(*parameter, layout)},
                   parameter->values_in(weights));
    ++merged;
  }
  if (merged == 0) {
    raise<DataError>(
        "{}: adapts no layer of this {} model; its tensors are called '{}' and the "
        "like",
        adapter.path().native(), config.family->model_type,
        report.unused.empty() ? "" : report.unused.front());
  }
  return report;
}

void save_adapter(const fs::path& directory, const ModelConfig& config,
                  std::string_view architecture, const nn::ParameterLayout& layout,
                  std::span<const float> weights, bool bare) {
  TANDEM_CHECK(config.lora != nullptr, "no adapter to save");
  const std::string_view prefix = config.family->base_prefix;
  std::vector<formats::TensorView> tensors;
  for (const nn::ParameterSpec& parameter : layout.parameters()) {
    if (!parameter.trainable) continue;
    std::string_view name = parameter.name;
    if (bare && name.starts_with(prefix)) name.remove_prefix(prefix.size());
    tensors.push_back({.name = fmt::format("{}{}", kRoot, name),
                       .dtype = formats::DType::kF32,
                       .shape = parameter.shape,
                       .bytes = std::as_bytes(weights.subspan(parameter.offset, parameter.size))});
  }
  formats::write_safetensors(directory / kFileNames[0], tensors);
  SavedLora saved = found_modules(*config.lora, config, layout, bare);
  saved.task_type = task_type_of(architecture, bare);
  write_file(directory / kAdapterConfigFile, adapter_config_json(*config.lora, saved));
  // transformers takes a directory with config.json for a whole model.
  if (architecture.ends_with(kWithLabels))
    write_file(directory / "config.json", config.to_json(architecture));
}

}  // namespace tandem::models
