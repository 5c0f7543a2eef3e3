#include "tandem/hub/dataset_files.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "tandem/core/error.h"
#include "tandem/hub/datasets_cache.h"
#include "tandem/hub/hub_cache.h"

namespace tandem::hub {
namespace {

namespace fs = std::filesystem;

struct Part {
  std::string_view name;
  std::array<std::string_view, 4> words;
  std::vector<fs::path> DatasetFiles::*files;
};

constexpr Part kParts[] = {
    {"training", {"train", "training", "", ""}, &DatasetFiles::train},
    {"validation", {"validation", "valid", "dev", "val"}, &DatasetFiles::validation},
    {"test", {"test", "testing", "eval", "evaluation"}, &DatasetFiles::test},
};

// Whether `word` stands in a file name between separators, as datasets recognises the parts of a
// data set.
bool has_word(const std::string& stem, std::string_view word) {
  const auto is_separator = [&](std::size_t at) {
    return at >= stem.size() ||
           std::string_view("-_. 0123456789").find(stem[at]) != std::string_view::npos;
  };
  for (std::size_t at = stem.find(word); at != std::string::npos; at = stem.find(word, at + 1)) {
    if ((at == 0 || is_separator(at - 1)) && is_separator(at + word.size())) return true;
  }
  return false;
}

std::vector<fs::path> entries_of(const fs::path& directory, bool folders) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->is_directory(error) == folders) entries.push_back(entry->path());
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

// What a name "base-00001-of-00003.parquet" says; a file of another name is its own only shard.
struct Shard {
  std::string base;
  std::size_t index = 0, count = 1;
};

Shard shard_of(const fs::path& file) {
  const std::string stem = file.stem().string();
  const std::size_t of = stem.rfind("-of-");
  const std::size_t dash = of == std::string::npos || of == 0 ? of : stem.rfind('-', of - 1);
  Shard shard;
  if (of != std::string::npos && dash != std::string::npos) {
    const auto number = [&](std::size_t begin, std::size_t end, std::size_t& value) {
      const char* last = stem.data() + end;
      return begin < end && std::from_chars(stem.data() + begin, last, value).ptr == last;
    };
    if (number(dash + 1, of, shard.index) && number(of + 4, stem.size(), shard.count)) {
      shard.base = stem.substr(0, dash) + file.extension().string();
      return shard;
    }
  }
  return {file.filename().string()};
}

[[noreturn]] void nothing_readable(const DatasetQuery& query, const fs::path& directory) {
  std::vector<std::string> others;
  for (const fs::path& file : entries_of(directory, false)) {
    if (others.size() < 5) others.push_back(file.filename().string());
  }
  raise<DataError>(
      "{}: no file such as train-v1.1.json, validation.jsonl or train-00000-of-00001.parquet in "
      "it, "
      "its folder data{} or one folder beside it{}; expected are names with train, validation (or "
      "dev) or test in them that end in {}",
      directory.string(), query.config ? fmt::format(", its folder {}", *query.config) : "",
      others.empty() ? "" : fmt::format(" (found {})", fmt::join(others, ", ")),
      fmt::join(query.extensions, ", "));
}

// The files of a directory: see the header.
DatasetFiles files_of_directory(const DatasetQuery& query, const fs::path& directory) {
  std::vector<fs::path> folders;
  if (query.config) folders.push_back(directory / *query.config);
  folders.push_back(directory);
  folders.push_back(directory / "data");
  for (const fs::path& folder : folders) {
    DatasetFiles files = files_of_folder(folder, query.extensions);
    if (!files.empty()) return files;
  }
  // As on the Hub: a folder for each configuration.
  std::vector<DatasetFiles> configurations;
  std::vector<std::string> names;
  for (const fs::path& folder : entries_of(directory, true)) {
    DatasetFiles files = files_of_folder(folder, query.extensions);
    if (files.empty()) continue;
    configurations.push_back(std::move(files));
    names.push_back(folder.filename().string());
  }
  if (configurations.empty()) nothing_readable(query, directory);
  if (configurations.size() > 1 || query.config) {
    raise<DataError>("{} has the configurations {}; choose one with --dataset_config_name{}",
                     directory.string(), fmt::join(names, ", "),
                     query.config ? fmt::format(", '{}' is not among them", *query.config) : "");
  }
  return configurations.front();
}

// run_qa.py's --cache_dir is the root of the models' cache too: a data set may lie there or in the
// usual place.
Resolved resolve_in_hub_cache(const DatasetQuery& query, const Environment& environment) {
  Query hub_query;
  hub_query.name = query.name;
  hub_query.type = RepositoryType::kDataset;
  if (query.cache_dir && fs::is_directory(*query.cache_dir)) {
    hub_query.cache_dir = query.cache_dir;
    try {
      return resolve(hub_query, environment);
    } catch (const DataError&) {
      hub_query.cache_dir.reset();
    }
  }
  return resolve(hub_query, environment);
}

}  // namespace

void add_shard(std::vector<fs::path>& shards, const fs::path& file, std::string_view part) {
  if (!shards.empty()) {
    const Shard last = shard_of(shards.back()), next = shard_of(file);
    if (last.base != next.base || last.count != next.count || last.index == next.index) {
      raise<DataError>(
          "{}: both {} and {} look like the {} part; give --train_file and --validation_file "
          "instead",
          file.parent_path().string(), shards.back().filename().string(), file.filename().string(),
          part);
    }
  }
  shards.push_back(file);
}

void require_all_shards(const std::vector<fs::path>& shards, std::string_view part) {
  if (shards.empty()) return;
  const std::size_t count = shard_of(shards.front()).count;
  for (std::size_t i = 0; i < std::max(count, shards.size()); ++i) {
    if (i < shards.size() && i < count && shard_of(shards[i]).index == i) continue;
    raise<DataError>("{}: the {} part has {} files, but shard {} of {} is not among them",
                     shards.front().parent_path().string(), part, shards.size(), i, count);
  }
}

DatasetFiles files_of_folder(const fs::path& folder, std::span<const std::string_view> extensions) {
  DatasetFiles files;
  files.directory = folder;
  for (const fs::path& file : entries_of(folder, false)) {
    const fs::path extension = file.extension();
    if (std::find(extensions.begin(), extensions.end(), extension) == extensions.end()) continue;
    const std::string stem = file.stem().string();
    for (const Part& part : kParts) {
      const bool matches =
          std::any_of(part.words.begin(), part.words.end(),
                      [&](std::string_view word) { return !word.empty() && has_word(stem, word); });
      if (!matches) continue;
      add_shard(files.*(part.files), file, part.name);
      break;
    }
  }
  for (const Part& part : kParts) require_all_shards(files.*(part.files), part.name);
  return files;
}

DatasetFiles resolve_dataset(const DatasetQuery& query, const Environment& environment) {
  std::error_code error;
  if (fs::is_directory(query.name, error)) {
    if (auto saved = read_saved_dataset(query.name)) return *std::move(saved);
    return files_of_directory(query, query.name);
  }
  std::vector<std::string> looked_at;
  if (auto cached = find_in_datasets_cache(query, environment, looked_at)) {
    return *std::move(cached);
  }
  try {
    return files_of_directory(query, resolve_in_hub_cache(query, environment).directory);
  } catch (const DataError& not_found) {
    raise<DataError>("{}\nnor is it in the cache of the package datasets:\n  {}", not_found.what(),
                     fmt::join(looked_at, "\n  "));
  }
}

}  // namespace tandem::hub
