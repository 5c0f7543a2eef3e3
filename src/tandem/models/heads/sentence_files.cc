#include "tandem/models/heads/sentence_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/models/encoder/model_config.h"
#include "tandem/models/heads/module_files.h"
#include "tandem/models/pretrained/weight_files.h"

namespace tandem::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// --- pooling ---

Pooling pooling_named(const std::string& name, const std::string& where) {
  std::vector<std::string_view> names;
  for (const PoolingName& known : pooling_names()) {
    if (name == known.name) return known.pooling;
    names.emplace_back(known.name);
  }
  raise<DataError>("{}: unknown pooling_mode '{}'; expected one of {}", where, name,
                   fmt::join(names, ", "));
}

// In the order in which sentence-transformers puts them side by side, whatever the file's order.
std::vector<Pooling> read_poolings(const JsonFile& file) {
  std::vector<Pooling> found;
  const auto mode = file.object.find("pooling_mode");
  if (mode != file.object.end() && mode->is_string())
    return {pooling_named(mode->get<std::string>(), file.path)};
  if (mode != file.object.end()) {
    for (const std::string& name : value_of(file, "pooling_mode", std::vector<std::string>{}))
      found.push_back(pooling_named(name, file.path));
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
  } else {
    for (const PoolingName& known : pooling_names()) {
      if (value_of(file, known.old_key, false)) found.push_back(known.pooling);
    }
  }
  return found.empty() ? std::vector{Pooling::kMean} : found;
}

void read_pooling(const fs::path& directory, std::size_t hidden_size, SentenceFiles& files) {
  const auto file = read_json(directory / "config.json");
  if (!file) raise<DataError>("{}: missing", (directory / "config.json").string());
  const std::size_t width = value_of(*file, "embedding_dimension",
                                     value_of(*file, "word_embedding_dimension", hidden_size));
  if (width != hidden_size) {
    raise<DataError>("{}: the embedding dimension is {}, but the encoder's hidden_size is {}",
                     file->path, width, hidden_size);
  }
  files.poolings = read_poolings(*file);
  files.include_prompt = value_of(*file, "include_prompt", true);
}

}  // namespace

// --- Dense ---

namespace {

struct ActivationClass {
  DenseActivation activation;
  std::string_view path;
};
constexpr ActivationClass kActivationClasses[] = {
    {DenseActivation::kIdentity, "torch.nn.modules.linear.Identity"},
    {DenseActivation::kTanh, "torch.nn.modules.activation.Tanh"},
    {DenseActivation::kRelu, "torch.nn.modules.activation.ReLU"},
    {DenseActivation::kGelu, "torch.nn.modules.activation.GELU"},
    {DenseActivation::kSigmoid, "torch.nn.modules.activation.Sigmoid"},
};

}  // namespace

DenseActivation activation_named(const std::string& type, const std::string& where) {
  const std::string name = last_component(type);
  if (!type.starts_with("torch.nn.modules."))
    raise<DataError>("{}: found '{}', expected one of torch.nn", where, type);
  for (const ActivationClass& known : kActivationClasses)
    if (last_component(std::string(known.path)) == name) return known.activation;
  raise<DataError>("{}: found '{}', expected Identity, Tanh, ReLU, GELU or Sigmoid", where, type);
}

std::string activation_path(DenseActivation activation) {
  for (const ActivationClass& known : kActivationClasses)
    if (known.activation == activation) return std::string(known.path);
  TANDEM_CHECK(false);
  return {};
}

namespace {

std::vector<float> read_tensor(const WeightFiles& weights, const char* name,
                               const std::vector<std::size_t>& shape) {
  const formats::TensorView* tensor = weights.find(name);
  if (tensor == nullptr) raise<DataError>("{}: no tensor {}", weights.path().string(), name);
  if (tensor->shape != shape || !formats::is_float(tensor->dtype)) {
    raise<DataError>("{}: {}: found {} of {}, expected {} of {}", weights.path().string(), name,
                     formats::shape_to_string(tensor->shape), to_string(tensor->dtype),
                     formats::shape_to_string(shape), formats::kFloatNames);
  }
  std::vector<float> values(tensor->size());
  formats::copy_to_float(*tensor, values);
  return values;
}

DenseModule read_dense(const fs::path& directory, std::size_t width) {
  const auto file = read_json(directory / "config.json");
  if (!file) raise<DataError>("{}: missing", (directory / "config.json").string());
  DenseModule dense;
  dense.in_features = value_of(*file, "in_features", std::size_t{0});
  dense.out_features = value_of(*file, "out_features", std::size_t{0});
  if (dense.in_features != width || dense.out_features == 0) {
    raise<DataError>("{}: found {} to {} features, expected {} to at least 1", file->path,
                     dense.in_features, dense.out_features, width);
  }
  for (const char* key : {"module_input_name", "module_output_name"}) {
    const std::string name = value_of(*file, key, std::string("sentence_embedding"));
    if (name != "sentence_embedding")
      raise<DataError>("{}: {}: found '{}', expected 'sentence_embedding'", file->path, key, name);
  }
  dense.activation = activation_named(
      value_of(*file, "activation_function", std::string("torch.nn.modules.activation.Tanh")),
      file->path + ": activation_function");
  const WeightFiles weights(directory);
  dense.weight = read_tensor(weights, "linear.weight", {dense.out_features, dense.in_features});
  if (value_of(*file, "bias", true))
    dense.bias = read_tensor(weights, "linear.bias", {dense.out_features});
  return dense;
}

// --- modules.json ---

void read_module(const std::string& kind, const fs::path& directory, std::size_t hidden_size,
                 const std::string& where, SentenceFiles& files) {
  if (kind == "Pooling") return read_pooling(directory, hidden_size, files);
  if (kind == "Dense") {
    files.modules.emplace_back(read_dense(directory, embedding_size(files, hidden_size)));
  } else if (kind == "Normalize") {
    files.modules.emplace_back(NormalizeModule{});
  } else if (kind != "Dropout") {  // nothing is dropped outside training
    raise<DataError>(
        "{}: unknown module '{}'; expected Transformer, Pooling, Dense, Dropout or Normalize",
        where, kind);
  }
}

void read_modules(std::span<const ModuleEntry> modules, std::size_t hidden_size,
                  SentenceFiles& files) {
  for (std::size_t i = 1; i < modules.size(); ++i) {
    const ModuleEntry& module = modules[i];
    if (i == 1 && module.kind != "Pooling")
      raise<DataError>("{}: found '{}', expected Pooling", module.where, module.kind);
    read_module(module.kind, module.directory, hidden_size, module.where, files);
  }
  files.from_modules_json = true;
}

// --- prompts and lengths ---

void add_prompts(const fs::path& directory, SentenceFiles& files) {
  const ModelPrompts found = read_prompts(directory);
  for (const auto& [name, text] : found.prompts) files.prompts[name] = text;
  files.default_prompt_name = found.default_name;
  if (const auto file = read_json(directory / "config_sentence_transformers.json"))
    files.similarity = value_of(*file, "similarity_fn_name", std::string("cosine"));
}

constexpr const char* kLengthFiles[] = {
    "sentence_bert_config.json",       "sentence_roberta_config.json",
    "sentence_distilbert_config.json", "sentence_camembert_config.json",
    "sentence_albert_config.json",     "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json"};

void read_lengths(const fs::path& directory, SentenceFiles& files) {
  for (const char* name : kLengthFiles) {
    const auto file = read_json(directory / name);
    if (!file) continue;
    const auto length = value_of(*file, "max_seq_length", std::size_t{0});
    if (length > 0) files.max_seq_length = length;
    files.do_lower_case = value_of(*file, "do_lower_case", false);
    return;
  }
}

// --- computing ---

void apply(const DenseModule& dense, std::vector<float>& x) {
  std::vector<float> y(dense.out_features);
  for (std::size_t o = 0; o < y.size(); ++o) {
    double sum = dense.bias.empty() ? 0.0 : dense.bias[o];
    const float* row = dense.weight.data() + o * dense.in_features;
    for (std::size_t i = 0; i < x.size(); ++i) sum += static_cast<double>(row[i]) * x[i];
    y[o] = activate(dense.activation, sum);
  }
  x = std::move(y);
}

void apply(const NormalizeModule&, std::vector<float>& x) {
  double squares = 0;
  for (const float value : x) squares += static_cast<double>(value) * value;
  const double norm = std::max(std::sqrt(squares), 1e-12);
  for (float& value : x) value = static_cast<float>(value / norm);
}

}  // namespace

std::size_t embedding_size(const SentenceFiles& files, std::size_t hidden_size) {
  std::size_t size = files.poolings.size() * hidden_size;
  for (const EmbeddingModule& module : files.modules) {
    if (const auto* dense = std::get_if<DenseModule>(&module)) size = dense->out_features;
  }
  return size;
}

ModelPrompts read_prompts(const fs::path& directory) {
  ModelPrompts found;
  const auto file = read_json(directory / "config_sentence_transformers.json");
  if (!file) return found;
  found.prompts = value_of(*file, "prompts", found.prompts);
  const auto name = value_of(*file, "default_prompt_name", std::string());
  if (name.empty()) return found;
  if (!found.prompts.contains(name))
    raise<DataError>("{}: default_prompt_name '{}' is not among the prompts", file->path, name);
  found.default_name = name;
  return found;
}

bool has_causal_class(const ModelConfig& config) {
  const json source = json::parse(config.source);
  const auto classes = source.find("architectures");
  return classes != source.end() && classes->is_array() && !classes->empty() &&
         classes->front().is_string() &&
         classes->front().get_ref<const std::string&>().ends_with("ForCausalLM");
}

SentenceFiles read_sentence_files(const fs::path& directory, const ModelConfig& config) {
  SentenceFiles files;
  if (has_causal_class(config)) files.poolings = {Pooling::kLastToken};
  if (const auto modules = read_modules(directory))
    read_modules(*modules, config.hidden_size, files);
  add_prompts(directory, files);
  read_lengths(directory, files);
  return files;
}

namespace {

// The first one with a text.
std::string first_prompt(const SentenceFiles& files, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const auto found = files.prompts.find(name);
    if (found != files.prompts.end() && !found->second.empty()) return found->second;
  }
  return "";
}

}  // namespace

std::string SentenceFiles::query_prompt() const { return first_prompt(*this, {"query"}); }
std::string SentenceFiles::document_prompt() const {
  return first_prompt(*this, {"document", "passage", "corpus"});
}

bool reads_lower_case(const fs::path& directory) {
  SentenceFiles files;
  read_lengths(directory, files);
  return files.do_lower_case;
}

float activate(DenseActivation activation, double x) {
  switch (activation) {
    case DenseActivation::kTanh:
      return static_cast<float>(std::tanh(x));
    case DenseActivation::kRelu:
      return static_cast<float>(std::max(x, 0.0));
    case DenseActivation::kGelu:
      return static_cast<float>(x * 0.5 * std::erfc(-x / std::numbers::sqrt2));
    case DenseActivation::kSigmoid:
      return static_cast<float>(1 / (1 + std::exp(-x)));
    case DenseActivation::kIdentity:
      break;
  }
  return static_cast<float>(x);
}

void apply_modules(std::span<const EmbeddingModule> modules, std::vector<float>& pooled) {
  for (const EmbeddingModule& module : modules)
    std::visit([&](const auto& known) { apply(known, pooled); }, module);
}

}  // namespace tandem::models
