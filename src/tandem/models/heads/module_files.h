// Reading of the JSON files of sentence-transformers: for bi-encoders (sentence_files.h) and
// rerankers (logit_score.h). Internal to heads.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/core/json.h"

namespace tandem::models {

struct JsonFile {
  nlohmann::json object;
  std::string path;
};

// Nothing if there is no such file. Throws DataError for one that is not JSON.
std::optional<JsonFile> read_json(const std::filesystem::path& path);

// The value of a key, or `otherwise` if the key is absent or null. Throws DataError that names the
// file and the key.
template <class T>
T value_of(const JsonFile& file, const char* key, T otherwise) {
  if (!file.object.is_object())
    raise<DataError>("{}: found {}, expected an object", file.path, file.object.type_name());
  const auto found = file.object.find(key);
  if (found == file.object.end() || found->is_null()) return otherwise;
  try {
    return found->get<T>();
  } catch (const nlohmann::json::exception&) {
    raise<DataError>("{}: {}: found {}, expected another type", file.path, key, found->dump());
  }
}

// Writes such a file, and the folders that it needs. Throws IoError.
void write_json(const std::filesystem::path& path, const nlohmann::ordered_json& value);

// "Pooling" of "sentence_transformers.models.Pooling".
std::string last_component(const std::string& type);

// An entry of modules.json.
struct ModuleEntry {
  std::string kind;                 // last_component() of its type
  std::filesystem::path directory;  // inside the model's directory
  std::string where;                // for messages
};
// All of them, a Transformer in the model's directory first. Nothing without the file. Throws
// DataError: no list, another first module, a path that leads out of the directory.
std::optional<std::vector<ModuleEntry>> read_modules(const std::filesystem::path& directory);

}  // namespace tandem::models
