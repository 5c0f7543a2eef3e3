// Which file of a data set is the training part, which the evaluation part.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "tandem/core/env.h"

namespace tandem::hub {

struct DatasetFiles {
  std::filesystem::path directory;
  std::optional<std::filesystem::path> train;
  std::optional<std::filesystem::path> validation;
  std::optional<std::filesystem::path> test;
};

// Resolves --dataset_name: a directory, or a data set in the hub cache, that holds .json or .jsonl
// files. A file belongs to the part whose word stands in its name (train, training; validation,
// valid, dev, val; test, testing, eval, evaluation), as in "train-v1.1.json"; with `config` the
// folder of that name is looked at first. Throws DataError when nothing is found, when two files
// claim one part (naming both), and when there are only Arrow, Parquet or CSV files, which cannot
// be read yet.
DatasetFiles resolve_dataset(const std::string& name, const std::optional<std::string>& config,
                             const std::optional<std::string>& cache_dir,
                             const Environment& environment);

}  // namespace tandem::hub
