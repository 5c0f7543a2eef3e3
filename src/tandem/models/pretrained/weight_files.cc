#include "tandem/models/pretrained/weight_files.h"

#include <optional>
#include <set>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/formats/safetensors.h"
#include "tandem/formats/torch_file.h"
#include "tandem/formats/unique_json.h"

namespace tandem::models {
namespace {

namespace fs = std::filesystem;

// A shard is looked for in the folder of its index and nowhere else.
bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name.front() != '.' &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

bool is_index(const fs::path& path) { return path.native().ends_with(".index.json"); }

}  // namespace

class WeightFiles::File {
 public:
  explicit File(fs::path path) : path_(std::move(path)) {
    if (path_.extension() == ".safetensors") {
      tensors_ = safetensors_.emplace(path_).tensors();
    } else {
      tensors_ = formats::state_dict_tensors(torch_.emplace(path_).root());
    }
  }
  const fs::path& path() const { return path_; }
  const std::vector<formats::TensorView>& tensors() const { return tensors_; }

 private:
  fs::path path_;
  std::optional<formats::SafetensorsFile> safetensors_;
  std::optional<formats::TorchFile> torch_;
  std::vector<formats::TensorView> tensors_;
};

fs::path find_weights(const fs::path& directory) {
  for (const std::string_view name : kWeightFileNames) {
    if (fs::exists(directory / name)) return directory / name;
  }
  for (const char* other : {"tf_model.h5", "model.ckpt.index", "flax_model.msgpack"}) {
    if (fs::exists(directory / other)) {
      raise<DataError>(
          "{}: found {}, weights of another framework, but no model.safetensors and no "
          "pytorch_model.bin; save the model in one of these forms first, for example with "
          "transformers: from_pretrained(…, from_tf=True or from_flax=True) and save_pretrained",
          directory.string(), other);
    }
  }
  raise<DataError>("{}: no weights in this model directory; expected {}", directory.string(),
                   fmt::join(kWeightFileNames, " or "));
}

WeightIndex parse_weight_index(std::string_view text, const std::string& where) {
  const nlohmann::json json = formats::parse_unique_json(text, where);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object()) {
    raise<DataError>("{}: no object 'weight_map'; expected the names of tensors and their files",
                     where);
  }
  WeightIndex index;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) {
      raise<DataError>("{}: the file of tensor '{}' is {}; expected a string", where, tensor,
                       file.type_name());
    }
    const auto& name = file.get_ref<const std::string&>();
    if (!is_plain_file_name(name)) {
      raise<DataError>(
          "{}: the file of tensor '{}' is {}; expected the name of a file in the same folder",
          where, tensor, file.dump());
    }
    index.file_of_tensor.emplace(tensor, name);
  }
  if (index.file_of_tensor.empty())
    raise<DataError>("{}: 'weight_map' is empty; expected the names of tensors", where);
  return index;
}

WeightFiles::WeightFiles(const fs::path& path)
    : path_(fs::is_directory(path) ? find_weights(path) : path) {
  if (is_index(path_)) {
    open_shards(path_);
  } else {
    open_file(path_);
  }
  if (fs::is_directory(path)) open_modules(path);
}

WeightFiles::~WeightFiles() = default;

const formats::TensorView* WeightFiles::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const formats::TensorView* WeightFiles::find_parameter(std::string_view name) const {
  const formats::TensorView* found = find(name);
  return found != nullptr ? found : find(name.substr(name.find('.') + 1));
}

const fs::path& WeightFiles::file_of(std::size_t index) const {
  return files_[file_of_tensor_[index]]->path();
}

void WeightFiles::open_file(const fs::path& file, std::string_view prefix) {
  files_.push_back(std::make_unique<File>(file));
  for (formats::TensorView tensor : files_.back()->tensors()) {
    tensor.name.insert(0, prefix);
    const auto [entry, is_new] = index_.emplace(tensor.name, tensors_.size());
    if (!is_new) {
      raise<DataError>("{}: tensor '{}' is also in {}; expected every tensor once", file.string(),
                       tensor.name, file_of(entry->second).string());
    }
    tensors_.push_back(tensor);
    file_of_tensor_.push_back(files_.size() - 1);
  }
}

// Modules are numbered as they are computed; a Dropout counts for nothing. sentence_files.h reports
// faults of modules.json.
void WeightFiles::open_modules(const fs::path& directory) {
  const fs::path list = directory / "modules.json";
  const auto text = read_file_if_exists(list);
  if (!text) return;
  const nlohmann::json modules = formats::parse_unique_json(*text, list.string());
  std::size_t number = 0;
  for (const auto& module : modules) {
    if (!module.is_object()) continue;
    const std::string type = module.value("type", ""), path = module.value("path", "");
    if (type.ends_with(".Dropout")) continue;
    if (type.ends_with(".Dense") && is_plain_file_name(path))
      open_file(find_weights(directory / path), fmt::format("{}.", number));
    ++number;
  }
  if (fs::exists(directory / kLossFile)) open_file(directory / kLossFile, kLossParameters);
}

void WeightFiles::open_shards(const fs::path& index_path) {
  const WeightIndex index = parse_weight_index(read_file(index_path), index_path.string());
  std::set<std::string> shards;
  for (const auto& [tensor, file] : index.file_of_tensor) shards.insert(file);
  for (const std::string& shard : shards) {
    const fs::path file = index_path.parent_path() / shard;
    if (!fs::exists(file)) {
      raise<DataError>(
          "{}: the shard {} is missing (perhaps an interrupted download); the index names {}",
          index_path.string(), file.string(), fmt::join(shards, ", "));
    }
    open_file(file);
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const auto expected = index.file_of_tensor.find(tensors_[i].name);
    if (expected == index.file_of_tensor.end() || expected->second != file_of(i).filename()) {
      raise<DataError>("{}: tensor '{}' is in {}; the index expects it in {}", index_path.string(),
                       tensors_[i].name, file_of(i).filename().string(),
                       expected == index.file_of_tensor.end() ? "no file" : expected->second);
    }
  }
  for (const auto& [tensor, file] : index.file_of_tensor) {
    if (find(tensor) == nullptr) {
      raise<DataError>("{}: {} has no tensor '{}', which the index expects in it",
                       index_path.string(), file, tensor);
    }
  }
}

}  // namespace tandem::models
