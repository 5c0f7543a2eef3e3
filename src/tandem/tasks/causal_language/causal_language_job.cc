#include "tandem/tasks/causal_language/causal_language_job.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "tandem/core/json.h"
#include "tandem/tasks/corpus/corpus.h"

namespace tandem::causal_language {

hub::DatasetFiles CausalLanguageJob::find_data(const tasks::Stages& stages,
                                               const hub::ModelArguments& model,
                                               const Environment& environment,
                                               hub::DownloadObserver& downloads) const {
  return corpus::find_corpus_files(arguments_, stages, model, environment, downloads);
}

tasks::Task& CausalLanguageJob::make_task(models::ModelConfig config,
                                          const text::Tokenizer& tokenizer,
                                          const tasks::TaskSettings& settings) {
  config.vocab_size = std::max(config.vocab_size, tokenizer.vocab_size());
  return made(std::move(config), tokenizer, tasks::task_options(settings, std::nullopt));
}

void CausalLanguageJob::load_data(const tasks::DataParts& parts) {
  const text::Tokenizer& tokenizer = task_->tokenizer();
  corpus::Corpus read = corpus::read_corpus(
      parts,
      {.max_seq_length = corpus::choose_block_size(
           arguments_.block_size ? std::optional<std::int64_t>(*arguments_.block_size)
                                 : std::nullopt,
           tokenizer.model_max_length(), task_->model().config().max_tokens(), parts.log),
       .blocks = true,
       .line_breaks =
           arguments_.keep_linebreaks ? corpus::LineBreaks::kKept : corpus::LineBreaks::kLeftOut,
       .validation_split_percentage =
           static_cast<std::uint32_t>(arguments_.validation_split_percentage),
       .max_train_samples = arguments_.max_train_samples,
       .max_eval_samples = arguments_.max_eval_samples,
       .preprocessing_num_workers = arguments_.preprocessing_num_workers,
       .overwrite_cache = arguments_.overwrite_cache},
      tokenizer);
  const auto samples = [](corpus::TextPieces& pieces) {
    return CausalSamples{.sequences = std::make_shared<const Blocks>(std::move(pieces))};
  };
  if (parts.stages.train) task_->set_train(samples(read.train));
  if (parts.stages.eval) task_->set_evaluation(samples(read.validation));
}

void CausalLanguageJob::complete_results(tasks::Split, nlohmann::ordered_json& metrics) const {
  const auto found = metrics.find("eval_perplexity");
  if (found != metrics.end()) metrics["perplexity"] = *found;
}

tasks::CardTask CausalLanguageJob::card_task() const {
  return {"Causal Language Modeling", "text-generation", {"perplexity", "accuracy"}};
}

tasks::LeadingMetrics CausalLanguageJob::leading_metrics() const {
  return {.metrics = {{"perplexity", "Perplexity", tasks::MetricUnit::kNumber,
                       /*less_is_better=*/true},
                      {"accuracy", "Accuracy", tasks::MetricUnit::kFraction},
                      tasks::evaluation_loss_metric()}};
}

}  // namespace tandem::causal_language
