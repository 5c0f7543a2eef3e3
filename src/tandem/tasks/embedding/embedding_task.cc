#include "tandem/tasks/embedding/embedding_task.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/profile.h"
#include "tandem/kernels/cpu_features.h"
#include "tandem/kernels/kernel_set.h"
#include "tandem/models/heads/embedding_head.h"
#include "tandem/models/heads/sentence_writer.h"
#include "tandem/tasks/evaluation.h"

namespace tandem::tasks::embedding {
namespace {

models::MakeHead head_of(const models::SentenceFiles& files) {
  return [&files](const models::ModelConfig& config, nn::ParameterLayout& layout) {
    return models::make_embedding_head(files.poolings, files.modules, config, layout);
  };
}

// Texts of one row have different dropout masks, also where they are equal.
std::uint64_t dropout_key(std::uint64_t sample, std::size_t column) {
  return sample + (static_cast<std::uint64_t>(column) << 40);
}

}  // namespace

EmbeddingTask::EmbeddingTask(models::ModelConfig config, const text::Tokenizer& tokenizer,
                             const EncoderTaskOptions& options, EmbeddingOptions embedding)
    : EncoderTask(std::move(config), head_of(embedding.files), tokenizer, options),
      embedding_(std::move(embedding)),
      pieces_(model()) {}

// --- data ---

void EmbeddingTask::set_train(TokenizedRows rows, Sampler sampler) {
  train_ = std::move(rows);
  sampler_ = std::move(sampler);
}

void EmbeddingTask::set_evaluation(Split split, TokenizedRows rows,
                                   std::vector<NamedSearch> searches) {
  if (split == Split::kEval) searches_ = std::move(searches);
  TokenizedRows& own = split == Split::kEval ? eval_ : predict_;
  own = std::move(rows);
  set_evaluation_sequences(split, own.texts);
}

namespace {

std::string fingerprint(const TokenizedRows& rows) {
  if (rows.texts.size() == 0) return "";
  return Fingerprint(rows.texts, Padding::kNone)
      .add(std::vector{rows.columns})
      .add(rows.labels)
      .text();
}

}  // namespace

std::string EmbeddingTask::train_fingerprint() const { return fingerprint(train_); }

std::string EmbeddingTask::evaluation_fingerprint(Split split) const {
  return fingerprint(evaluated(split));
}

std::size_t EmbeddingTask::train_batch_rows(std::span<const std::uint32_t> features) const {
  std::size_t tokens = 0;
  for (const std::uint32_t row : features) {
    for (std::size_t column = 0; column < train_.columns; ++column)
      tokens += train_.texts.num_real_tokens(column * train_.rows + row);
  }
  return tokens;
}

std::vector<std::uint32_t> EmbeddingTask::train_lengths() const {
  std::vector<std::uint32_t> lengths(train_.rows);
  for (std::uint32_t row = 0; row < lengths.size(); ++row)
    lengths[row] = static_cast<std::uint32_t>(train_batch_rows(std::span(&row, 1)));
  return lengths;
}

void EmbeddingTask::save_pretrained(const std::filesystem::path& directory,
                                    std::span<const float> weights) const {
  models::save_bare_encoder(directory, model().config(), model().architecture(), layout(), weights,
                            embedding_.pooler, options().weight_format);
  tokenizer().save(directory);
  models::write_sentence_files(directory, files_with(weights), model().config().hidden_size);
}

// The files of the model with the Dense modules of an arena.
models::SentenceFiles EmbeddingTask::files_with(std::span<const float> weights) const {
  models::SentenceFiles files = embedding_.files;
  for (std::size_t i = 0; i < files.modules.size(); ++i) {
    auto* const dense = std::get_if<models::DenseModule>(&files.modules[i]);
    if (dense == nullptr) continue;
    const auto copy = [&](std::string_view name, std::vector<float>& to) {
      if (to.empty()) return;
      const nn::ParameterSpec* parameter = layout().find(models::module_parameter(i, name));
      const auto from = weights.subspan(parameter->offset, parameter->size);
      to.assign(from.begin(), from.end());
    };
    copy("linear.weight", dense->weight);
    copy("linear.bias", dense->bias);
  }
  return files;
}

// --- memory ---

void EmbeddingTask::set_precision(nn::Precision precision) {
  if (precision != options().precision) pieces_.clear();
  EncoderTask::set_precision(precision);
}

std::size_t EmbeddingTask::plan_training(std::size_t batch_size) {
  std::vector<std::uint32_t> lengths = train_lengths();
  std::sort(lengths.begin(), lengths.end(), std::greater<>());
  lengths.resize(std::min(batch_size, lengths.size()));
  return plan_training(batch_size, std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}));
}

std::size_t EmbeddingTask::plan_training(std::size_t batch_size, std::size_t max_rows) {
  return plan_pieces(batch_size, max_rows,
                     options().gradient_checkpointing ? models::PassKind::kCheckpointed
                                                      : models::PassKind::kTraining);
}

std::size_t EmbeddingTask::plan_calibration(std::size_t batch_size) {
  return plan_pieces(batch_size, PieceEncoder::kPieceTokens, models::PassKind::kInference);
}

std::size_t EmbeddingTask::plan_pieces(std::size_t batch_size, std::size_t max_rows,
                                       models::PassKind kind) {
  std::size_t longest = 0;
  for (std::size_t i = 0; i < train_.texts.size(); ++i)
    longest = std::max(longest, train_.texts.num_real_tokens(i));
  const std::size_t texts = batch_size * train_.columns;
  const bool keep = models::is_training(kind) &&
                    (embedding_.mini_batch_size == 0 || batch_size <= embedding_.mini_batch_size);
  batch_.values.resize(texts * width());
  batch_.gradient.resize(texts * width());
  batch_.indices.reserve(texts);
  batch_.samples.reserve(texts);
  const std::size_t of_pieces = pieces_.plan({.kind = kind,
                                              .precision = options().precision,
                                              .tokens = max_rows,
                                              .texts = texts,
                                              .longest = longest,
                                              .keep = keep});
  return of_pieces + (batch_.values.size() + batch_.gradient.size()) * sizeof(float);
}

// --- training ---

BatchSize EmbeddingTask::load_train_batch(std::span<const std::uint32_t> features,
                                          std::uint64_t first_sample) {
  batch_.rows = features.size();
  batch_.indices.clear();
  batch_.samples.clear();
  batch_.labels.clear();
  for (std::size_t column = 0; column < train_.columns; ++column) {
    for (std::size_t i = 0; i < features.size(); ++i) {
      batch_.indices.push_back(static_cast<std::uint32_t>(column * train_.rows + features[i]));
      batch_.samples.push_back(dropout_key(first_sample + i, column));
    }
  }
  for (const std::uint32_t row : features) {
    const auto labels =
        std::span(train_.labels).subspan(row * train_.labels_per_row, train_.labels_per_row);
    batch_.labels.insert(batch_.labels.end(), labels.begin(), labels.end());
  }
  batch_.values.resize(batch_.indices.size() * width());
  batch_.gradient.resize(batch_.values.size());
  return pieces_.load(train_.texts, batch_.indices, batch_.samples);
}

EmbeddedRows EmbeddingTask::batch_group() const {
  return {.rows = batch_.rows,
          .columns = train_.columns,
          .width = width(),
          .values = batch_.values,
          .labels = batch_.labels};
}

double EmbeddingTask::forward(const kernels::Context& context, const nn::Weights& weights,
                              const nn::DropoutStream& dropout) {
  if (selected_) return gathered_.loss(selected_->micro);
  pieces_.embed(context, weights, dropout, batch_.values);
  const StageTimer timer(context.profile, "loss", "contrast");
  return group_loss_.compute(*embedding_.loss, batch_group(), batch_.gradient, context);
}

void EmbeddingTask::backward(const kernels::Context& context, const nn::Weights& weights,
                             const nn::DropoutStream& dropout, double loss_scale,
                             std::span<float> grads, bool accumulate,
                             FunctionRef<void(std::size_t end)> gradient_ready) {
  // The trainer takes the mean over shards; the loss over all of them is not such a mean.
  if (selected_) {
    const std::span<const float> own = gathered_.gradient(*selected_);
    std::copy(own.begin(), own.end(), batch_.gradient.begin());
    loss_scale *= static_cast<double>(gathered_.shards());
  }
  const auto scale = static_cast<float>(loss_scale);
  for (float& value : batch_.gradient) value *= scale;
  selected_.reset();
  pieces_.backward(context, weights, dropout, batch_.gradient, grads, accumulate, gradient_ready);
}

std::size_t EmbeddingTask::bytes(const StepBatches& batches, std::size_t batch_size) const {
  const EmbeddedRows shape{
      .rows = batch_size, .columns = train_.columns, .width = width(), .values = {}, .labels = {}};
  return GatheredLoss::bytes(batches, {train_.columns, width(), train_.labels_per_row}, batch_size,
                             embedding_.loss->statistics_per_row(shape));
}

void EmbeddingTask::begin(const StepBatches& batches) {
  pieces_.forget();
  selected_.reset();
  gathered_.begin(batches, {train_.columns, width(), train_.labels_per_row});
}

void EmbeddingTask::embed(const kernels::Context& context, const nn::Weights& weights,
                          const nn::DropoutStream& dropout, BatchPosition position) {
  pieces_.embed(context, weights, dropout, gathered_.embeddings(position));
  std::copy(batch_.labels.begin(), batch_.labels.end(), gathered_.labels(position).begin());
}

void EmbeddingTask::compare(const kernels::Context& context, Gather gather) {
  const StageTimer timer(context.profile, "loss", "contrast over the step");
  gathered_.compute(*embedding_.loss, context, gather);
}

// --- evaluation ---

namespace {

// A loss and an evaluator need no fast kernels, and their results are the same on every machine.
class ReferenceContext {
 public:
  explicit ReferenceContext(ThreadPool& threads)
      : threads_(threads), scratch_(threads.num_threads()) {}
  kernels::Context get() { return {threads_, kernels_, scratch_}; }

 private:
  ThreadPool& threads_;
  kernels::KernelSet kernels_ = kernels::select_kernels(kernels::CpuFeatures{});
  kernels::Scratch scratch_;
};

}  // namespace

// As the Trainer of sentence-transformers: the mean over batches, each with the weight of its rows.
double EmbeddingTask::evaluation_loss(const TokenizedRows& rows,
                                      std::span<const std::span<const float>> embeddings,
                                      const kernels::Context& context) const {
  const std::size_t all = rows.rows, labels = rows.labels_per_row;
  std::vector<float> values, gradient;
  GroupLoss group_loss;
  double sum = 0;
  for (std::size_t begin = 0; begin < all; begin += options().eval_batch_size) {
    const std::size_t count = std::min(options().eval_batch_size, all - begin);
    values.clear();
    for (std::size_t column = 0; column < rows.columns; ++column) {
      for (std::size_t row = begin; row < begin + count; ++row) {
        const std::span<const float> own = embeddings[column * all + row];
        values.insert(values.end(), own.begin(), own.end());
      }
    }
    gradient.resize(values.size());
    const EmbeddedRows group{
        .rows = count,
        .columns = rows.columns,
        .width = width(),
        .values = values,
        .labels = std::span(rows.labels).subspan(begin * labels, count * labels)};
    sum +=
        static_cast<double>(count) * group_loss.compute(*embedding_.loss, group, gradient, context);
  }
  return sum / static_cast<double>(all);
}

Evaluation EmbeddingTask::evaluate(Split split, std::span<const float> output,
                                   const std::filesystem::path&, const std::string&,
                                   ThreadPool& threads) {
  const std::vector<std::span<const float>> embeddings = outputs_in_order(split, output);
  Evaluation evaluation{.metrics = nlohmann::ordered_json::object(), .warnings = {}};
  const TokenizedRows& set = evaluated(split);
  ReferenceContext context(threads);
  if (set.rows > 0) evaluation.metrics["loss"] = evaluation_loss(set, embeddings, context.get());
  if (split == Split::kEval) {
    embedding::evaluate(embedding_.evaluators,
                        {.rows = set.rows,
                         .columns = set.columns,
                         .labels = set.labels,
                         .embeddings = embeddings,
                         .searches = searches_},
                        context.get(), evaluation);
  }
  return evaluation;
}

}  // namespace tandem::tasks::embedding
