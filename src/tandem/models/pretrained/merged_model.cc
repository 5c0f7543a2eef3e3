#include "tandem/models/pretrained/merged_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/core/volume.h"
#include "tandem/formats/safetensors.h"
#include "tandem/models/encoder/family.h"
#include "tandem/models/encoder/lora.h"
#include "tandem/models/encoder/lora_config.h"
#include "tandem/models/encoder/model_config.h"
#include "tandem/models/pretrained/adapter_files.h"
#include "tandem/models/pretrained/weight_files.h"
#include "tandem/nn/parameter_layout.h"

namespace tandem::models {
namespace {

namespace fs = std::filesystem;
using formats::TensorView;

// Files next to the weights that a user of the model needs.
constexpr std::string_view kCompanions[] = {"tokenizer.json",
                                            "vocab.txt",
                                            "vocab.json",
                                            "merges.txt",
                                            "sentencepiece.bpe.model",
                                            "spm.model",
                                            "tokenizer_config.json",
                                            "special_tokens_map.json",
                                            "added_tokens.json",
                                            "chat_template.jinja",
                                            "generation_config.json",
                                            "modules.json",
                                            "sentence_bert_config.json",
                                            "config_sentence_transformers.json"};

void copy_to(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::copy(from, to, fs::copy_options::recursive | fs::copy_options::overwrite_existing, error);
  if (error) throw io_error("cannot copy to", to.native(), error.value());
}

// Folders of modules of sentence-transformers: "1_Pooling".
bool is_module_folder(const fs::path& path) {
  const std::string name = path.filename().string();
  return is_directory_there(path) && name.size() > 2 && name[0] >= '1' && name[0] <= '9' &&
         name[1] == '_';
}

void copy_companions(const fs::path& from, const fs::path& to) {
  for (const std::string_view name : kCompanions)
    if (is_there(from / name)) copy_to(from / name, to / name);
  for (const fs::path& path : list_directory(from))
    if (is_module_folder(path)) copy_to(path, to / path.filename());
}

// The tensors of the merged model: views of the base's file, or values of their own.
class MergedTensors {
 public:
  MergedTensors(const WeightFiles& base, const ModelConfig& config, bool has_head)
      : prefix_(has_head && is_bare(base, config) ? config.family->base_prefix : "") {
    for (const TensorView& tensor : base.tensors()) {
      if (is_of_module(tensor.name)) continue;  // in a folder of its own
      tensors_.push_back(tensor);
      tensors_.back().name = fmt::format("{}{}", prefix_, tensor.name);
      index_.emplace(tensors_.back().name, tensors_.size() - 1);
    }
  }

  const std::vector<TensorView>& tensors() const { return tensors_; }
  // The tensor of this name, with or without the base prefix; null if the base has none.
  TensorView* find(std::string_view name, std::string_view base_prefix) {
    for (const std::string& candidate :
         {std::string(name), fmt::format("{}{}", base_prefix, name),
          std::string(name.starts_with(base_prefix) ? name.substr(base_prefix.size()) : name)}) {
      const auto found = index_.find(candidate);
      if (found != index_.end()) return &tensors_[found->second];
    }
    return nullptr;
  }
  void add(std::string name, const TensorView& like) {
    TensorView tensor = like;
    tensor.name = std::move(name);
    index_.emplace(tensor.name, tensors_.size());
    tensors_.push_back(std::move(tensor));
  }
  // Memory of the values of `tensor` as f32 from now on.
  std::span<float> own(TensorView& tensor) {
    std::vector<float>& values = values_.emplace_back(tensor.size());
    formats::copy_to_float(tensor, values);
    tensor.dtype = formats::DType::kF32;
    tensor.bytes = std::as_bytes(std::span(values));
    return values;
  }

 private:
  // Whether the file has an encoder without the prefix that classes with a head put in front.
  static bool is_bare(const WeightFiles& base, const ModelConfig& config) {
    return std::ranges::none_of(base.tensors(), [&](const TensorView& tensor) {
      return tensor.name.starts_with(config.family->base_prefix);
    });
  }
  static bool is_of_module(std::string_view name) { return name[0] >= '0' && name[0] <= '9'; }

  std::string_view prefix_;
  std::vector<TensorView> tensors_;
  std::map<std::string, std::size_t, std::less<>> index_;
  std::deque<std::vector<float>> values_;
};

// Whether config.json names a class with a head.
bool has_head(const ModelConfig& config) {
  const auto json = try_parse_json(config.source);
  const auto classes = json.is_object() ? json.find("architectures") : json.end();
  if (!json.is_object() || classes == json.end() || !classes->is_array() || classes->empty())
    return false;
  return classes->front().is_string() &&
         classes->front().get_ref<const std::string&>().find("For") != std::string::npos;
}

MergeReport merge(const AdapterTensors& adapter, const LoraConfig& lora, const ModelConfig& config,
                  MergedTensors& merged) {
  const std::string_view base_prefix = config.family->base_prefix;
  nn::ParameterLayout layout;  // of the layers, without embeddings and head
  config.family->layers->make(config, layout);
  MergeReport report;
  for (const AdapterTensors::Module& module : adapter.modules()) {
    TensorView* const weight = merged.find(fmt::format("{}.weight", module.name), base_prefix);
    if (weight == nullptr) {
      raise<DataError>(
          "{}: adapts {}, which the base model does not have; pass the base model that "
          "the adapter was trained on",
          adapter.path().native(), module.name);
    }
    const bool transposed = is_stored_transposed(module.name, config, layout);
    adapter.add_to(module, lora, {.shape = weight->shape, .transposed = transposed},
                   merged.own(*weight));
    ++report.adapted;
  }
  for (const auto& [name, tensor] : adapter.whole()) {
    TensorView* const old = merged.find(name, base_prefix);
    if (old == nullptr) {
      merged.add(name, *tensor);
    } else {
      old->dtype = tensor->dtype;
      old->shape = tensor->shape;
      old->bytes = tensor->bytes;
    }
    ++report.replaced;
  }
  return report;
}

}  // namespace

MergeReport write_merged_model(const MergeSources& sources, const fs::path& output_dir) {
  const LoraConfig lora = LoraConfig::load(sources.adapter);
  const ModelConfig config = ModelConfig::load(sources.config, all_families());
  const WeightFiles base(sources.base);
  const AdapterTensors adapter(sources.adapter);
  MergedTensors merged(base, config, has_head(config));
  const MergeReport report = merge(adapter, lora, config, merged);
  copy_companions(sources.base, output_dir);
  copy_companions(sources.adapter, output_dir);
  formats::write_safetensors(output_dir / "model.safetensors", merged.tensors());
  copy_to(sources.config / "config.json", output_dir / "config.json");
  return report;
}

}  // namespace tandem::models
