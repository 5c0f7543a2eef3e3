#include "tandem/tasks/embedding/embedding_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tandem/core/error.h"
#include "tandem/tasks/embedding/minimal_loss.h"

namespace tandem::tasks::embedding {

Task& EmbeddingJob::make_task(models::ModelConfig config, const text::Tokenizer& tokenizer,
                              const TaskSettings& settings) {
  models::SentenceFiles files =
      models::read_sentence_files(settings.model_directory, config.hidden_size);
  max_tokens_ = std::min(config.max_tokens(), files.max_seq_length.value_or(config.max_tokens()));
  if (arguments_.max_seq_length)
    max_tokens_ = std::min(max_tokens_, static_cast<std::size_t>(*arguments_.max_seq_length));
  EmbeddingOptions options{
      .files = std::move(files),
      .loss = make_minimal_loss(arguments_.scale),
      .gather = arguments_.gather_across_devices,
      .mini_batch_size = static_cast<std::size_t>(arguments_.mini_batch_size.value_or(0))};
  return made(std::move(config), tokenizer, task_options(settings, std::nullopt),
              std::move(options));
}

TokenizedRows EmbeddingJob::read(std::span<const std::filesystem::path> files,
                                 const std::optional<std::int64_t>& most, std::string_view part,
                                 const DataParts& parts) const {
  const data::Rows rows = data::read_rows(files);
  std::size_t count = rows.size();
  if (most) count = std::min(count, static_cast<std::size_t>(*most));
  std::vector<std::string_view> texts;
  TokenizedRows read;
  for (const data::Column& column : rows.columns()) {
    if (column.kind != data::Column::Kind::kText) continue;
    ++read.columns;
    for (std::size_t row = 0; row < count; ++row) texts.push_back(column.texts[row]);
  }
  read.texts = text_classification::build_text_features(
      task_->tokenizer(), texts, {}, max_tokens_, parts.threads,
      [&](std::size_t i) { return rows.place(i % count); });
  parts.log.fact(part, fmt::format("{}: {} rows of {} texts", rows.file(), count, read.columns));
  return read;
}

void EmbeddingJob::load_data(const DataParts& parts) {
  if (parts.stages.train)
    task_->set_train(read(parts.files.train, arguments_.max_train_samples, "train", parts));
  if (parts.stages.eval) {
    task_->set_evaluation(Split::kEval, read(parts.files.validation, arguments_.max_eval_samples,
                                             "validation", parts));
  }
  if (parts.stages.predict) {
    task_->set_evaluation(Split::kPredict,
                          read(parts.files.test, arguments_.max_predict_samples, "test", parts));
  }
}

CardTask EmbeddingJob::card_task() const {
  return {"Sentence Similarity", "sentence-similarity", {}};
}

LeadingMetrics EmbeddingJob::leading_metrics() const {
  return {.metrics = {evaluation_loss_metric()}, .training_loss = "loss"};
}

std::optional<TryCommand> EmbeddingJob::try_command() const {
  return TryCommand{.subcommand = "embed", .words = {}, .input = "Ada lives in London."};
}

}  // namespace tandem::tasks::embedding
