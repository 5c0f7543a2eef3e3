// Which files of a data set are the training part, which the evaluation part.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/env.h"
#include "tandem/hub/dataset_card.h"
#include "tandem/hub/download_observer.h"
#include "tandem/hub/split_names.h"

namespace tandem::hub {

// The shards of one of several data sets.
struct NamedFiles {
  std::string name;
  std::vector<std::filesystem::path> files;
};

struct DatasetFiles {
  std::filesystem::path directory;
  // Each the shards of one part, in order; empty: the data set has no such part.
  std::vector<std::filesystem::path> train, validation, test;
  // Several training sets; `train` is then empty.
  std::vector<NamedFiles> train_sets = {};
  // The "mismatched" part next to a "matched" one, which only MNLI has.
  std::vector<std::filesystem::path> other_validation = {}, other_test = {};
  // How many rows each part has by the words of dataset_info.json, in the cache of `datasets`.
  std::optional<std::size_t> train_rows = {}, validation_rows = {}, test_rows = {};

  bool empty() const {
    return train.empty() && train_sets.empty() && validation.empty() && test.empty();
  }
};

struct DatasetQuery {
  std::string name;                      // a directory, "name" or "org/name"
  std::optional<std::string> config;     // --dataset_config_name
  std::optional<std::string> cache_dir;  // looked at before the environment's caches
  // Endings of the files that can be read, with their dots.
  std::span<const std::string_view> extensions;
  std::optional<std::string> token = {};  // token of the Hub; wins over the environment's
  SplitNames splits = {};
};

// Resolves --dataset_name. Looked at are, in this order:
//   1. a directory of this name: what save_to_disk() of `datasets` wrote, or files;
//   2. the cache of `datasets` (datasets_cache.h), the newest entry;
//   3. the hub cache (hub_cache.h);
//   4. the Hub, from which the files of the configuration are downloaded into the hub cache.
// In a directory or a snapshot `configs:` of its card (dataset_card.h) decides.
//
// Without a card data/SPLIT-00000-of-00002.… and folders with words of splits in their names come
// first, as in `datasets`. Else the files of a folder belong to the part whose word stands in their
// name (kSplitWords), as in "train-v1.1.json", or to that whose split query.splits names. Files
// "…-00000-of-00002.…" are shards of one. Folders are tried in this order: that of the
// configuration, the directory itself, its folder data, the only folder in it that has such files.
// Else all files are the training part.
//
// Throws DataError: with every place when nothing is found; when two files claim one part or a
// shard is missing; with their names when there are several configurations and none was named.
DatasetFiles resolve_dataset(const DatasetQuery& query, const Environment& environment,
                             DownloadObserver& observer);

// Which of a repository's files make up a data set: those that `card` names, else those of one
// folder (the configuration's, the repository itself, data, or the only other one) that belong to a
// part; Parquet wins over other formats. Throws DataError when there are none, and when there are
// several configurations and none was named.
std::vector<std::string> choose_dataset_files(const std::vector<std::string>& names,
                                              const DatasetQuery& query,
                                              const std::vector<CardConfiguration>& card = {});

// The files of one folder by the words in their names; no parts when there are none.
DatasetFiles files_of_folder(const std::filesystem::path& folder,
                             std::span<const std::string_view> extensions,
                             const SplitNames& splits = {});

// Adds `file` to the shards of a part, which must be given in order; `part` names it in messages.
void add_shard(std::vector<std::filesystem::path>& shards, const std::filesystem::path& file,
               std::string_view part);
// Throws DataError when a part has not all of its shards.
void require_all_shards(const std::vector<std::filesystem::path>& shards, std::string_view part);

}  // namespace tandem::hub
