#include "tandem/tasks/question_answering/question_answering_task.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include "tandem/core/error.h"
#include "tandem/core/profile.h"
#include "tandem/kernels/cross_entropy.h"
#include "tandem/models/pretrained.h"
#include "tandem/tasks/question_answering/metrics.h"
#include "tandem/tasks/question_answering/result_files.h"
#include "tandem/tasks/question_answering/span_head.h"

namespace tandem::question_answering {
namespace {

constexpr std::size_t kNumLabels = kSpanLabels;

// FNV-1a, 64 bits: enough to notice other data, which is all a fingerprint is for.
class Fingerprint {
 public:
  template <class T>
  void add(std::span<const T> values) {
    for (const T value : values) {
      hash_ ^= static_cast<std::uint64_t>(value);
      hash_ *= 0x100000001b3;
    }
  }
  std::string text() const { return fmt::format("{:016x}", hash_); }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325;
};

// Validation data always are; those to predict only where they have answers.
bool is_scored(tasks::Split split, const data::QuestionSet& questions) {
  return split == tasks::Split::kEval ||
         std::any_of(questions.begin(), questions.end(),
                     [](const data::QuestionExample& example) { return !example.answers.empty(); });
}

// The questions of a set that have features.
std::span<const data::QuestionExample> used_examples(const EvaluationSet& set) {
  return set.questions.examples().first(set.features.statistics().num_examples);
}

// Of a version-2 evaluation that --max_eval_samples or --max_predict_samples cut: questions that
// no feature is left for get the answer "", which is right where there is none. Nothing otherwise.
std::optional<std::string> flattery(std::span<const data::QuestionExample> examples,
                                    const FeatureSet& features) {
  std::vector<bool> seen(examples.size());
  for (std::size_t i = 0; i < features.size(); ++i) seen[features[i].example] = true;
  std::size_t right_unseen = 0;
  for (std::size_t e = 0; e < examples.size(); ++e)
    right_unseen += !seen[e] && examples[e].answers.empty();
  if (right_unseen == 0) return std::nullopt;
  return fmt::format(
      "the score is flattered: {} of {} questions count as right without the model having read "
      "them "
      "(max_*_samples left them no feature, and they have no answer), which is {:.2f} of exact and "
      "f1",
      right_unseen, examples.size(),
      100 * static_cast<double>(right_unseen) / static_cast<double>(examples.size()));
}

}  // namespace

struct QuestionAnsweringTask::Pass {
  explicit Pass(models::Activations memory) : activations(std::move(memory)) {}

  models::Activations activations;
  nn::PackedBatch batch;
  BatchRows rows;
  std::vector<std::int32_t> start, end;    // labels, [sequences]
  std::vector<float> logits, grad_logits;  // [rows, 2]
};

std::size_t max_batch_rows(const FeatureSet& features, Padding padding, std::size_t batch_size) {
  const std::size_t sequences = std::min(batch_size, features.size());
  if (padding == Padding::kMaxSeqLength) return sequences * features.max_seq_length();
  std::vector<std::size_t> lengths(features.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = features.num_real_tokens(i);
  std::partial_sort(lengths.begin(), lengths.begin() + static_cast<std::ptrdiff_t>(sequences),
                    lengths.end(), std::greater<>());
  if (sequences == 0) return 0;
  if (padding == Padding::kLongestOfBatch) return sequences * lengths.front();
  return std::accumulate(lengths.begin(), lengths.begin() + static_cast<std::ptrdiff_t>(sequences),
                         std::size_t{0});
}

std::vector<std::uint32_t> by_length(const FeatureSet& features) {
  std::vector<std::uint32_t> order(features.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return features.num_real_tokens(a) > features.num_real_tokens(b);
  });
  return order;
}

std::vector<std::uint32_t> evaluation_order(const FeatureSet& features, Padding padding) {
  if (padding == Padding::kNone) return by_length(features);
  std::vector<std::uint32_t> order(features.size());
  std::iota(order.begin(), order.end(), 0u);
  return order;
}

QuestionAnsweringTask::QuestionAnsweringTask(models::ModelConfig config,
                                             const text::Tokenizer& tokenizer,
                                             const Options& options)
    : model_(std::move(config), make_span_head), tokenizer_(tokenizer), options_(options) {
  if (tokenizer.vocab_size() > model_.config().vocab_size) {
    raise<ConfigError>(
        "the tokenizer has {} tokens but the model's vocab_size is {}: they do not belong "
        "together; check "
        "--tokenizer_name and --config_name",
        tokenizer.vocab_size(), model_.config().vocab_size);
  }
}

QuestionAnsweringTask::~QuestionAnsweringTask() = default;

void QuestionAnsweringTask::set_train_features(FeatureSet features) {
  train_features_ = std::move(features);
  train_costs_.clear();
  if (options_.padding != Padding::kNone) return;
  for (std::size_t i = 0; i < train_features_.size(); ++i) {
    const auto rows = static_cast<double>(train_features_.num_real_tokens(i));
    train_costs_.push_back(static_cast<float>(model_.training_flops(rows, 1, rows * rows)));
  }
}

std::vector<std::uint32_t> QuestionAnsweringTask::train_lengths() const {
  std::vector<std::uint32_t> lengths(train_features_.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    lengths[i] = static_cast<std::uint32_t>(options_.padding == Padding::kMaxSeqLength
                                                ? train_features_.max_seq_length()
                                                : train_features_.num_real_tokens(i));
  }
  return lengths;
}

void QuestionAnsweringTask::set_evaluation(tasks::Split split, EvaluationSet set) {
  if (!options_.postprocess.version_2_with_negative && is_scored(split, set.questions))
    check_answered(used_examples(set));
  std::vector<std::uint32_t> order = evaluation_order(set.features, options_.padding);
  (split == tasks::Split::kEval ? eval_set_ : predict_set_)
      .emplace(OrderedSet{std::move(set), std::move(order)});
}

const QuestionAnsweringTask::OrderedSet& QuestionAnsweringTask::evaluation_set(
    tasks::Split split) const {
  const auto& set = split == tasks::Split::kEval ? eval_set_ : predict_set_;
  TANDEM_CHECK(set.has_value(), "no evaluation set was given");
  return *set;
}

std::size_t QuestionAnsweringTask::num_parameters_without_embeddings() const {
  std::size_t total = 0;
  for (const nn::ParameterSpec& parameter : layout().parameters()) {
    if (parameter.kind != nn::ParameterKind::kEmbedding) total += parameter.size;
  }
  return total;
}

void QuestionAnsweringTask::save_pretrained(const std::filesystem::path& directory,
                                            std::span<const float> weights) const {
  models::save_pretrained(directory, model_.config(), model_.architecture(), layout(), weights,
                          options_.weight_format);
  tokenizer_.save(directory);
}

std::string QuestionAnsweringTask::train_fingerprint() const {
  Fingerprint fingerprint;
  const std::array<std::uint64_t, 2> settings{static_cast<std::uint64_t>(options_.padding),
                                              train_features_.max_seq_length()};
  fingerprint.add(std::span<const std::uint64_t>(settings));
  for (std::size_t i = 0; i < train_features_.size(); ++i) {
    const Feature& feature = train_features_[i];
    const std::array<std::uint32_t, 3> numbers{feature.start_position, feature.end_position,
                                               feature.window_size};
    fingerprint.add(std::span<const std::uint32_t>(numbers));
    fingerprint.add(train_features_.question_tokens(i));
    fingerprint.add(train_features_.window_tokens(i));
  }
  return fingerprint.text();
}

std::string QuestionAnsweringTask::evaluation_fingerprint(tasks::Split split) const {
  const auto& ordered = split == tasks::Split::kEval ? eval_set_ : predict_set_;
  if (!ordered) return "";
  const FeatureSet& features = ordered->set.features;
  Fingerprint fingerprint;
  for (const data::QuestionExample& example : used_examples(ordered->set))
    fingerprint.add(std::span<const char>(example.id));
  for (std::size_t i = 0; i < features.size(); ++i) {
    fingerprint.add(features.question_tokens(i));
    fingerprint.add(features.window_tokens(i));
    for (const text::Span& span : features.window_offsets(i)) {
      const std::array<std::uint64_t, 2> place{span.begin, span.end};
      fingerprint.add(std::span<const std::uint64_t>(place));
    }
  }
  return fingerprint.text();
}

std::unique_ptr<QuestionAnsweringTask::Pass> QuestionAnsweringTask::make_pass(
    const models::BatchShape& capacity, models::PassKind kind, const Pass* within) const {
  auto pass = std::make_unique<Pass>(model_.make_activations(
      capacity, options_.precision, kind, within == nullptr ? nullptr : &within->activations));
  // Loading a batch swaps the two sets of vectors, so both have room for the largest one.
  pass->batch.reserve(capacity.rows, capacity.sequences);
  reserve(pass->rows, capacity.rows, capacity.sequences);
  pass->start.reserve(capacity.sequences);
  pass->end.reserve(capacity.sequences);
  if (models::is_training(kind)) {
    pass->logits.resize(capacity.rows * kNumLabels);
    pass->grad_logits.resize(capacity.rows * kNumLabels);
  }
  return pass;
}

void QuestionAnsweringTask::set_training(const models::BatchShape& capacity,
                                         models::PassKind kind) {
  inference_.reset();
  training_ = make_pass(capacity, kind);
}

void QuestionAnsweringTask::set_precision(nn::Precision precision) {
  if (precision == options_.precision) return;
  options_.precision = precision;
  training_.reset();
  inference_.reset();
}

std::size_t QuestionAnsweringTask::train_batch_rows(std::span<const std::uint32_t> features) const {
  return batch_rows(train_features_, features, options_.padding);
}

std::size_t QuestionAnsweringTask::plan_training(std::size_t batch_size) {
  return plan_training(batch_size, max_batch_rows(train_features_, options_.padding, batch_size));
}

std::size_t QuestionAnsweringTask::plan_training(std::size_t batch_size, std::size_t max_rows) {
  const auto kind = options_.gradient_checkpointing ? models::PassKind::kCheckpointed
                                                    : models::PassKind::kTraining;
  set_training({.rows = max_rows, .sequences = batch_size}, kind);
  return training_->activations.bytes();
}

std::size_t QuestionAnsweringTask::plan_calibration(std::size_t batch_size) {
  const std::size_t rows = max_batch_rows(train_features_, options_.padding, batch_size);
  set_training({.rows = rows, .sequences = batch_size}, models::PassKind::kInference);
  training_->logits.resize(rows * kNumLabels);  // forward() computes the loss from them
  return training_->activations.bytes();
}

void QuestionAnsweringTask::for_each_batch(
    const OrderedSet& set, FunctionRef<void(std::span<const std::uint32_t>)> visit) const {
  const std::span order(set.order);
  for (std::size_t begin = 0; begin < order.size(); begin += options_.eval_batch_size) {
    visit(order.subspan(begin, std::min(options_.eval_batch_size, order.size() - begin)));
  }
}

std::size_t QuestionAnsweringTask::plan_evaluation() {
  std::size_t rows = 0;
  for (const auto* set : {&eval_set_, &predict_set_}) {
    if (!*set) continue;
    std::size_t rows_of_set = 0;
    for_each_batch(**set, [&](std::span<const std::uint32_t> batch) {
      const std::size_t rows_of_batch = batch_rows((*set)->set.features, batch, options_.padding);
      rows = std::max(rows, rows_of_batch);
      rows_of_set += rows_of_batch;
    });
    num_evaluation_rows_ = std::max(num_evaluation_rows_, rows_of_set);
  }
  const std::size_t of_training = training_ == nullptr ? 0 : training_->activations.bytes();
  inference_ = make_pass({.rows = rows, .sequences = options_.eval_batch_size},
                         models::PassKind::kInference, training_.get());
  return inference_->activations.bytes() - of_training;
}

std::size_t QuestionAnsweringTask::answers_bytes(tasks::Split split) const {
  const auto& set = split == tasks::Split::kEval ? eval_set_ : predict_set_;
  if (!set) return 0;
  constexpr std::size_t kHeap = 16;  // what an allocation takes beside its bytes
  return used_examples(set->set).size() *
         (sizeof(Prediction) + options_.postprocess.n_best_size * sizeof(Candidate) + kHeap);
}

void QuestionAnsweringTask::fill(const FeatureSet& features, std::span<const std::uint32_t> indices,
                                 std::uint64_t first_sample, Pass& pass) const {
  BatchRows& rows = pass.rows;
  nn::PackedBatch& batch = pass.batch;
  fill_batch(features, indices, options_.padding, rows);
  std::swap(batch.input_ids, rows.input_ids);
  std::swap(batch.token_type_ids, rows.token_type_ids);
  std::swap(batch.row_begin, rows.row_begin);
  std::swap(batch.key_count, rows.key_count);
  batch.sample.resize(indices.size());
  std::iota(batch.sample.begin(), batch.sample.end(), first_sample);
  pass.start.assign(rows.start_positions.begin(), rows.start_positions.end());
  pass.end.assign(rows.end_positions.begin(), rows.end_positions.end());
}

tasks::BatchSize QuestionAnsweringTask::load_train_batch(std::span<const std::uint32_t> features,
                                                         std::uint64_t first_sample) {
  TANDEM_CHECK(training_ != nullptr, "plan_training() comes first");
  fill(train_features_, features, first_sample, *training_);
  const nn::PackedBatch& batch = training_->batch;
  return {.real_tokens =
              std::accumulate(batch.key_count.begin(), batch.key_count.end(), std::size_t{0}),
          .computed_tokens = batch.rows(),
          .flops = model_.training_flops(batch)};
}

double QuestionAnsweringTask::forward(const kernels::Context& context, const nn::Weights& weights,
                                      const nn::DropoutStream& dropout) {
  Pass& pass = *training_;
  const std::span logits(pass.logits.data(), pass.batch.rows() * kNumLabels);
  model_.forward(context, weights, pass.batch, dropout, pass.activations, logits);
  const StageTimer timer(context.profile, "loss", "forward");
  return kernels::span_cross_entropy(context, pass.batch.sequences(), logits.data(),
                                     pass.start.data(), pass.end.data(), 1.0f, nullptr);
}

void QuestionAnsweringTask::backward(const kernels::Context& context, const nn::Weights& weights,
                                     const nn::DropoutStream& dropout, double loss_scale,
                                     std::span<float> grads, bool accumulate,
                                     FunctionRef<void(std::size_t end)> gradient_ready) {
  Pass& pass = *training_;
  const std::size_t size = pass.batch.rows() * kNumLabels;
  const std::span grad_logits(pass.grad_logits.data(), size);
  {
    const StageTimer timer(context.profile, "loss", "backward");
    kernels::span_cross_entropy(context, pass.batch.sequences(), pass.logits.data(),
                                pass.start.data(), pass.end.data(), static_cast<float>(loss_scale),
                                grad_logits.data());
  }
  model_.backward(context, weights, pass.batch, dropout, grad_logits, pass.activations, grads,
                  accumulate, gradient_ready);
}

std::size_t QuestionAnsweringTask::num_features(tasks::Split split) const {
  return evaluation_set(split).set.features.size();
}

void QuestionAnsweringTask::predict(const kernels::Context& context, const nn::Weights& weights,
                                    tasks::Split split, std::size_t begin, std::size_t end,
                                    std::vector<float>& output) {
  const OrderedSet& set = evaluation_set(split);
  if (!inference_) plan_evaluation();
  fill(set.set.features, std::span(set.order).subspan(begin, end - begin), 0, *inference_);
  const std::size_t size = inference_->batch.rows() * kNumLabels;
  output.resize(output.size() + size);
  model_.forward(context, weights, inference_->batch, {}, inference_->activations,
                 std::span(output).last(size));
}

std::size_t QuestionAnsweringTask::output_size(tasks::Split split, std::size_t begin,
                                               std::size_t end) const {
  const OrderedSet& set = evaluation_set(split);
  const auto batch = std::span<const std::uint32_t>(set.order).subspan(begin, end - begin);
  return batch_rows(set.set.features, batch, options_.padding) * kNumLabels;
}

// Outputs come as predict() computed them; the answers want the order of the features.
struct QuestionAnsweringTask::OrderedLogits {
  std::vector<float> start, end;
  std::vector<std::size_t> row_begin;
};

QuestionAnsweringTask::OrderedLogits QuestionAnsweringTask::in_order(
    const OrderedSet& set, std::span<const float> output) const {
  const FeatureSet& features = set.set.features;
  std::vector<std::size_t> rows(features.size());
  for_each_batch(set, [&](std::span<const std::uint32_t> batch) {
    const std::size_t padded = padded_sequence_rows(features, batch, options_.padding);
    for (const std::uint32_t i : batch) {
      rows[i] = padded == 0 ? features.num_real_tokens(i) : padded;
    }
  });
  OrderedLogits logits;
  logits.row_begin.resize(features.size() + 1, 0);
  std::partial_sum(rows.begin(), rows.end(), logits.row_begin.begin() + 1);
  const std::size_t total = logits.row_begin.back();
  TANDEM_CHECK(output.size() == total * kNumLabels, "{} logits for {} rows", output.size(), total);
  logits.start.resize(total);
  logits.end.resize(total);
  const float* from = output.data();
  for (const std::uint32_t i : set.order) {
    for (std::size_t row = logits.row_begin[i]; row < logits.row_begin[i + 1]; ++row) {
      logits.start[row] = *from++;
      logits.end[row] = *from++;
    }
  }
  return logits;
}

tasks::Evaluation QuestionAnsweringTask::evaluate(tasks::Split split, std::span<const float> output,
                                                  const std::filesystem::path& directory,
                                                  const std::string& prefix, ThreadPool& threads) {
  const OrderedSet& ordered = evaluation_set(split);
  const EvaluationSet& set = ordered.set;
  const OrderedLogits logits = in_order(ordered, output);
  const auto examples = used_examples(set);
  Predictions answers =
      postprocess(examples, set.features, {logits.start, logits.end, logits.row_begin},
                  options_.postprocess, threads);
  if (!directory.empty()) {
    write_prediction_files(directory, prefix, answers,
                           options_.postprocess.version_2_with_negative);
  }
  tasks::Evaluation evaluation{.metrics = nlohmann::ordered_json::object(),
                               .warnings = std::move(answers.warnings)};
  if (!is_scored(split, set.questions)) return evaluation;
  if (options_.postprocess.version_2_with_negative) {
    if (auto warning = flattery(examples, set.features))
      evaluation.warnings.push_back(std::move(*warning));
  }
  std::vector<std::string_view> texts;
  for (const Prediction& prediction : answers.predictions) texts.push_back(prediction.text);
  const Metrics metrics = options_.postprocess.version_2_with_negative
                              ? squad_v2_metrics(examples, texts)
                              : squad_metrics(examples, texts);
  if (split == tasks::Split::kEval) eval_answers_ = std::move(texts);
  for (const auto& [name, value] : metrics) {
    const bool count = name.ends_with("total");
    evaluation.metrics[name] = count ? nlohmann::ordered_json(static_cast<std::int64_t>(value))
                                     : nlohmann::ordered_json(value);
  }
  return evaluation;
}

Mistakes QuestionAnsweringTask::mistakes(std::size_t limit) const {
  if (eval_answers_.empty()) return {};
  const auto examples = eval_set_->set.questions.examples().first(eval_answers_.size());
  return find_mistakes(examples, eval_answers_, options_.postprocess.version_2_with_negative,
                       limit);
}

}  // namespace tandem::question_answering
