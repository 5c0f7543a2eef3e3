#include "tandem/hub/dataset_files.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/volume.h"
#include "tandem/formats/compressed_file.h"
#include "tandem/hub/dataset_card.h"
#include "tandem/hub/datasets_cache.h"
#include "tandem/hub/hub_cache.h"
#include "tandem/hub/snapshot_download.h"

namespace tandem::hub {
namespace {

namespace fs = std::filesystem;

struct Part {
  std::string_view name;
  const SplitWords& split;
  std::vector<fs::path> DatasetFiles::*files;
};

constexpr Part kParts[] = {
    {"training", kSplitWords[0], &DatasetFiles::train},
    {"validation", kSplitWords[1], &DatasetFiles::validation},
    {"test", kSplitWords[2], &DatasetFiles::test},
};
constexpr Part kMismatched[] = {
    {"mismatched validation", kSplitWords[1], &DatasetFiles::other_validation},
    {"mismatched test", kSplitWords[2], &DatasetFiles::other_test},
};

// The split that takes the part's place, if one was named.
const std::optional<std::string>& split_named_for(const SplitNames& splits, const Part& part) {
  if (&part == &kParts[0]) return splits.train;
  return &part == &kParts[1] ? splits.validation : splits.test;
}

// The part in a file's name, or null.
const Part* part_of_file(const fs::path& file, const SplitNames& splits) {
  const std::string stem = formats::uncompressed_name(file).stem().string();
  const auto stands = [&](std::string_view word) { return !word.empty() && has_word(stem, word); };
  if (std::any_of(splits.removed.begin(), splits.removed.end(), stands)) return nullptr;
  for (const Part& part : kParts) {
    if (const auto& name = split_named_for(splits, part); name && stands(*name)) return &part;
  }
  const bool mismatched = has_word(stem, "mismatched");
  for (const Part& part : mismatched ? std::span<const Part>(kMismatched) : kParts) {
    if (!mismatched && split_named_for(splits, part)) continue;
    if (std::any_of(part.split.words.begin(), part.split.words.end(), stands)) return &part;
  }
  return nullptr;
}

std::vector<fs::path> entries_of(const fs::path& directory, bool folders) {
  std::vector<fs::path> entries;
  for (const fs::path& path : list_directory(directory)) {
    if (is_directory_there(path) == folders) entries.push_back(path);
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

// Parts of a name "base-00001-of-00003.parquet"; a file with another name is its own only shard.
struct Shard {
  std::string base;
  std::size_t index = 0, count = 1;
};

Shard shard_of(const fs::path& file) {
  const std::string stem = formats::uncompressed_name(file).stem().string();
  const std::size_t of = stem.rfind("-of-");
  const std::size_t dash = of == std::string::npos || of == 0 ? of : stem.rfind('-', of - 1);
  Shard shard;
  if (of != std::string::npos && dash != std::string::npos) {
    const auto number = [&](std::size_t begin, std::size_t end, std::size_t& value) {
      const char* last = stem.data() + end;
      return begin < end && std::from_chars(stem.data() + begin, last, value).ptr == last;
    };
    if (number(dash + 1, of, shard.index) && number(of + 4, stem.size(), shard.count)) {
      shard.base = stem.substr(0, dash) + formats::format_ending(file);
      return shard;
    }
  }
  return {file.filename().string()};
}

[[noreturn]] void choose_folder(const DatasetQuery& query, const fs::path& where,
                                const std::vector<std::string>& names) {
  raise<DataError>("{} has the configurations {}; choose one with --dataset_config_name{}",
                   where.string(), fmt::join(names, ", "),
                   query.config ? fmt::format(", '{}' is not among them", *query.config) : "");
}

[[noreturn]] void nothing_readable(const DatasetQuery& query, const fs::path& directory) {
  std::vector<std::string> others;
  for (const fs::path& file : entries_of(directory, false)) {
    if (others.size() < 5) others.push_back(file.filename().string());
  }
  raise<DataError>(
      "{}: no file such as train-v1.1.json, validation.jsonl or train-00000-of-00001.parquet in "
      "it, its folder data{} or one folder next to it{}; expected are names with train, validation "
      "(or dev) or test in them that end in {}",
      directory.string(), query.config ? fmt::format(", its folder {}", *query.config) : "",
      others.empty() ? "" : fmt::format(" (found {})", fmt::join(others, ", ")),
      formats::formats_text(query.extensions));
}

bool is_readable(const DatasetQuery& query, const std::string& name) {
  return formats::has_format(name, query.extensions);
}

// The readable names with the most common ending, as `datasets` chooses them.
std::vector<std::string> of_one_format(const DatasetQuery& query,
                                       const std::vector<std::string>& names) {
  std::map<std::string, std::vector<std::string>> by_extension;
  for (const std::string& name : names) {
    if (is_readable(query, name) &&
        std::find(std::begin(kCardFiles), std::end(kCardFiles), name) == std::end(kCardFiles))
      by_extension[formats::format_ending(name)].push_back(name);
  }
  const auto most = std::max_element(
      by_extension.begin(), by_extension.end(),
      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  return most == by_extension.end() ? std::vector<std::string>() : most->second;
}

std::vector<std::string> all_of(const FilesOfSplits& splits) {
  std::vector<std::string> files;
  for (const auto& [split, members] : splits)
    files.insert(files.end(), members.begin(), members.end());
  return files;
}

// The files of the configuration that the card has for the query.
FilesOfSplits files_by_card(const DatasetQuery& query, const std::string& where,
                            const std::vector<CardConfiguration>& card,
                            const std::vector<std::string>& names,
                            std::vector<std::string>& missing) {
  const CardConfiguration& chosen = choose_configuration(card, query.config, where);
  if (chosen.patterns.empty()) return files_by_name(of_one_format(query, names), chosen.directory);
  FilesOfSplits files = files_of_patterns(names, chosen, missing);
  for (const auto& [split, members] : files) {
    for (const std::string& name : members) {
      if (is_readable(query, name)) continue;
      raise<DataError>("{}: the split {} has the file {}; expected names that end in {}", where,
                       split, name, formats::formats_text(query.extensions));
    }
  }
  return files;
}

// Files of one format whose folders name their splits (files_by_folder). A configuration is such
// a folder itself.
FilesOfSplits files_by_folder_of(const DatasetQuery& query, const std::vector<std::string>& names) {
  if (query.config) return {};
  std::vector<std::string> readable;
  std::copy_if(names.begin(), names.end(), std::back_inserter(readable),
               [&](const std::string& name) { return is_readable(query, name); });
  return files_by_folder(of_one_format(query, all_of(files_by_folder(readable, ""))), "");
}

DatasetFiles parts_of(const FilesOfSplits& splits, const SplitNames& roles,
                      const fs::path& directory) {
  DatasetFiles files;
  files.directory = directory;
  const std::pair<std::string_view, std::vector<fs::path> DatasetFiles::*> parts[] = {
      {"train", &DatasetFiles::train},
      {"validation", &DatasetFiles::validation},
      {"validation_matched", &DatasetFiles::validation},
      {"validation_mismatched", &DatasetFiles::other_validation},
      {"test", &DatasetFiles::test},
      {"test_matched", &DatasetFiles::test},
      {"test_mismatched", &DatasetFiles::other_test}};
  for (const auto& [split, names] : splits) {
    const std::string_view role = played_by(roles, split);
    for (const auto& [name, member] : parts) {
      if (name != role) continue;
      for (const std::string& file : names) (files.*member).push_back(directory / file);
    }
  }
  return files;
}

std::vector<CardConfiguration> card_of(const fs::path& directory) {
  for (const std::string_view name : kCardFiles) {
    const auto text = read_file_if_exists(directory / name);
    if (!text) continue;
    auto card = read_card(*text, name != "README.md", (directory / name).string());
    if (!card.empty()) return card;
  }
  return {};
}

// Files of a data set's directory and its folders, relative to it. A directory that is not a data
// set may be deep: only so much of it is looked at.
void add_names(const fs::path& directory, const std::string& prefix, int depth,
               std::vector<std::string>& names) {
  constexpr int kDeepest = 8;
  constexpr std::size_t kMostNames = 100'000;
  for (const fs::path& file : entries_of(directory, false)) {
    if (names.size() < kMostNames) names.push_back(prefix + file.filename().string());
  }
  for (const fs::path& folder : entries_of(directory, true)) {
    if (depth < kDeepest && names.size() < kMostNames)
      add_names(folder, prefix + folder.filename().string() + '/', depth + 1, names);
  }
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  add_names(directory, "", 0, names);
  return names;
}

// The files of a directory, or nothing: see the header.
std::optional<DatasetFiles> find_files(const DatasetQuery& query, const fs::path& directory) {
  if (const auto card = card_of(directory); !card.empty()) {
    std::vector<std::string> missing;
    const FilesOfSplits splits =
        files_by_card(query, directory.string(), card, names_in(directory), missing);
    DatasetFiles files = parts_of(splits, query.splits, directory);
    return files.empty() || !missing.empty() ? std::nullopt : std::optional(files);
  }
  const FilesOfSplits by_folder = files_by_folder_of(query, names_in(directory));
  if (DatasetFiles files = parts_of(by_folder, query.splits, directory); !files.empty()) {
    for (const Part& part : kParts) {
      const auto& members = files.*(part.files);
      if (!members.empty() && shard_of(members.front()).count > 1)
        require_all_shards(members, part.name);
    }
    return files;
  }
  std::vector<fs::path> folders;
  if (query.config) folders.push_back(directory / *query.config);
  folders.push_back(directory);
  folders.push_back(directory / "data");
  for (const fs::path& folder : folders) {
    DatasetFiles files = files_of_folder(folder, query.extensions, query.splits);
    if (!files.empty()) return files;
  }
  // As on the Hub: a folder for each configuration.
  std::vector<DatasetFiles> configurations;
  std::vector<std::string> names;
  for (const fs::path& folder : entries_of(directory, true)) {
    DatasetFiles files = files_of_folder(folder, query.extensions, query.splits);
    if (files.empty()) continue;
    configurations.push_back(std::move(files));
    names.push_back(folder.filename().string());
  }
  if (configurations.empty() && query.config) return std::nullopt;
  if (configurations.empty()) {
    DatasetFiles files = parts_of(files_by_name(of_one_format(query, names_in(directory)), ""),
                                  query.splits, directory);
    return files.empty() ? std::nullopt : std::optional(files);
  }
  if (configurations.size() > 1 || query.config) choose_folder(query, directory, names);
  return configurations.front();
}

DatasetFiles files_of_directory(const DatasetQuery& query, const fs::path& directory) {
  if (auto files = find_files(query, directory)) return *std::move(files);
  if (const auto card = card_of(directory); !card.empty()) {
    std::vector<std::string> missing;
    files_by_card(query, directory.string(), card, names_in(directory), missing);
    raise<DataError>(
        "{}: `configs:` of its README.md or .huggingface.yaml names {}; expected files of the "
        "splits train, validation or test",
        directory.string(),
        missing.empty() ? "none of these splits"
                        : fmt::format("{}, which is missing", fmt::join(missing, ", ")));
  }
  nothing_readable(query, directory);
}

// Names by folder and ending.
using FilesOfFolders = std::map<std::string, std::map<std::string, std::vector<std::string>>>;

// The folder of a repository that holds the data set; nothing if no folder has files with words of
// parts in their names. Throws DataError that lists configurations if one must be chosen.
std::optional<std::string> folder_of(const DatasetQuery& query, const FilesOfFolders& folders) {
  std::vector<std::string> wanted = {"", "data"};
  if (query.config) wanted.insert(wanted.begin(), *query.config);
  for (const std::string& folder : wanted) {
    if (folders.find(folder) != folders.end()) return folder;
  }
  std::vector<std::string> configurations;
  for (const auto& [folder, files] : folders) {
    if (folder.find('/') == std::string::npos) configurations.push_back(folder);
  }
  if (configurations.empty()) return std::nullopt;
  if (configurations.size() > 1 || query.config) choose_folder(query, query.name, configurations);
  return configurations.front();
}

// Those of a repository without files named for a part.
std::vector<std::string> files_without_words(const DatasetQuery& query,
                                             const std::vector<std::string>& names) {
  if (!query.config) {
    auto files = all_of(files_by_name(of_one_format(query, names), ""));
    if (!files.empty()) return files;
  }
  raise<DataError>(
      "the data set '{}' on the Hub has no {} that ends in {}; it may be made by a script, which "
      "tandem does not run: make files of it with the package datasets and pass them as "
      "--train_file and --validation_file",
      query.name, query.config ? "file with train, validation or test in its name" : "file",
      formats::formats_text(query.extensions));
}

// run_qa.py's --cache_dir is the root of the models' cache too: a data set may lie there or in the
// usual place.
std::vector<std::optional<std::string>> hub_cache_dirs(const DatasetQuery& query) {
  if (!query.cache_dir) return {std::nullopt};
  return {query.cache_dir, std::nullopt};
}

Query hub_query(const DatasetQuery& query, const std::optional<std::string>& cache_dir) {
  return {query.name, RepositoryType::kDataset, "main", cache_dir, {}};
}

// A snapshot in the hub cache that has files for us: one with others only (a README) does not
// count.
std::optional<DatasetFiles> find_in_hub_cache(const DatasetQuery& query,
                                              const Environment& environment,
                                              std::vector<Attempt>& attempts) {
  for (const auto& cache_dir : hub_cache_dirs(query)) {
    const auto found = find_cached(hub_query(query, cache_dir), environment, attempts);
    if (!found) continue;
    if (auto files = find_files(query, found->directory)) return files;
    attempts.push_back({found->directory, "holds no files with questions"});
  }
  return std::nullopt;
}

// From the Hub into the hub cache. The snapshot gets its links when all bytes are there: half a
// data set never looks like a whole one.
DatasetFiles download(const DatasetQuery& query, const Environment& environment,
                      const HubSettings& settings, DownloadObserver& observer) {
  const Query wanted = hub_query(query, query.cache_dir);
  SnapshotDownload snapshot(cache_root(wanted.type, wanted.cache_dir, environment),
                            {query.name, wanted.type}, wanted.revision, std::nullopt, settings,
                            observer);
  std::vector<Attempt> ignored;  // another process may have downloaded it meanwhile
  if (auto files = find_in_hub_cache(query, environment, ignored)) return *std::move(files);
  const RepositoryListing listing = snapshot.list();
  for (const std::string_view card : kCardFiles) {
    if (std::find(listing.files.begin(), listing.files.end(), card) != listing.files.end())
      snapshot.fetch(std::string(card));
  }
  snapshot.fetch_all(choose_dataset_files(listing.files, query, card_of(snapshot.directory())));
  return files_of_directory(query, snapshot.directory());
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

DatasetFiles files_of_folder(const fs::path& folder, std::span<const std::string_view> extensions,
                             const SplitNames& splits) {
  DatasetFiles files;
  files.directory = folder;
  for (const fs::path& file : entries_of(folder, false)) {
    if (!formats::has_format(file, extensions)) continue;
    if (const Part* part = part_of_file(file, splits))
      add_shard(files.*(part->files), file, part->name);
  }
  for (const Part& part : kParts) require_all_shards(files.*(part.files), part.name);
  for (const Part& part : kMismatched) require_all_shards(files.*(part.files), part.name);
  return files;
}

std::vector<std::string> choose_dataset_files(const std::vector<std::string>& names,
                                              const DatasetQuery& query,
                                              const std::vector<CardConfiguration>& card) {
  if (!card.empty()) {
    std::vector<std::string> missing;
    auto files = all_of(files_by_card(query, query.name, card, names, missing));
    if (!files.empty() && missing.empty()) return files;
    raise<DataError>("the data set '{}' on the Hub has no {}, which `configs:` of its card names",
                     query.name, missing.empty() ? "file" : missing.front());
  }
  if (auto files = all_of(files_by_folder_of(query, names)); !files.empty()) return files;
  // Folder by folder, and in each by ending: a repository may hold the same data in two formats.
  FilesOfFolders folders;
  for (const std::string& name : names) {
    const fs::path path = name;
    if (is_readable(query, name) && part_of_file(path, query.splits) != nullptr)
      folders[path.parent_path().string()][formats::format_ending(path)].push_back(name);
  }
  const std::optional<std::string> chosen = folder_of(query, folders);
  if (!chosen) return files_without_words(query, names);
  const auto& by_extension = folders.at(*chosen);
  const auto parquet = by_extension.find(".parquet");
  return parquet != by_extension.end() ? parquet->second : by_extension.begin()->second;
}

DatasetFiles resolve_dataset(const DatasetQuery& query, const Environment& environment,
                             DownloadObserver& observer) {
  std::error_code error;
  if (fs::is_directory(query.name, error)) {
    if (auto saved = read_saved_dataset(query.name, query.splits)) return *std::move(saved);
    return files_of_directory(query, query.name);
  }
  std::vector<std::string> looked_at;
  if (auto cached = find_in_datasets_cache(query, environment, looked_at)) {
    return *std::move(cached);
  }
  std::vector<Attempt> attempts;
  if (auto found = find_in_hub_cache(query, environment, attempts)) return *std::move(found);
  const std::string others = fmt::format("\nnor is it in the cache of the package datasets:\n  {}",
                                         fmt::join(looked_at, "\n  "));
  try {
    const Query wanted = hub_query(query, query.cache_dir);
    if (!is_repository_name(query.name) || fs::exists(query.name, error))
      throw_not_found(wanted, attempts, "");
    const HubSettings settings = hub_settings(environment, query.token, wanted.type);
    if (settings.offline) {
      throw_not_found(
          wanted, attempts,
          fmt::format("{} is set: nothing was asked of {}", *settings.offline, settings.endpoint));
    }
    DatasetFiles files;
    download_under_any_name(query.name, wanted.type, [&](const std::string& name) {
      DatasetQuery form = query;
      form.name = name;
      files = download(form, environment, settings, observer);
    });
    return files;
  } catch (const DataError& failure) {
    throw DataError(failure.what() + others);
  } catch (const IoError& failure) {
    throw IoError(failure.what() + others);
  }
}

}  // namespace tandem::hub
