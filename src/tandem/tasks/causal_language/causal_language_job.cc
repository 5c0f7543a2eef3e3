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
  corpus::CorpusOptions options = corpus::corpus_options(
      arguments_,
      corpus::choose_block_size(
          arguments_.block_size ? std::optional<std::int64_t>(*arguments_.block_size)
                                : std::nullopt,
          tokenizer.model_max_length(), task_->model().config().max_tokens(), parts.log));
  options.blocks = true;
  options.line_breaks =
      arguments_.keep_linebreaks ? corpus::LineBreaks::kKept : corpus::LineBreaks::kLeftOut;
  corpus::Corpus read = corpus::read_corpus(parts, options, tokenizer);
  const auto samples = [](corpus::TextPieces& pieces) {
    return CausalSamples{.sequences = std::make_shared<const Blocks>(std::move(pieces))};
  };
  if (parts.stages.train) task_->set_train(samples(read.train));
  if (parts.stages.eval) task_->set_evaluation(samples(read.validation));
}

void CausalLanguageJob::complete_results(tasks::Split, nlohmann::ordered_json& metrics) const {
  corpus::complete_results(metrics);
}

tasks::CardTask CausalLanguageJob::card_task() const {
  return {"Causal Language Modeling", "text-generation", {"perplexity", "accuracy"}};
}

tasks::LeadingMetrics CausalLanguageJob::leading_metrics() const {
  return corpus::leading_metrics();
}

}  // namespace tandem::causal_language
