#include "tandem/tasks/data_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tandem/core/error.h"

namespace tandem::tasks {
namespace {

namespace fs = std::filesystem;
using flags::field;
using flags::flag;

void check_ending(std::string_view flag_name, const std::optional<std::string>& file,
                  std::span<const std::string_view> extensions) {
  if (!file) return;
  const std::string extension = fs::path(*file).extension().string();
  if (std::find(extensions.begin(), extensions.end(), extension) != extensions.end()) return;
  raise<ConfigError>("--{} {}: expected a file that ends in {}", flag_name, *file,
                     fmt::join(extensions, ", "));
}

hub::SplitNames split_names(const DataSource& source) {
  hub::SplitNames names{.train = source.train_split_name,
                        .validation = source.validation_split_name,
                        .test = source.test_split_name};
  if (source.remove_splits) names.removed = comma_list(*source.remove_splits);
  return names;
}

hub::DatasetFiles single_files(const DataSource& source) {
  hub::DatasetFiles files;
  const hub::SplitNames names = split_names(source);
  const auto add = [&](std::string_view split, const std::optional<std::string>& file) {
    const std::string_view part = hub::played_by(names, split);
    if (!file || part.empty()) return;
    (part == "train"        ? files.train
     : part == "validation" ? files.validation
                            : files.test) = {*file};
  };
  add("train", source.train_file);
  add("validation", source.validation_file);
  add("test", source.test_file);
  return files;
}

void require_split(std::string_view flag_name, const std::optional<std::string>& name,
                   const std::vector<fs::path>& shards) {
  if (!name || !shards.empty()) return;
  raise<ConfigError>("--{} {}: the data have no split of this name", flag_name, *name);
}

}  // namespace

std::vector<std::string> comma_list(std::string_view text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

flags::FlagTable data_source_flags(std::string_view formats) {
  return {
      flag("dataset_name", field<&DataSource::dataset_name>(),
           "directory of a data set, or its name in the cache of datasets or of the Hub"),
      flag("dataset_config_name", field<&DataSource::dataset_config_name>(),
           "configuration of the data set, for example plain_text"),
      flag("train_file", field<&DataSource::train_file>(), formats).as_path(),
      flag("validation_file", field<&DataSource::validation_file>(),
           "what is evaluated, as train_file")
          .as_path(),
      flag("test_file", field<&DataSource::test_file>(), "what is predicted, as train_file")
          .as_path(),
  };
}

void check_data_source(const DataSource& source, const Stages& stages,
                       std::string_view evaluation_flag,
                       std::span<const std::string_view> extensions) {
  check_ending("train_file", source.train_file, extensions);
  check_ending("validation_file", source.validation_file, extensions);
  check_ending("test_file", source.test_file, extensions);
  if (source.dataset_name) return;
  if (!source.train_file && !source.validation_file && !source.test_file) {
    raise<ConfigError>("no data: give --dataset_name, or --train_file and --validation_file");
  }
  if (stages.train && !source.train_file && !source.train_split_name)
    raise<ConfigError>("--do_train needs --train_file or --dataset_name");
  if (stages.eval && !source.validation_file && !source.validation_split_name &&
      !(source.evaluate_on_test && source.test_file))
    raise<ConfigError>("{} needs --validation_file or --dataset_name", evaluation_flag);
  if (stages.predict && !source.test_file && !source.test_split_name)
    raise<ConfigError>("--do_predict needs --test_file or --dataset_name");
}

hub::DatasetFiles find_data_files(const DataSource& source, const Stages& stages,
                                  const hub::ModelArguments& model, const Environment& environment,
                                  hub::DownloadObserver& downloads,
                                  std::span<const std::string_view> extensions) {
  hub::DatasetFiles files;
  if (source.dataset_name) {
    files = hub::resolve_dataset({*source.dataset_name, source.dataset_config_name, model.cache_dir,
                                  extensions, model.token, split_names(source)},
                                 environment, &downloads);
  } else {
    files = single_files(source);
  }
  require_split("train_split_name", source.train_split_name, files.train);
  require_split("validation_split_name", source.validation_split_name, files.validation);
  require_split("test_split_name", source.test_split_name, files.test);
  if (source.evaluate_on_test && files.validation.empty()) {
    files.validation = files.test;
    files.validation_rows = files.test_rows;
  }
  const auto require = [](bool wanted, const std::vector<fs::path>& shards, std::string_view stage,
                          std::string_view option) {
    if (!wanted || !shards.empty()) return;
    raise<ConfigError>("{} requires a data file: pass {}", stage, option);
  };
  require(stages.train, files.train, "--do_train", "--train_file");
  require(stages.eval, files.validation, "--do_eval", "--validation_file");
  require(stages.predict, files.test, "--do_predict", "--test_file");
  return files;
}

std::string data_text(const DataSource& source, const Stages& stages) {
  if (source.dataset_name) {
    return *source.dataset_name +
           (source.dataset_config_name ? fmt::format(" ({})", *source.dataset_config_name) : "");
  }
  std::string text;
  const auto add = [&](bool used, const char* what, const std::optional<std::string>& file) {
    if (used && file) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", what, *file);
  };
  add(stages.train, "trained on", source.train_file);
  add(stages.eval, "evaluated on", source.validation_file);
  add(true, "predicted", source.test_file);
  return text;
}

}  // namespace tandem::tasks
