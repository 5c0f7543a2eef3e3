#include "tandem/tasks/supervised/supervised_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "tandem/core/error.h"

namespace tandem::supervised {
namespace {

std::string describe_samples(const Samples& samples, const SampleOptions& options) {
  const SampleCounts& counts = samples.counts;
  std::string text = fmt::format("{} rows, {} samples of up to {} tokens", counts.rows,
                                 samples.samples.size(), options.max_length);
  if (counts.cut_rows > 0)
    text += fmt::format(", {} rows cut by {} tokens", counts.cut_rows, counts.cut_tokens);
  if (counts.unlabelled_rows > 0)
    text += fmt::format(", {} rows left out, whose completion is cut off", counts.unlabelled_rows);
  return text;
}

}  // namespace

tasks::Task& SupervisedJob::make_task(models::ModelConfig config, const text::Tokenizer& tokenizer,
                                      const tasks::TaskSettings& settings) {
  config.vocab_size = std::max(config.vocab_size, tokenizer.vocab_size());
  return made(std::move(config), tokenizer, tasks::task_options(settings, std::nullopt),
              "mean_token_accuracy");
}

std::size_t SupervisedJob::max_length(tasks::StartLog& log) const {
  constexpr std::size_t kDefault = 1024;
  const std::size_t positions = task_->model().config().max_tokens();
  if (!arguments_.max_length) {
    if (positions < kDefault)
      log.fact("max_length", fmt::format("{} tokens, the positions of the model", positions));
    return std::min(kDefault, positions);
  }
  const auto wanted = static_cast<std::size_t>(*arguments_.max_length);
  if (wanted > positions) {
    raise<ConfigError>(
        "--max_length: found {}, expected at most {}, max_position_embeddings of the model", wanted,
        positions);
  }
  return wanted;
}

SampleOptions SupervisedJob::options_of(std::size_t max_length, bool packing) const {
  const Packing packed = arguments_.packing_strategy == PackingStrategy::kBestFit
                             ? Packing::kBestFit
                             : Packing::kSplitFit;
  return {.text_field = arguments_.dataset_text_field,
          .eos_token = arguments_.eos_token,
          .completion_only = arguments_.completion_only_loss,
          .max_length = max_length,
          .keep_end = arguments_.truncation_mode == TruncationMode::kKeepEnd,
          .packing = packing ? packed : Packing::kNone};
}

causal_language::CausalSamples SupervisedJob::read(std::string_view part,
                                                   std::span<const std::filesystem::path> files,
                                                   const SampleOptions& options,
                                                   ThreadPool& threads,
                                                   tasks::StartLog& log) const {
  Samples samples = read_samples(files, options, task_->tokenizer(), threads);
  log.fact(part, fmt::format("{}: {}", files.front().string(), describe_samples(samples, options)));
  log.fact("columns", fmt::format("{}{}", fmt::join(samples.columns, ", "),
                                  samples.conversations ? ", conversations" : ""));
  if (samples.counts.changed_prompts > 0) {
    log.warning(fmt::format(
        "{} of {} rows: the last tokens of the prompt are others in front of the completion; the "
        "labels begin at the first of them. End prompts at a blank or a line break",
        samples.counts.changed_prompts, samples.counts.rows));
  }
  if (samples.samples.size() == 0 && samples.counts.rows > 0) {
    raise<DataError>(
        "the {} part: found no sample in {} rows; pass a larger --max_length, or rows "
        "with completions",
        part, samples.counts.rows);
  }
  return std::move(samples.samples);
}

void SupervisedJob::load_data(const tasks::DataParts& parts) {
  const std::size_t length = max_length(parts.log);
  std::optional<ThreadPool> workers;
  if (arguments_.dataset_num_proc) workers.emplace(*arguments_.dataset_num_proc);
  ThreadPool& threads = workers ? *workers : parts.threads;
  if (parts.stages.train) {
    SampleOptions options = options_of(length, arguments_.packing);
    options.max_rows = arguments_.max_train_samples;
    task_->set_train(read("train", parts.files.train, options, threads, parts.log));
  }
  if (parts.stages.eval) {
    SampleOptions options =
        options_of(length, arguments_.eval_packing.value_or(arguments_.packing));
    options.max_rows = arguments_.max_eval_samples;
    auto samples = read("validation", parts.files.validation, options, threads, parts.log);
    samples.counts_first = false;  // TRL's evaluation takes the mean over the predicted tokens
    task_->set_evaluation(std::move(samples));
  }
}

tasks::CardTask SupervisedJob::card_task() const {
  return {"Text Generation", "text-generation", {"perplexity", "accuracy"}};
}

tasks::LeadingMetrics SupervisedJob::leading_metrics() const {
  return {.metrics = {tasks::evaluation_loss_metric(),
                      {"perplexity", "Perplexity", tasks::MetricUnit::kNumber,
                       /*less_is_better=*/true},
                      {"mean_token_accuracy", "Token accuracy", tasks::MetricUnit::kFraction}}};
}

}  // namespace tandem::supervised
