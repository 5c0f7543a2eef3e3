// The files that every task's examples come from: --dataset_name, or --train_file and its siblings.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/env.h"
#include "tandem/flags/flag.h"
#include "tandem/hub/dataset_files.h"
#include "tandem/hub/download_observer.h"
#include "tandem/hub/model_arguments.h"
#include "tandem/tasks/stages.h"

namespace tandem::tasks {

// A part of a task's arguments: it derives from this, and its add_to() adds both.
struct DataSource {
  std::optional<std::string> dataset_name;         // a directory, or a name in a cache
  std::optional<std::string> dataset_config_name;  // the data set's configuration
  std::optional<std::string> train_file;
  std::optional<std::string> validation_file;
  std::optional<std::string> test_file;
  // Splits to use instead of train, validation and test; single files are splits of these names.
  std::optional<std::string> train_split_name, validation_split_name, test_split_name;
  std::optional<std::string> remove_splits;  // comma list of splits that are as good as absent
  bool evaluate_on_test = false;             // where there is no validation split
};

// The parts of a list that commas separate.
std::vector<std::string> comma_list(std::string_view text);

// The five flags; `formats` is the list of training files in the help.
flags::FlagTable data_source_flags(std::string_view formats);

// Looks for endings that cannot be read, and for data that a stage needs but no flag names;
// `evaluation_flag` is the flag that asked for an evaluation. Reads no file. Throws ConfigError.
void check_data_source(const DataSource& source, const Stages& stages,
                       std::string_view evaluation_flag,
                       std::span<const std::string_view> extensions);

// As in Hugging Face's scripts a data set's name wins over single files. Throws ConfigError when a
// part that a stage needs or a split that was named is not there, and what hub::resolve_dataset()
// throws.
hub::DatasetFiles find_data_files(const DataSource& source, const Stages& stages,
                                  const hub::ModelArguments& model, const Environment& environment,
                                  hub::DownloadObserver& downloads,
                                  std::span<const std::string_view> extensions);

// A description for people of the files or the data set, and of its parts in use.
std::string data_text(const DataSource& source, const Stages& stages);

}  // namespace tandem::tasks
