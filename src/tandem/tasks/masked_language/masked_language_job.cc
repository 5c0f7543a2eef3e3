#include "tandem/tasks/masked_language/masked_language_job.h"

#include <fmt/format.h>

#include <algorithm>

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/tasks/corpus/corpus.h"
#include "tandem/tasks/masked_language/torch_masks.h"

namespace tandem::masked_language {

void MaskedLanguageJob::describe(tasks::StartLog& log) const {
  log.fact("masks", fmt::format("{:g} % of the {}{}", 100 * arguments_.mlm_probability,
                                arguments_.whole_word_mask ? "words" : "tokens",
                                arguments_.torch_masks
                                    ? ", drawn as the official script draws them"
                                    : ", drawn anew in each epoch, independent of the ranks"));
  if (!arguments_.pad_to_max_length)
    log.fact("padding", "none is computed; it would change nothing but rounding");
}

hub::DatasetFiles MaskedLanguageJob::find_data(const tasks::Stages& stages,
                                               const hub::ModelArguments& model,
                                               const Environment& environment,
                                               hub::DownloadObserver& downloads) const {
  return corpus::find_corpus_files(arguments_, stages, model, environment, downloads);
}

tasks::Task& MaskedLanguageJob::make_task(models::ModelConfig config,
                                          const text::Tokenizer& tokenizer,
                                          const tasks::TaskSettings& settings) {
  const std::optional<std::int32_t> mask = tokenizer.mask_token_id();
  if (!mask) {
    raise<ConfigError>(
        "the tokenizer has no mask token, which masked language modelling needs; pass another "
        "--tokenizer_name");
  }
  const MaskedLanguageOptions options{
      .masking = {.probability = arguments_.mlm_probability,
                  .whole_words = arguments_.whole_word_mask,
                  .mask_token_id = static_cast<std::uint32_t>(*mask),
                  .vocabulary_size = static_cast<std::uint32_t>(tokenizer.vocab_size())},
      .seed = settings.seed,
      .torch_masks = arguments_.torch_masks};
  config.vocab_size = std::max(config.vocab_size, tokenizer.vocab_size());
  return made(std::move(config), tokenizer,
              tasks::task_options(settings, arguments_.pad_to_max_length), options);
}

void MaskedLanguageJob::load_data(const tasks::DataParts& parts) {
  const std::size_t of_model =
      std::min(task_->tokenizer().model_max_length(), task_->model().config().max_tokens());
  corpus::CorpusOptions options = corpus::corpus_options(
      arguments_,
      corpus::choose_max_seq_length(arguments_.max_seq_length
                                        ? std::optional<std::int64_t>(*arguments_.max_seq_length)
                                        : std::nullopt,
                                    of_model, parts.log));
  options.line_by_line = arguments_.line_by_line;
  corpus::Corpus read = corpus::read_corpus(parts, options, task_->tokenizer());
  if (parts.stages.train) task_->set_train(std::move(read.train));
  if (parts.stages.eval) task_->set_evaluation(std::move(read.validation));
}

void MaskedLanguageJob::describe_training(const tasks::TrainingShape& shape,
                                          tasks::StartLog&) const {
  if (!arguments_.torch_masks) return;
  const models::ModelConfig& config = task_->model().config();
  check_torch_masks(
      {.num_shards = shape.shards,
       .has_dropout = config.hidden_dropout_prob > 0 || config.attention_probs_dropout_prob > 0,
       .dataloader_workers = 0,
       .whole_words = arguments_.whole_word_mask,
       .resumes = false});
}

void MaskedLanguageJob::complete_results(tasks::Split, nlohmann::ordered_json& metrics) const {
  corpus::complete_results(metrics);
}

tasks::CardTask MaskedLanguageJob::card_task() const {
  return {"Masked Language Modeling", "fill-mask", {"perplexity", "accuracy"}};
}

tasks::LeadingMetrics MaskedLanguageJob::leading_metrics() const {
  return corpus::leading_metrics();
}

}  // namespace tandem::masked_language
