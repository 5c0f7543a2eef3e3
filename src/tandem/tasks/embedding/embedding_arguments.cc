#include "tandem/tasks/embedding/embedding_arguments.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "tandem/core/error.h"
#include "tandem/core/json.h"

namespace tandem::tasks::embedding {
namespace {

template <class Number>
std::vector<Number> numbers(std::string_view flag, const std::optional<std::string>& text) {
  std::vector<Number> found;
  if (!text) return found;
  for (const std::string& part : comma_list(*text)) {
    Number number{};
    const auto [rest, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (error != std::errc() || rest != part.data() + part.size() || !(number > 0)) {
      raise<ConfigError>("--{}: found '{}', expected positive numbers separated by commas", flag,
                         part);
    }
    found.push_back(number);
  }
  return found;
}

std::vector<std::string> set_names(const EmbeddingArguments& arguments) {
  std::vector<std::string> names;
  for (const NamedSource& source : train_sources(arguments)) names.push_back(source.name);
  return names;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// {column: prompt}, or one prompt.
std::vector<std::string> prompts_of_columns(const nlohmann::json& json,
                                            std::span<const std::string_view> columns) {
  if (json.is_string()) return std::vector<std::string>(columns.size(), json.get<std::string>());
  if (!json.is_object())
    raise<ConfigError>("--prompts: found {}, expected a text or a JSON object", json.dump());
  std::vector<std::string> prompts(columns.size());
  for (const auto& [name, prompt] : json.items()) {
    const auto column = std::find(columns.begin(), columns.end(), name);
    if (column == columns.end() || !prompt.is_string()) {
      raise<ConfigError>("--prompts: found {}: {}, expected a text for one of the columns {}", name,
                         prompt.dump(), fmt::join(columns, ", "));
    }
    prompts[static_cast<std::size_t>(column - columns.begin())] = prompt.get<std::string>();
  }
  return prompts;
}

models::Pooling pooling_named(const std::string& name) {
  std::vector<std::string_view> all;
  for (const models::PoolingName& known : models::pooling_names()) {
    if (name == known.name) return known.pooling;
    all.emplace_back(known.name);
  }
  raise<ConfigError>("--pooling_mode: found '{}', expected one of {}", name, fmt::join(all, ", "));
}

std::string similarity_named(const std::string& name) {
  for (const char* known : {"cosine", "dot", "euclidean", "manhattan"})
    if (name == known) return name;
  raise<ConfigError>(
      "--similarity_fn_name: found '{}', expected cosine, dot, euclidean or manhattan", name);
}

}  // namespace

std::vector<std::string> prompts_of(const EmbeddingArguments& arguments, const std::string& set,
                                    std::span<const std::string_view> columns) {
  if (!arguments.prompts) return std::vector<std::string>(columns.size());
  const std::string& given = *arguments.prompts;
  if (!given.starts_with("{")) return std::vector<std::string>(columns.size(), given);
  const auto json = nlohmann::json::parse(given, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object())
    raise<ConfigError>("--prompts: found '{}', expected a text or a JSON object", given);
  std::vector<std::string> names = set_names(arguments);
  if (names.empty()) return prompts_of_columns(json, columns);
  names.insert(names.end(), {"validation", "test"});
  for (const auto& [name, prompts] : json.items()) {
    if (contains(names, name)) continue;
    raise<ConfigError>("--prompts: found {}: {}, expected one of the data sets {}", name,
                       prompts.dump(), fmt::join(names, ", "));
  }
  const auto own = json.find(set);
  return own == json.end() ? std::vector<std::string>(columns.size())
                           : prompts_of_columns(*own, columns);
}

void check_losses(const EmbeddingArguments& arguments) {
  make_loss(loss_options(arguments, LabelKind::kNone));
  for (const std::string& name : set_names(arguments))
    make_loss(loss_options(arguments, LabelKind::kNone, name));
}

LossOptions loss_options(const EmbeddingArguments& arguments, LabelKind labels,
                         const std::string& set) {
  LossOptions options;
  options.name = value_of_set(arguments, "loss", arguments.loss, set)
                     .value_or(std::string(default_loss(labels)));
  options.scale = arguments.scale;
  if (arguments.temperature) {
    if (arguments.scale)
      raise<ConfigError>("--temperature and --scale: found both, expected one of them");
    options.scale = 1 / *arguments.temperature;
  }
  options.similarity_fct = arguments.similarity_fct.value_or("");
  if (arguments.directions) options.directions = comma_list(*arguments.directions);
  options.partition_mode = arguments.partition_mode;
  options.hardness_mode = arguments.hardness_mode.value_or("");
  options.hardness_strength = arguments.hardness_strength;
  options.margin = arguments.margin;
  options.distance_metric = arguments.distance_metric.value_or("");
  options.margin_strategy = arguments.margin_strategy;
  options.contrast_anchors = arguments.contrast_anchors;
  options.contrast_positives = arguments.contrast_positives;
  options.num_labels = static_cast<std::size_t>(arguments.num_labels.value_or(0));
  options.concatenation_sent_rep = arguments.concatenation_sent_rep;
  options.concatenation_sent_difference = arguments.concatenation_sent_difference;
  options.concatenation_sent_multiplication = arguments.concatenation_sent_multiplication;
  options.matryoshka_dims = numbers<std::size_t>("matryoshka_dims", arguments.matryoshka_dims);
  options.matryoshka_weights = numbers<double>("matryoshka_weights", arguments.matryoshka_weights);
  return options;
}

Stages stages_with_rows(Stages stages, const EmbeddingArguments& arguments) {
  const bool named = arguments.validation_file || arguments.dataset_name;
  if ((arguments.eval_corpus || arguments.nano_beir) && !named) stages.eval = false;
  return stages;
}

std::vector<ranking::NanoBeirFiles> nano_beir_files(const EmbeddingArguments& arguments) {
  const auto& names = arguments.nano_beir_names;
  return ranking::find_nano_beir(*arguments.nano_beir,
                                 names ? comma_list(*names) : std::vector<std::string>());
}

models::SentenceFiles sentence_files(const EmbeddingArguments& arguments,
                                     const std::filesystem::path& directory,
                                     const models::ModelConfig& config) {
  models::SentenceFiles files = models::read_sentence_files(directory, config);
  const auto& pooling = arguments.pooling_mode;
  const auto& similarity = arguments.similarity_fn_name;
  if (files.from_modules_json) {
    if (pooling || similarity || arguments.normalize) {
      raise<ConfigError>("--{}: {} has modules.json, whose modules are used; leave the flag out",
                         pooling      ? "pooling_mode"
                         : similarity ? "similarity_fn_name"
                                      : "normalize",
                         directory.string());
    }
    return files;
  }
  if (pooling) files.poolings = {pooling_named(*pooling)};
  if (similarity) files.similarity = similarity_named(*similarity);
  if (arguments.normalize) files.modules.emplace_back(models::NormalizeModule{});
  return files;
}

std::size_t mini_batch_size(const EmbeddingArguments& arguments, std::string_view loss) {
  constexpr std::int64_t kOfCachedLosses = 32;
  return static_cast<std::size_t>(arguments.mini_batch_size.value_or(
      loss.starts_with("Cached") ? kOfCachedLosses : std::int64_t{0}));
}

}  // namespace tandem::tasks::embedding
