#include "tandem/hub/datasets_cache.h"

#include <algorithm>
#include <map>
#include <system_error>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/core/volume.h"
#include "tandem/hub/hub_cache.h"

namespace tandem::hub {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::vector<fs::path> folders_in(const fs::path& directory) {
  std::vector<fs::path> folders;
  for (const fs::path& path : list_directory(directory)) {
    // An entry that is being made has another name until it is complete.
    const bool unfinished = path.extension() == ".incomplete";
    if (!unfinished && is_directory_there(path)) folders.push_back(path);
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

// The part of a data set that `datasets` calls `split`; null for a split of another name.
std::vector<fs::path>* part_of(DatasetFiles& files, const SplitNames& names,
                               std::string_view split_name) {
  const std::string_view split = played_by(names, split_name);
  if (split == "train") return &files.train;
  if (split == "validation" || split == "validation_matched") return &files.validation;
  if (split == "test" || split == "test_matched") return &files.test;
  if (split == "validation_mismatched") return &files.other_validation;
  return split == "test_mismatched" ? &files.other_test : nullptr;
}

// "squad-train" and "squad-train-00000-of-00002" are of the split "train".
std::string split_of(std::string stem) {
  constexpr std::string_view kShard = "-00000-of-00000";
  if (stem.size() > kShard.size() &&
      stem.compare(stem.size() - kShard.size() + 6, 4, "-of-") == 0) {
    stem.resize(stem.size() - kShard.size());
  }
  const std::size_t dash = stem.rfind('-');
  return dash == std::string::npos ? "" : stem.substr(dash + 1);
}

// splits.<split>.num_examples; nothing where there is no such number.
std::optional<std::size_t> rows_of(const json& info, const std::string& split) {
  const auto splits = info.find("splits");
  if (splits == info.end() || !splits->is_object() || !splits->contains(split)) return {};
  const json& one = splits->at(split);
  const auto rows = one.is_object() ? one.find("num_examples") : one.end();
  if (rows == one.end() || !rows->is_number_unsigned()) return {};
  return rows->get<std::size_t>();
}

// dataset_info.json of an entry; an empty object if it is missing.
json info_of(const fs::path& entry) {
  const auto text = read_file_if_exists(entry / "dataset_info.json");
  json info = try_parse_json(text.value_or("{}"));
  return info.is_object() ? info : json::object();
}

DatasetFiles files_of_entry(const fs::path& entry, const SplitNames& splits) {
  DatasetFiles files;
  files.directory = entry;
  std::vector<fs::path> arrow_files;
  for (const fs::path& path : list_directory(entry)) {
    // cache-….arrow: results of map(), not the data set.
    const bool derived = path.filename().string().starts_with("cache-");
    if (path.extension() == ".arrow" && !derived) arrow_files.push_back(path);
  }
  std::sort(arrow_files.begin(), arrow_files.end());
  for (const fs::path& file : arrow_files) {
    const std::string split = split_of(file.stem().string());
    if (auto* part = part_of(files, splits, split)) add_shard(*part, file, split);
  }
  require_all_shards(files.train, "train");
  require_all_shards(files.validation, "validation");
  require_all_shards(files.test, "test");
  const json info = info_of(entry);
  files.train_rows = rows_of(info, splits.train.value_or("train"));
  files.validation_rows = rows_of(info, splits.validation.value_or("validation"));
  files.test_rows = rows_of(info, splits.test.value_or("test"));
  return files;
}

fs::file_time_type time_of(const fs::path& entry) {
  std::error_code error;
  const auto time = fs::last_write_time(entry / "dataset_info.json", error);
  return error ? fs::last_write_time(entry, error) : time;
}

// "default-0123456789abcdef", of a data set made of local files, is the configuration "default".
std::string config_of(const fs::path& folder) {
  std::string name = folder.filename().string();
  const std::size_t dash = name.rfind('-');
  const bool hashed = dash != std::string::npos && name.size() - dash - 1 == 16 &&
                      name.find_first_not_of("0123456789abcdef", dash + 1) == std::string::npos;
  return hashed ? name.substr(0, dash) : name;
}

using EntriesByConfig = std::map<std::string, std::vector<fs::path>>;

// The complete entries in <root>/<org___name>.
EntriesByConfig entries_in(const fs::path& dataset, const SplitNames& splits) {
  EntriesByConfig entries;
  for (const fs::path& config_folder : folders_in(dataset)) {
    for (const fs::path& version : folders_in(config_folder)) {
      for (const fs::path& entry : folders_in(version)) {
        if (!files_of_entry(entry, splits).empty())
          entries[config_of(config_folder)].push_back(entry);
      }
    }
  }
  return entries;
}

// Whether files of the Hub's data set `name` went into an entry.
bool downloaded_from(const fs::path& entry, const std::string& name) {
  const json info = info_of(entry);
  const auto downloads = info.find("download_checksums");
  if (downloads == info.end() || !downloads->is_object()) return false;
  const std::string address = fmt::format("/datasets/{}/resolve/", name);
  for (const auto& [url, ignored] : downloads->items()) {
    if (url.find(address) != std::string::npos) return true;
  }
  return false;
}

// Those of the data set `name` as datasets 2.13 and older placed them. Without a configuration in
// the data set's card its name stands in the configuration's place; then the data set has one,
// which later versions call "default". Without `config`, the entries of all configurations. An
// unknown `config` is accepted here, because another place may have it.
EntriesByConfig old_entries(const fs::path& root, const std::string& name,
                            const DatasetQuery& query) {
  const std::optional<std::string>& config = query.config;
  const std::size_t slash = name.find('/');
  const std::string organization = slash == std::string::npos ? "" : name.substr(0, slash) + "___";
  std::string anonymous;
  for (const char c : name) anonymous += c == '/' ? std::string("--") : std::string(1, c);
  EntriesByConfig entries;
  for (const char* builder : {"parquet", "json", "csv", "arrow", "pandas"}) {
    for (const auto& [found_config, found] :
         entries_in(root / (organization + builder), query.splits)) {
      for (const fs::path& entry : found) {
        if (found_config == anonymous) {
          entries["default"].push_back(entry);
        } else if (downloaded_from(entry, name)) {
          entries[found_config].push_back(entry);
        }
      }
    }
  }
  if (config) {
    std::erase_if(entries, [&](const auto& of_config) { return of_config.first != *config; });
  }
  return entries;
}

// The newest of the wanted configuration.
std::optional<DatasetFiles> newest_entry(const fs::path& dataset, const EntriesByConfig& entries,
                                         const DatasetQuery& query) {
  const std::optional<std::string>& config = query.config;
  if (entries.empty()) return std::nullopt;
  const auto wanted = config ? entries.find(*config) : entries.begin();
  if (wanted == entries.end() || (!config && entries.size() > 1)) {
    std::vector<std::string> names;
    for (const auto& [name, ignored] : entries) names.push_back(name);
    raise<DataError>("{} has the configurations {}; choose one with --dataset_config_name{}",
                     dataset.string(), fmt::join(names, ", "),
                     config ? fmt::format(", '{}' is not among them", *config) : "");
  }
  return files_of_entry(*std::max_element(wanted->second.begin(), wanted->second.end(),
                                          [](const fs::path& a, const fs::path& b) {
                                            return time_of(a) < time_of(b);
                                          }),
                        query.splits);
}

std::string folder_of(std::string_view name) {
  std::string folder;
  for (const char c : name) folder += c == '/' ? std::string("___") : std::string(1, c);
  return folder;
}

json read_json(const fs::path& path) {
  json value = try_parse_json(read_file(path));
  if (!value.is_object()) raise<DataError>("{}: expected a JSON object", path.string());
  return value;
}

// The files of a Dataset that was saved, as its state.json lists them.
std::vector<fs::path> saved_files(const fs::path& directory, const json& state) {
  std::vector<fs::path> files;
  const auto list = state.find("_data_files");
  const bool is_list = list != state.end() && list->is_array();
  for (const json& file : is_list ? *list : json::array()) {
    const auto name = file.is_object() ? file.find("filename") : file.end();
    if (name == file.end() || !name->is_string()) break;
    files.push_back(directory / fs::path(name->get<std::string>()).filename());
  }
  if (!is_list || files.size() != list->size() || files.empty()) {
    raise<DataError>("{}: no list of file names under \"_data_files\"",
                     (directory / "state.json").string());
  }
  return files;
}

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

}  // namespace

std::vector<fs::path> datasets_cache_roots(const DatasetQuery& query,
                                           const Environment& environment) {
  std::vector<fs::path> roots;
  if (query.cache_dir) roots.emplace_back(*query.cache_dir);
  if (const auto cache = environment.get("HF_DATASETS_CACHE")) {
    roots.emplace_back(*cache);
  } else if (const auto home = environment.get("HF_HOME")) {
    roots.push_back(fs::path(*home) / "datasets");
  } else if (const auto xdg = environment.get("XDG_CACHE_HOME")) {
    roots.push_back(fs::path(*xdg) / "huggingface" / "datasets");
  } else if (const auto user = environment.get("HOME")) {
    roots.push_back(fs::path(*user) / ".cache" / "huggingface" / "datasets");
  }
  return roots;
}

std::optional<DatasetFiles> find_in_datasets_cache(const DatasetQuery& query,
                                                   const Environment& environment,
                                                   std::vector<std::string>& looked_at) {
  for (const fs::path& root : datasets_cache_roots(query, environment)) {
    for (const std::string& name : aliases(query.name, RepositoryType::kDataset)) {
      const fs::path dataset = root / folder_of(name);
      if (auto files = newest_entry(dataset, entries_in(dataset, query.splits), query))
        return files;
      if (auto files = newest_entry(root, old_entries(root, name, query), query)) return files;
      looked_at.push_back(
          fmt::format("{}: {}", dataset.string(),
                      is_there(dataset) ? "no complete data set in it" : "no such folder"));
    }
  }
  return std::nullopt;
}

std::optional<DatasetFiles> read_saved_dataset(const fs::path& directory,
                                               const SplitNames& splits) {
  DatasetFiles files;
  files.directory = directory;
  if (is_file(directory / "dataset_dict.json")) {
    for (const fs::path& folder : folders_in(directory)) {
      auto* part = part_of(files, splits, folder.filename().native());
      if (part == nullptr || !is_file(folder / "state.json")) continue;
      *part = saved_files(folder, read_json(folder / "state.json"));
    }
    return files;
  }
  if (!is_file(directory / "state.json")) return std::nullopt;
  const json state = read_json(directory / "state.json");
  const auto split = state.find("_split");
  const std::string name = split != state.end() && split->is_string()
                               ? split->get<std::string>()
                               : directory.filename().string();
  auto* part = part_of(files, splits, name);
  if (part == nullptr) {
    raise<DataError>(
        "{}: a saved Dataset of the split '{}', expected train, validation or test; save a "
        "DatasetDict "
        "of them, or name the folder after its split",
        directory.string(), name);
  }
  *part = saved_files(directory, state);
  return files;
}

}  // namespace tandem::hub
