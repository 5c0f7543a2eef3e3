#include "tandem/tasks/embedding/embedding_task.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/profile.h"
#include "tandem/formats/safetensors.h"
#include "tandem/kernels/cpu_features.h"
#include "tandem/kernels/kernel_set.h"
#include "tandem/models/heads/embedding_head.h"
#include "tandem/models/heads/sentence_writer.h"
#include "tandem/models/pretrained/weight_files.h"
#include "tandem/tasks/evaluation.h"

namespace tandem::tasks::embedding {
namespace {

std::string layout_name(const LossParameter& parameter) {
  return std::string(models::kLossParameters) + parameter.name;
}

// Backward finishes the parameters of the loss first.
models::MakeHead head_of(const EmbeddingOptions& embedding) {
  return [&embedding](const models::ModelConfig& config, nn::ParameterLayout& layout) {
    for (const LossParameter& one : embedding.loss_parameters) {
      layout.add(layout_name(one), one.shape,
                 one.shape.size() == 1 ? nn::ParameterKind::kBias : nn::ParameterKind::kWeight);
    }
    return models::make_embedding_head(embedding.files, config, layout);
  };
}

// The text of a row, which is counted over all sets.
std::uint32_t text_of(const RowSet& set, std::size_t column, std::uint32_t row) {
  return static_cast<std::uint32_t>(set.first_text + column * set.rows + row - set.first_row);
}

}  // namespace

EmbeddingTask::EmbeddingTask(models::ModelConfig config, const text::Tokenizer& tokenizer,
                             const EncoderTaskOptions& options, EmbeddingOptions embedding)
    : EncoderTask(std::move(config), head_of(embedding), tokenizer, options),
      embedding_(std::move(embedding)),
      pieces_(model()) {}

// --- data ---

void EmbeddingTask::set_train(TrainingRows rows, Sampler sampler) {
  train_ = std::move(rows);
  set_sampler(std::move(sampler));
  std::size_t first_row = 0, first_text = 0;
  for (RowSet& set : train_.sets) {
    set.first_row = first_row;
    set.first_text = first_text;
    first_row += set.rows;
    first_text += set.rows * set.columns;
  }
}

void EmbeddingTask::set_train(TokenizedRows rows, Sampler sampler) {
  TrainingRows all;
  all.texts = std::move(rows.texts);
  all.sets.push_back({.rows = rows.rows,
                      .columns = rows.columns,
                      .labels = std::move(rows.labels),
                      .labels_per_row = rows.labels_per_row});
  set_train(std::move(all), std::move(sampler));
}

const RowSet& EmbeddingTask::set_of(std::uint32_t row) const {
  const auto behind =
      std::upper_bound(train_.sets.begin(), train_.sets.end(), row,
                       [](std::size_t one, const RowSet& set) { return one < set.first_row; });
  return *std::prev(behind);
}

RowShape EmbeddingTask::largest_shape() const {
  RowShape most{0, width(), 0};
  for (const RowSet& set : train_.sets) {
    most.columns = std::max(most.columns, set.columns);
    most.labels = std::max(most.labels, set.labels_per_row);
  }
  return most;
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

std::string EmbeddingTask::train_fingerprint() const {
  if (train_.texts.size() == 0) return "";
  Fingerprint all(train_.texts, Padding::kNone);
  for (const RowSet& set : train_.sets) {
    all.add(std::vector{set.columns}).add(set.labels);
    if (train_.sets.size() > 1) all.add(std::vector{set.rows});
  }
  return all.text();
}

std::string EmbeddingTask::evaluation_fingerprint(Split split) const {
  return fingerprint(evaluated(split));
}

std::size_t EmbeddingTask::train_batch_rows(std::span<const std::uint32_t> features) const {
  std::size_t tokens = 0;
  for (const std::uint32_t row : features) {
    const RowSet& set = set_of(row);
    for (std::size_t column = 0; column < set.columns; ++column)
      tokens += train_.texts.num_real_tokens(text_of(set, column, row));
  }
  return tokens;
}

std::vector<std::uint32_t> EmbeddingTask::train_lengths() const {
  std::vector<std::uint32_t> lengths(num_train_rows());
  for (std::uint32_t row = 0; row < lengths.size(); ++row)
    lengths[row] = static_cast<std::uint32_t>(train_batch_rows(std::span(&row, 1)));
  return lengths;
}

void EmbeddingTask::save_pretrained(const std::filesystem::path& directory,
                                    std::span<const float> weights) const {
  models::save_bare_encoder(directory, model().config(), model().architecture(), layout(), weights,
                            embedding_.pooler, options().weight_format);
  save_other_files(directory, weights);
}

void EmbeddingTask::save_other_files(const std::filesystem::path& directory,
                                     std::span<const float> weights) const {
  EncoderTask::save_other_files(directory, weights);
  models::write_sentence_files(directory, files_with(weights), model().config().hidden_size);
  save_loss_parameters(directory, weights);
}

void EmbeddingTask::save_loss_parameters(const std::filesystem::path& directory,
                                         std::span<const float> weights) const {
  std::vector<formats::TensorView> tensors;
  for (const LossParameter& one : embedding_.loss_parameters) {
    const nn::ParameterSpec* parameter = layout().find(layout_name(one));
    tensors.push_back({.name = one.name,
                       .dtype = formats::DType::kF32,
                       .shape = one.shape,
                       .bytes = std::as_bytes(parameter->values_in(weights))});
  }
  if (!tensors.empty()) formats::write_safetensors(directory / models::kLossFile, tensors);
}

void EmbeddingTask::read_loss_parameters(std::span<const float> weights) {
  batch_.loss_parameters.clear();
  for (const LossParameter& one : embedding_.loss_parameters) {
    const auto values = layout().find(layout_name(one))->values_in(weights);
    batch_.loss_parameters.insert(batch_.loss_parameters.end(), values.begin(), values.end());
  }
}

void EmbeddingTask::write_loss_gradient(std::span<const float> gradient, std::span<float> grads,
                                        bool accumulate) const {
  for (const LossParameter& one : embedding_.loss_parameters) {
    const nn::ParameterSpec* parameter = layout().find(layout_name(one));
    const auto to = parameter->values_in(grads);
    for (std::size_t i = 0; i < to.size(); ++i)
      to[i] = (accumulate ? to[i] : 0) + (gradient.empty() ? 0 : gradient[i]);
    gradient = gradient.subspan(std::min(gradient.size(), to.size()));
  }
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
      const auto from = parameter->values_in(weights);
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
  return plan_pieces(batch_size, max_rows, options().training_kind());
}

std::size_t EmbeddingTask::plan_calibration(std::size_t batch_size) {
  return plan_pieces(batch_size, PieceEncoder::kPieceTokens, models::PassKind::kInference);
}

// Tokens of the largest batch as the guide's tokenizer cuts its texts.
std::size_t EmbeddingTask::guide_tokens(std::size_t texts) const {
  std::vector<std::size_t> lengths;
  for (std::size_t i = 0; i < train_.guide_texts.size(); ++i)
    lengths.push_back(train_.guide_texts.num_real_tokens(i));
  std::sort(lengths.begin(), lengths.end(), std::greater<>());
  lengths.resize(std::min(texts, lengths.size()));
  return std::accumulate(lengths.begin(), lengths.end(), std::size_t{0});
}

std::size_t EmbeddingTask::plan_pieces(std::size_t batch_size, std::size_t max_rows,
                                       models::PassKind kind) {
  std::size_t longest = 0;
  for (std::size_t i = 0; i < train_.texts.size(); ++i)
    longest = std::max(longest, train_.texts.num_real_tokens(i));
  const std::size_t texts = batch_size * largest_shape().columns;
  const bool keep = models::is_training(kind) &&
                    (embedding_.mini_batch_size == 0 || batch_size <= embedding_.mini_batch_size);
  batch_.values.reserve(texts * width());
  std::size_t parameters = 0;
  for (const LossParameter& one : embedding_.loss_parameters)
    parameters += layout().find(layout_name(one))->size;
  batch_.loss_parameters.reserve(parameters);
  batch_.gradient.reserve(texts * width() + parameters);
  batch_.indices.reserve(texts);
  batch_.samples.reserve(texts);
  const std::size_t of_pieces = pieces_.plan({.kind = kind,
                                              .precision = options().precision,
                                              .tokens = max_rows,
                                              .texts = texts,
                                              .longest = longest,
                                              .keep = keep});
  const std::size_t of_guide =
      embedding_.guide == nullptr ? 0 : embedding_.guide->plan(guide_tokens(texts));
  return of_pieces + of_guide + (2 * texts * width() + parameters) * sizeof(float);
}

// --- training ---

// Also labels the loaded rows if a guide does it.
void EmbeddingTask::embed_batch(const kernels::Context& context, const nn::Weights& weights,
                                const nn::DropoutStream& dropout, std::span<float> embeddings) {
  pieces_.embed(context, weights, dropout, embeddings);
  if (batch_.set == nullptr || !batch_.set->guided) return;
  embedding_.guide->label(context, train_.guide_texts, batch_.indices, batch_.set->columns,
                          batch_.labels);
}

BatchSize EmbeddingTask::load_train_batch(std::span<const std::uint32_t> features,
                                          std::uint64_t first_sample) {
  batch_.set = &set_of(features.front());
  batch_.rows = features.size();
  batch_.indices.clear();
  batch_.samples.clear();
  batch_.labels.clear();
  const std::size_t most = largest_shape().columns;
  for (std::size_t column = 0; column < most; ++column) {
    for (std::size_t i = 0; i < features.size(); ++i) {
      const RowSet& set = set_of(features[i]);
      if (column >= set.columns) continue;
      batch_.indices.push_back(text_of(set, column, features[i]));
      batch_.samples.push_back(dropout_key(first_sample + i, column));
    }
  }
  for (const std::uint32_t row : features) {
    const RowSet& set = set_of(row);
    if (!set.guided) {
      const auto labels =
          std::span(set.labels)
              .subspan((row - set.first_row) * set.labels_per_row, set.labels_per_row);
      batch_.labels.insert(batch_.labels.end(), labels.begin(), labels.end());
    }
    if (&set != batch_.set) batch_.set = nullptr;
  }
  batch_.values.resize(batch_.indices.size() * width());
  return pieces_.load(train_.texts, batch_.indices, batch_.samples);
}

EmbeddedRows EmbeddingTask::batch_group() const {
  return {.rows = batch_.rows,
          .columns = batch_.set->columns,
          .width = width(),
          .values = batch_.values,
          .labels = batch_.labels,
          .parameters = batch_.loss_parameters};
}

double EmbeddingTask::forward(const kernels::Context& context, const nn::Weights& weights,
                              const nn::DropoutStream& dropout) {
  if (selected_) return gathered_.loss(selected_->micro);
  embed_batch(context, weights, dropout, batch_.values);
  const StageTimer timer(context.profile, "loss", "contrast");
  batch_.gradient.assign(batch_.values.size(), 0.0f);
  if (batch_.set == nullptr) return 0;  // calibration takes rows of all sets
  const EmbeddingLoss& loss = loss_of(*batch_.set);
  read_loss_parameters(weights.f32);
  if (!loss.parameters(width()).empty())
    batch_.gradient.resize(batch_.values.size() + batch_.loss_parameters.size());
  return group_loss_.compute(loss, batch_group(), batch_.gradient, context);
}

void EmbeddingTask::backward(const kernels::Context& context, const nn::Weights& weights,
                             const nn::DropoutStream& dropout, double loss_scale,
                             std::span<float> grads, bool accumulate,
                             FunctionRef<void(std::size_t end)> gradient_ready) {
  // The trainer takes the mean over shards; the loss over all of them is not such a mean.
  if (selected_) {
    const std::span<const float> own = gathered_.gradient(*selected_);
    batch_.gradient.assign(own.begin(), own.end());
    loss_scale *= static_cast<double>(gathered_.shards());
  }
  const auto scale = static_cast<float>(loss_scale);
  for (float& value : batch_.gradient) value *= scale;
  selected_.reset();
  const std::span<const float> gradient(batch_.gradient);
  const std::size_t of_texts = batch_.values.size();
  write_loss_gradient(gradient.subspan(of_texts), grads, accumulate);
  pieces_.backward(context, weights, dropout, gradient.first(of_texts), grads, accumulate,
                   gradient_ready);
}

std::size_t EmbeddingTask::step_bytes(const StepBatches& batches, std::size_t batch_size) const {
  if (!embedding_.gather) return 0;
  std::size_t statistics = 0;
  for (const RowSet& set : train_.sets) {
    const EmbeddedRows shape{
        .rows = batch_size, .columns = set.columns, .width = width(), .values = {}, .labels = {}};
    statistics = std::max(statistics, loss_of(set).statistics_per_row(shape));
  }
  return GatheredLoss::bytes(batches, largest_shape(), batch_size, statistics);
}

void EmbeddingTask::begin_step(const StepBegin& step) {
  if (!embedding_.gather) return;
  pieces_.forget();
  selected_.reset();
  gathered_.begin(step.batches, largest_shape());
  const RowSet& first = train_.sets.front();  // of micro-batches that this rank has no part of
  for (std::size_t micro = 0; micro < step.batches.micro_batches; ++micro)
    gathered_.describe(micro, shape_of(first), loss_of(first));
  for (std::size_t shard = step.batches.first_shard; shard < step.batches.end_shard; ++shard) {
    for (std::size_t micro = 0; micro < step.batches.micro_batches; ++micro) {
      const BatchPosition position{micro, shard};
      step.load(position);
      TANDEM_CHECK(batch_.set != nullptr, "a batch with rows of several sets");
      gathered_.describe(micro, shape_of(*batch_.set), loss_of(*batch_.set));
      embed_batch(step.context, step.weights, step.dropout, gathered_.embeddings(position));
      std::copy(batch_.labels.begin(), batch_.labels.end(), gathered_.labels(position).begin());
    }
  }
  const StageTimer timer(step.context.profile, "loss", "contrast over the step");
  gathered_.compute(step.context, step.gather);
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
  const bool guided = rows.guide_texts.size() > 0;
  const std::span<const float> given = guided ? rows.guide_labels : rows.labels;
  const std::size_t all = rows.rows, labels = given.size() / std::max<std::size_t>(1, all);
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
    gradient.resize(values.size() + batch_.loss_parameters.size());
    const EmbeddedRows group{.rows = count,
                             .columns = rows.columns,
                             .width = width(),
                             .values = values,
                             .labels = given.subspan(begin * labels, count * labels),
                             .parameters = batch_.loss_parameters};
    sum +=
        static_cast<double>(count) * group_loss.compute(*embedding_.loss, group, gradient, context);
  }
  return sum / static_cast<double>(all);
}

// Values in memory at once; other outputs are on disk.
std::size_t EmbeddingTask::num_outputs() const {
  if (searches_.empty()) return EncoderTask::num_outputs();
  return std::max(eval_.rows * eval_.columns, predict_.rows * predict_.columns) * width();
}

void EmbeddingTask::take_outputs(Split split, std::size_t begin, std::size_t end,
                                 std::span<const float> output) {
  const std::size_t of_rows = eval_.rows * eval_.columns;
  if (begin == 0) {
    taken_.rows.resize(of_rows * width());
    taken_.searched = std::make_unique<ranking::RowFile>(width());
  }
  const std::span<const std::uint32_t> order = evaluated_order(split).subspan(begin, end - begin);
  for (const std::uint32_t text : order) {
    const auto own = output.first(width());
    output = output.subspan(width());
    if (text < of_rows) {
      std::copy(own.begin(), own.end(),
                taken_.rows.begin() + static_cast<std::ptrdiff_t>(text * width()));
    } else {
      taken_.searched->write(text - of_rows, own);
    }
  }
}

std::vector<std::span<const float>> EmbeddingTask::row_embeddings(
    Split split, std::span<const float> output) const {
  if (!takes_outputs(split)) return outputs_in_order(split, output);
  std::vector<std::span<const float>> embeddings;
  for (std::size_t i = 0; i < eval_.rows * eval_.columns; ++i)
    embeddings.push_back(std::span(taken_.rows).subspan(i * width(), width()));
  return embeddings;
}

// The guide does not change: its embeddings of an evaluation are computed once.
void EmbeddingTask::prepare_guide(Split split, ThreadPool& threads) {
  TokenizedRows& set = split == Split::kEval ? eval_ : predict_;
  if (set.guide_texts.size() == 0 || !set.guide_labels.empty()) return;
  kernels::Scratch scratch(threads.num_threads());
  const kernels::KernelSet fast = kernels::select_kernels(kernels::CpuFeatures::detect());
  std::vector<std::uint32_t> indices(set.rows * set.columns);
  std::iota(indices.begin(), indices.end(), 0);
  embedding_.guide->label({threads, fast, scratch}, set.guide_texts, indices, set.columns,
                          set.guide_labels);
}

Evaluation EmbeddingTask::evaluate(Split split, std::span<const float> output,
                                   const std::filesystem::path&, const std::string&,
                                   ThreadPool& threads) {
  const std::vector<std::span<const float>> embeddings = row_embeddings(split, output);
  Evaluation evaluation{.metrics = nlohmann::ordered_json::object(), .warnings = {}};
  const TokenizedRows& set = evaluated(split);
  ReferenceContext context(threads);
  prepare_guide(split, threads);
  if (set.rows > 0) evaluation.metrics["loss"] = evaluation_loss(set, embeddings, context.get());
  if (split == Split::kEval) {
    embedding::evaluate(embedding_.evaluators,
                        {.rows = set.rows,
                         .columns = set.columns,
                         .labels = set.labels,
                         .embeddings = embeddings,
                         .searches = searches_,
                         .searched = taken_.searched.get()},
                        context.get(), evaluation);
  }
  taken_ = {};
  return evaluation;
}

}  // namespace tandem::tasks::embedding
