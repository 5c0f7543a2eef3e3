#include "tandem/models/heads/module_files.h"

#include "tandem/core/file.h"
#include "tandem/formats/unique_json.h"

namespace tandem::models {
namespace {

namespace fs = std::filesystem;

fs::path module_directory(const fs::path& directory, const std::string& path,
                          const std::string& where) {
  const fs::path relative = fs::path(path).lexically_normal();
  if (relative.is_absolute() || (!relative.empty() && *relative.begin() == ".."))
    raise<DataError>("{}: the path '{}' leads out of the model's directory", where, path);
  return directory / relative;
}

}  // namespace

std::optional<JsonFile> read_json(const fs::path& path) {
  const auto text = read_file_if_exists(path);
  if (!text) return std::nullopt;
  return JsonFile{formats::parse_unique_json(*text, path.string()), path.string()};
}

void write_json(const fs::path& path, const nlohmann::ordered_json& value) {
  fs::create_directories(path.parent_path());
  write_file(path, value.dump(2) + "\n");
}

std::string last_component(const std::string& type) { return type.substr(type.rfind('.') + 1); }

std::optional<std::vector<ModuleEntry>> read_modules(const fs::path& directory) {
  const auto file = read_json(directory / "modules.json");
  if (!file) return std::nullopt;
  if (!file->object.is_array() || file->object.empty())
    raise<DataError>("{}: found no modules, expected a list of them", file->path);
  std::vector<ModuleEntry> modules;
  for (std::size_t i = 0; i < file->object.size(); ++i) {
    const JsonFile entry{file->object[i], fmt::format("{}: module {}", file->path, i)};
    const std::string path = value_of(entry, "path", std::string());
    modules.push_back({last_component(value_of(entry, "type", std::string())),
                       module_directory(directory, path, entry.path), entry.path});
    if (i > 0) continue;
    if (modules.front().kind != "Transformer")
      raise<DataError>("{}: found '{}', expected Transformer", entry.path, modules.front().kind);
    if (!path.empty() && path != ".")
      raise<DataError>("{}: the Transformer is in '{}', expected the model's directory itself",
                       entry.path, path);
  }
  return modules;
}

}  // namespace tandem::models
