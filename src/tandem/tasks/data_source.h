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
  std::optional<std::string> train_files;  // JSON {name: file or data set}, of tasks that have it
  std::optional<std::string> validation_file;
  std::optional<std::string> test_file;
  // Splits to use instead of train, validation and test; single files are splits of these names.
  std::optional<std::string> train_split_name, validation_split_name, test_split_name;
  std::optional<std::string> remove_splits;  // comma list of splits that are as good as absent
  bool evaluate_on_test = false;             // where there is no validation split
};

// A data set of --train_files.
struct NamedSource {
  std::string name;
  std::string location;  // a file, a directory, or the name of a data set and ":configuration"
};

// Those of --train_files in their order; none without the flag. Throws ConfigError unless the flag
// is a JSON object of at least two texts.
std::vector<NamedSource> train_sources(const DataSource& source);

// The value of a flag that has one for all training sets, or JSON with one for each. `set` is a
// name of --train_files; empty: the other rows, which JSON has nothing for. Throws ConfigError for
// invalid JSON and unknown data sets.
std::optional<std::string> value_of_set(const DataSource& source, std::string_view flag_name,
                                        const std::optional<std::string>& value,
                                        const std::string& set);

// The flag of several data sets.
flags::Flag train_files_flag();

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
