// The weights of a model in any of the forms in which Hugging Face keeps them: one safetensors
// file, one file of torch.save, or several of either with an index.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/formats/tensor_view.h"

namespace tandem::models {

// The names in a model directory, in the order of preference (that of transformers): the first that
// is there is read. Sources of the list: transformers' modeling_utils.py.
inline constexpr std::string_view kWeightFileNames[] = {
    "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
    "pytorch_model.bin.index.json"};

// The file of `directory` that would be read. Throws DataError if it is missing; names weights of
// TensorFlow and Flax when only those are there.
std::filesystem::path find_weights(const std::filesystem::path& directory);

// A checked "….index.json": which tensor is in which file of its folder.
struct WeightIndex {
  std::map<std::string, std::string, std::less<>> file_of_tensor;
};

// Throws DataError: for a text that is not such an index, and for file names that lead out of the
// folder.
WeightIndex parse_weight_index(std::string_view text, const std::string& where);

// File in the directory of a bi-encoder with the parameters of the loss of its last training, such
// as a classifier. Other programs do not read it. Names of its tensors get the prefix.
inline constexpr std::string_view kLossFile = "loss.safetensors";
inline constexpr std::string_view kLossParameters = "loss.";

// All tensors, mapped. With an index every shard must be there and hold exactly the tensors that
// the index expects in it. A directory of sentence-transformers also has the tensors of its Dense
// modules, under the names of a state dict: "2.linear.weight" is the weight of the first module
// behind the pooling. The views live as long as the object.
class WeightFiles {
 public:
  // `path`: a model directory, a file of one of the two formats, or an index. Throws IoError, and
  // DataError for what is missing, contradictory or damaged.
  explicit WeightFiles(const std::filesystem::path& path);
  ~WeightFiles();
  WeightFiles(const WeightFiles&) = delete;
  WeightFiles& operator=(const WeightFiles&) = delete;

  // The file, or the index.
  const std::filesystem::path& path() const { return path_; }
  // In the order of the file, or of the shards' names and then of each file.
  const std::vector<formats::TensorView>& tensors() const { return tensors_; }
  const formats::TensorView* find(std::string_view name) const;  // null when absent
  // As find(), or the tensor without the base prefix of the name, as a bare encoder has it:
  // "embeddings.LayerNorm.bias" for "bert.embeddings.LayerNorm.bias".
  const formats::TensorView* find_parameter(std::string_view name) const;
  // The file that holds tensors()[index].
  const std::filesystem::path& file_of(std::size_t index) const;

 private:
  class File;  // an open file of either format

  void open_file(const std::filesystem::path& file, std::string_view prefix = {});
  void open_modules(const std::filesystem::path& directory);
  void open_shards(const std::filesystem::path& index);

  std::filesystem::path path_;
  std::vector<std::unique_ptr<File>> files_;
  std::vector<formats::TensorView> tensors_;
  std::vector<std::size_t> file_of_tensor_;  // index into files_
  std::map<std::string, std::size_t, std::less<>> index_;
};

}  // namespace tandem::models
