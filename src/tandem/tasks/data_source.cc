#include "tandem/tasks/data_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/formats/compressed_file.h"

namespace tandem::tasks {
namespace {

namespace fs = std::filesystem;
using flags::field;
using flags::flag;

void check_ending(std::string_view flag_name, const std::optional<std::string>& file,
                  std::span<const std::string_view> extensions) {
  if (!file || formats::has_format(*file, extensions)) return;
  raise<ConfigError>("--{} {}: expected a file that ends in {}", flag_name, *file,
                     formats::formats_text(extensions));
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
    auto& role = part == "train"        ? files.train
                 : part == "validation" ? files.validation
                                        : files.test;
    role.assign(1, *file);
  };
  add("train", source.train_file);
  add("validation", source.validation_file);
  add("test", source.test_file);
  return files;
}

// Every named data set, whose training part is used.
std::vector<hub::NamedFiles> find_train_sets(const DataSource& source,
                                             const hub::ModelArguments& model,
                                             const Environment& environment,
                                             hub::DownloadObserver& downloads,
                                             std::span<const std::string_view> extensions) {
  std::vector<hub::NamedFiles> sets;
  for (const auto& [name, location] : train_sources(source)) {
    if (formats::has_format(location, extensions)) {
      sets.push_back({name, {location}});
      continue;
    }
    const std::size_t colon = location.rfind(':');
    const auto configuration = colon == location.npos ? std::optional<std::string>()
                                                      : std::optional(location.substr(colon + 1));
    const hub::DatasetFiles found =
        hub::resolve_dataset({location.substr(0, colon), configuration, model.cache_dir, extensions,
                              model.token, split_names(source)},
                             environment, downloads);
    if (found.train.empty())
      raise<ConfigError>("--train_files: {}: the data set {} has no training part", name, location);
    sets.push_back({name, found.train});
  }
  return sets;
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

flags::Flag train_files_flag() {
  return flag("train_files", field<&DataSource::train_files>(),
              "several training sets instead of --train_file, as JSON with a name for each: "
              "{\"nli\": \"nli.jsonl\", \"news\": \"org/data-set:configuration\"}");
}

std::vector<NamedSource> train_sources(const DataSource& source) {
  std::vector<NamedSource> sources;
  if (!source.train_files) return sources;
  const auto json = nlohmann::ordered_json::parse(*source.train_files, nullptr,
                                                  /*allow_exceptions=*/false);
  const auto is_text = [](const auto& value) { return value.is_string(); };
  if (!json.is_object() || json.size() < 2 || !std::all_of(json.begin(), json.end(), is_text)) {
    raise<ConfigError>(
        "--train_files: found '{}', expected a JSON object with the names and files of at least "
        "two data sets; use --train_file for one",
        *source.train_files);
  }
  for (const auto& [name, location] : json.items()) sources.push_back({name, location});
  return sources;
}

std::optional<std::string> value_of_set(const DataSource& source, std::string_view flag_name,
                                        const std::optional<std::string>& value,
                                        const std::string& set) {
  if (!value || !value->starts_with("{")) return value;
  const auto json = nlohmann::json::parse(*value, nullptr, /*allow_exceptions=*/false);
  const auto is_text = [](const auto& one) { return one.is_string(); };
  if (!json.is_object() || !std::all_of(json.begin(), json.end(), is_text)) {
    raise<ConfigError>("--{}: found '{}', expected a JSON object with a text for each data set",
                       flag_name, *value);
  }
  std::vector<std::string> names;
  for (const NamedSource& one : train_sources(source)) names.push_back(one.name);
  for (const auto& [name, own] : json.items()) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    raise<ConfigError>("--{}: found the data set '{}', expected one of --train_files: {}",
                       flag_name, name, fmt::join(names, ", "));
  }
  if (!json.contains(set)) return std::nullopt;
  return json.at(set).get<std::string>();
}

void check_data_source(const DataSource& source, const Stages& stages,
                       std::string_view evaluation_flag,
                       std::span<const std::string_view> extensions) {
  check_ending("train_file", source.train_file, extensions);
  check_ending("validation_file", source.validation_file, extensions);
  check_ending("test_file", source.test_file, extensions);
  if (!train_sources(source).empty() && source.train_file)
    raise<ConfigError>("--train_files and --train_file: found both, expected one of them");
  if (source.dataset_name) return;
  if (!source.train_file && !source.train_files && !source.validation_file && !source.test_file) {
    raise<ConfigError>("no data: give --dataset_name, or --train_file and --validation_file");
  }
  if (stages.train && !source.train_file && !source.train_files && !source.train_split_name)
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
                                 environment, downloads);
  } else {
    files = single_files(source);
  }
  if (source.train_files) {
    files.train.clear();
    files.train_sets = find_train_sets(source, model, environment, downloads, extensions);
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
  require(stages.train && files.train_sets.empty(), files.train, "--do_train", "--train_file");
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
  for (const auto& [name, location] : train_sources(source))
    add(stages.train, "trained on", std::optional(location));
  add(stages.train, "trained on", source.train_file);
  add(stages.eval, "evaluated on", source.validation_file);
  add(true, "predicted", source.test_file);
  return text;
}

}  // namespace tandem::tasks
