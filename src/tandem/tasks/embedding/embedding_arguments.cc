#include "tandem/tasks/embedding/embedding_arguments.h"

#include <charconv>

#include "tandem/core/error.h"

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

}  // namespace

LossOptions loss_options(const EmbeddingArguments& arguments, LabelKind labels) {
  LossOptions options;
  options.name = arguments.loss.value_or(std::string(default_loss(labels)));
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

std::size_t mini_batch_size(const EmbeddingArguments& arguments, std::string_view loss) {
  constexpr std::int64_t kOfCachedLosses = 32;
  return static_cast<std::size_t>(arguments.mini_batch_size.value_or(
      loss.starts_with("Cached") ? kOfCachedLosses : std::int64_t{0}));
}

}  // namespace tandem::tasks::embedding
