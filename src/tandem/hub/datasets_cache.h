// Reads files of the Python package `datasets`: its cache of loaded data sets, and folders that
// save_to_disk() wrote. Both hold Arrow streams.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tandem/core/env.h"
#include "tandem/hub/dataset_files.h"

namespace tandem::hub {

// Roots of caches, the first to be looked at first: query.cache_dir; then HF_DATASETS_CACHE,
// $HF_HOME/datasets, $XDG_CACHE_HOME/huggingface/datasets or ~/.cache/huggingface/datasets, the
// first that is set.
std::vector<std::filesystem::path> datasets_cache_roots(const DatasetQuery& query,
                                                        const Environment& environment);

// The newest entry <root>/<org___name>/<config>/<version>/<hash>/ for query.name under one of its
// aliases, with its files <name>-<split>.arrow or their shards. Places without a match are added to
// `looked_at`. Throws DataError that lists the configurations when there are several and none was
// named, or the named one is not among them.
//
// datasets 2.13 and older named the entries of data sets without a loading script after the format
// that was read: <root>/<org___builder>/<config>/0.0.0/<hash>/ (without an org <builder>/…),
// <config> being <org--name>-<hash>, or, when the data set's card named one, that name and a hash;
// then only the addresses in dataset_info.json name the data set. They are looked for after the
// others.
std::optional<DatasetFiles> find_in_datasets_cache(const DatasetQuery& query,
                                                   const Environment& environment,
                                                   std::vector<std::string>& looked_at);

// A folder of DatasetDict.save_to_disk() or Dataset.save_to_disk(); nothing when it is neither. The
// latter holds one part: the split that its state names, else the folder's name.
std::optional<DatasetFiles> read_saved_dataset(const std::filesystem::path& directory,
                                               const SplitNames& splits = {});

}  // namespace tandem::hub
