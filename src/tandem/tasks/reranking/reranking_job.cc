#include "tandem/tasks/reranking/reranking_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/models/heads/cross_encoder_files.h"
#include "tandem/models/heads/score_head.h"
#include "tandem/tasks/label_config.h"
#include "tandem/tasks/no_duplicates.h"
#include "tandem/tasks/reranking/pair_evaluators.h"
#include "tandem/tasks/several_sets.h"

namespace tandem::tasks::reranking {
namespace {

constexpr std::size_t kUncut = std::numeric_limits<std::uint32_t>::max();  // tokens of a text
constexpr const char* kPredictions = "predict_results.txt";

// Whether config.json names a class of sequence classification: its labels are then the model's.
bool is_sequence_classifier(const models::ModelConfig& config) {
  const auto json = nlohmann::json::parse(config.source);
  const auto classes = json.find("architectures");
  if (classes == json.end() || !classes->is_array()) return false;
  return std::any_of(classes->begin(), classes->end(), [](const nlohmann::json& name) {
    return name.is_string() &&
           name.get_ref<const std::string&>().ends_with("ForSequenceClassification");
  });
}

std::size_t labels_of(const models::ModelConfig& config, const RerankingArguments& arguments) {
  if (arguments.num_labels) return static_cast<std::size_t>(*arguments.num_labels);
  if (!is_sequence_classifier(config)) return 1;
  return std::max<std::size_t>(1, config.usable_labels().size());
}

// A decoder that scores by logits has one, and no other head.
std::size_t labels_of_logits(const RerankingArguments& arguments) {
  if (arguments.num_labels.value_or(1) == 1) return 1;
  raise<ConfigError>(
      "--num_labels {}: the model scores pairs by the logits of its LogitScore; expected 1",
      *arguments.num_labels);
}

// Its template joins the texts of a pair, so that pairs are not made of tokenized texts.
void check_losses_of_logits(const RerankerOptions& reranker) {
  const auto check = [](const LossOptions& loss) {
    if (!loss_needs(loss.name).in_batch_negatives) return;
    raise<ConfigError>(
        "--loss {}: the chat template of the model joins the texts of a pair, so there are no "
        "in-batch negatives; mine hard negatives (tandem mine) and pass a loss of pairs or lists",
        loss.name);
  };
  check(reranker.loss);
  for (const LossOptions& loss : reranker.set_losses) check(loss);
}

// The loss of a data set of --train_files, or of other rows if `set` is empty.
LossOptions choose_loss(const RerankingArguments& arguments, std::size_t labels,
                        const std::string& set = "") {
  LossOptions loss;
  loss.name = value_of_set(arguments, "loss", arguments.loss, set)
                  .value_or(std::string(default_loss(labels)));
  check_outputs(loss_needs(loss.name), labels);
  loss.pos_weight = arguments.pos_weight.value_or(1);
  loss.weighting_scheme = arguments.weighting_scheme.value_or("");
  if (arguments.k) loss.k = static_cast<std::size_t>(*arguments.k);
  loss.scale = arguments.scale;
  loss.respect_input_order = arguments.respect_input_order;
  return loss;
}

RowForm row_form(const LossOptions& loss) {
  switch (loss_needs(loss.name).sample) {
    case SampleKind::kPair:
    case SampleKind::kClassPair:
      break;
    case SampleKind::kTuple:
      return loss_needs(loss.name).labels ? RowForm::kTuples : RowForm::kPositives;
    case SampleKind::kList:
      return RowForm::kLists;
  }
  return RowForm::kPairs;
}

// "sigmoid", "identity", or the name of a class of torch.
models::DenseActivation activation_of(const std::string& name) {
  if (name == "sigmoid") return models::DenseActivation::kSigmoid;
  if (name == "identity") return models::DenseActivation::kIdentity;
  return models::activation_named(name, "--activation_fn");
}

void set_labels(models::ModelConfig& config, std::size_t count) {
  if (config.labels.size() == count) return;
  config.labels.clear();
  for (std::size_t i = 0; i < count; ++i) config.labels.push_back(fmt::format("LABEL_{}", i));
}

// Pairs of several files.
struct JoinedPairs {
  explicit JoinedPairs(std::span<const PairRows> all) : parts(all) {
    for (const PairRows& part : parts) {
      queries.insert(queries.end(), part.queries.begin(), part.queries.end());
      passages.insert(passages.end(), part.passages.begin(), part.passages.end());
    }
  }
  std::uint64_t bytes() const {
    std::uint64_t bytes = 0;
    for (const auto* texts : {&queries, &passages}) {
      for (const std::string_view text : *texts) bytes += text.size();
    }
    return bytes;
  }
  std::string location(std::size_t pair) const {
    std::size_t part = 0;
    for (; pair >= parts[part].passages.size(); ++part) pair -= parts[part].passages.size();
    return parts[part].location(pair);
  }

  std::span<const PairRows> parts;
  std::vector<std::string_view> queries, passages;
};

text_classification::TextFeatures features_of(const RerankingTask& task, const JoinedPairs& pairs,
                                              FeatureMaker& maker) {
  const text::Tokenizer& tokenizer = task.tokenizer();
  const auto& logit = task.reranker().logit;
  const std::size_t max_tokens = task.reranker().max_tokens;
  const auto location = [&](std::size_t i) { return pairs.location(i); };
  const auto key = [&] {
    std::string texts =
        text_classification::features_key(pairs.queries, pairs.passages, max_tokens);
    if (!logit) return texts;
    ContentDigest prompt;
    prompt.add(tokenizer.chat_template());
    prompt.add(logit->files.prompts.default_prompt());
    return texts + fmt::format("prompt: {}\n", prompt.text());
  };
  const auto make = [&] {
    if (!logit) {
      return text_classification::build_text_features(tokenizer, pairs.queries, pairs.passages,
                                                      max_tokens, maker.threads(), location);
    }
    return text_classification::build_made_features(
        tokenizer, pairs.queries.size(),
        [&](std::size_t i) { return logit->prompt->text(pairs.queries[i], pairs.passages[i]); },
        logit->prompt->end(), max_tokens, maker.threads(), location);
  };
  return maker.cache().get<text_classification::TextFeatures>(pairs.bytes(), key, make);
}

// A loss without in-batch negatives has no limit.
std::size_t mini_batch_size(const RerankingArguments& arguments, std::string_view loss) {
  constexpr std::size_t kOfCachedLosses = 32;
  if (arguments.mini_batch_size) return static_cast<std::size_t>(*arguments.mini_batch_size);
  return loss.starts_with("Cached") ? kOfCachedLosses : 0;
}

// Whether a query has no negative of its own.
bool has_lone_passage(const PairRows& pairs) {
  for (std::size_t i = 0; i + 1 < pairs.begins.size(); ++i)
    if (pairs.begins[i + 1] - pairs.begins[i] == 1) return true;
  return false;
}

// Negatives of an evaluation, whose batches are the rows in their order.
void add_in_batch_negatives(const InBatchOptions& options, std::size_t batch_size,
                            PairRows& pairs) {
  PairRows all;
  const std::size_t rows = pairs.begins.size() - 1;
  const auto add = [&](std::size_t query, std::size_t passage) {
    all.queries.push_back(pairs.queries[query]);
    all.passages.push_back(pairs.passages[passage]);
    all.row_of.push_back(pairs.row_of[query]);
  };
  for (std::size_t first = 0; first < rows; first += batch_size) {
    const std::size_t count = std::min(batch_size, rows - first);
    std::vector<std::size_t> begins;
    for (std::size_t i = 0; i <= count; ++i)
      begins.push_back(pairs.begins[first + i] - pairs.begins[first]);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t own = pairs.begins[first + i];
      for (std::size_t pair = own; pair < pairs.begins[first + i + 1]; ++pair) add(pair, pair);
      for (const std::size_t other : in_batch_negatives(options, begins, i, first + i))
        add(own, pairs.begins[first] + other);
      all.begins.push_back(static_cast<std::uint32_t>(all.passages.size()));
    }
  }
  pairs.queries = std::move(all.queries);
  pairs.passages = std::move(all.passages);
  pairs.row_of = std::move(all.row_of);
  pairs.begins = std::move(all.begins);
}

// Without the names of columns, which are those of the training rows.
RerankingArguments in_order_of_file(RerankingArguments arguments) {
  arguments.train_columns.reset();
  arguments.label_column.reset();
  return arguments;
}

void log_part(std::string_view name, const PairRows& pairs, StartLog& log) {
  log.fact(name, fmt::format("{}: {} pairs of {} samples", pairs.rows.file(), pairs.passages.size(),
                             pairs.begins.size() - 1));
  log.fact("columns", fmt::format("{}", fmt::join(pairs.columns, ", ")));
  if (!pairs.left_out.empty())
    log.fact("columns left out", fmt::format("{} (no texts)", fmt::join(pairs.left_out, ", ")));
}

}  // namespace

Task& RerankingJob::make_task(models::ModelConfig config, const text::Tokenizer& tokenizer,
                              const TaskSettings& settings) {
  RerankerOptions reranker;
  reranker.logit = read_logit_reranker(settings.model_directory, config, tokenizer);
  reranker.num_labels =
      reranker.logit ? labels_of_logits(arguments_) : labels_of(config, arguments_);
  reranker.loss = choose_loss(arguments_, reranker.num_labels);
  for (const NamedSource& set : train_sources(arguments_))
    reranker.set_losses.push_back(choose_loss(arguments_, reranker.num_labels, set.name));
  reranker.in_batch.seed = settings.seed;
  reranker.in_batch.num_negatives.reset();
  if (arguments_.num_negatives > 0)
    reranker.in_batch.num_negatives = static_cast<std::size_t>(arguments_.num_negatives);
  reranker.mini_batch_size = mini_batch_size(arguments_, reranker.loss.name);
  for (const LossOptions& loss : reranker.set_losses)
    reranker.mini_batch_size =
        std::max(reranker.mini_batch_size, mini_batch_size(arguments_, loss.name));
  reranker.prediction_file = kPredictions;
  if (arguments_.evaluator) reranker.evaluator = evaluator_named(*arguments_.evaluator);
  reranker.at_k = static_cast<std::size_t>(arguments_.at_k);
  reranker.evaluator_name = arguments_.evaluator_name;
  const auto files =
      models::read_cross_encoder_files(settings.model_directory, config, reranker.num_labels);
  notes_ = files.warnings;
  reranker.activation =
      arguments_.activation_fn ? activation_of(*arguments_.activation_fn) : files.activation;
  if (reranker.logit)
    check_losses_of_logits(reranker);
  else
    set_labels(config, reranker.num_labels);
  std::string note = reranker.logit ? "" : complete_padding_token(config, tokenizer);
  if (!note.empty()) notes_.push_back(std::move(note));
  config.source = models::with_cross_encoder_key(config.source, reranker.activation);
  max_tokens_ = std::min(config.max_tokens(), tokenizer.model_max_length());
  if (arguments_.max_seq_length)
    max_tokens_ = std::min(max_tokens_, static_cast<std::size_t>(*arguments_.max_seq_length));
  reranker.max_tokens = max_tokens_;
  return made(std::move(config), tokenizer, task_options(settings, arguments_.pad_to_max_length),
              std::move(reranker));
}

void RerankingJob::check_labels(const PairRows& pairs, const LossOptions& loss,
                                StartLog& log) const {
  const LossNeeds& needs = loss_needs(loss.name);
  if (const auto bad = find_bad_label(needs, pairs.labels, task_->reranker().num_labels)) {
    const std::size_t pair =
        pairs.labels_per_row == 0 ? bad->index : pairs.begins[bad->index / pairs.labels_per_row];
    raise<DataError>("{}: {}", pairs.location(pair), bad->problem);
  }
  if (!needs.orders_labels || pairs.labels.empty()) return;
  for (std::size_t i = 0; i + 1 < pairs.begins.size(); ++i) {
    const std::size_t count = pairs.begins[i + 1] - pairs.begins[i];
    if (has_order(std::span(pairs.labels).subspan(pairs.begins[i], count))) return;
  }
  log.warning(fmt::format("{}: the labels of every query are equal, so {} is 0", pairs.rows.file(),
                          needs.name));
}

PairRows RerankingJob::read(std::span<const std::filesystem::path> files, std::string_view part,
                            const LossOptions& loss, const std::optional<std::int64_t>& max_samples,
                            StartLog& log) const {
  PairRows pairs =
      read_pairs(files, row_form(loss), arguments_, max_samples, /*need_labels=*/part != "test");
  check_labels(pairs, loss, log);
  log_part(part, pairs, log);
  if (part == "validation" && loss_needs(loss.name).in_batch_negatives) {
    add_in_batch_negatives(task_->reranker().in_batch, task_->options().eval_batch_size, pairs);
  }
  return pairs;
}

// Parts follow each other: what the loss reads, then what the evaluator reads.
LabelledPairs RerankingJob::with_features(std::span<const PairRows> parts, std::string_view name,
                                          StartLog& log, FeatureMaker& maker) const {
  const JoinedPairs joined(parts);
  LabelledPairs labelled;
  labelled.labels = parts.front().labels;
  labelled.labels_per_sample = parts.front().labels_per_row;
  for (const PairRows& part : parts) {
    const std::uint32_t before = labelled.begins.back();
    for (std::size_t i = 1; i < part.begins.size(); ++i)
      labelled.begins.push_back(before + part.begins[i]);
  }
  labelled.loss_end = parts.front().begins.size() - 1;
  labelled.features = features_of(*task_, joined, maker);
  labelled.features.leave_out_end(models::ignored_end(task_->model().config()));
  if (const std::size_t cut = labelled.features.num_truncated(); cut > 0)
    log.fact(name, fmt::format("{} pairs were cut to {} tokens", cut, max_tokens_));
  maker.log_notes(name);
  return labelled;
}

text_classification::TextFeatures RerankingJob::with_texts(std::span<const PairRows> parts,
                                                           FeatureMaker& maker) const {
  std::vector<std::string_view> texts, passages;
  std::uint64_t bytes = 0;
  for (const PairRows& part : parts) {
    for (std::size_t i = 0; i + 1 < part.begins.size(); ++i)
      texts.push_back(part.queries[part.begins[i]]);
    passages.insert(passages.end(), part.passages.begin(), part.passages.end());
  }
  const std::size_t queries = texts.size();
  texts.insert(texts.end(), passages.begin(), passages.end());
  for (const std::string_view text : texts) bytes += text.size();
  return maker.cache().get<text_classification::TextFeatures>(
      bytes, [&] { return text_classification::features_key(texts, {}, kUncut); },
      [&] {
        return text_classification::build_text_features(
            task_->tokenizer(), texts, {}, kUncut, maker.threads(), [&](std::size_t i) {
              return i < queries ? fmt::format("query {}", i)
                                 : JoinedPairs(parts).location(i - queries);
            });
      });
}

bool RerankingJob::has_in_batch_negatives() const {
  const RerankerOptions& reranker = task_->reranker();
  const auto draws = [](const LossOptions& loss) {
    return loss_needs(loss.name).in_batch_negatives;
  };
  if (reranker.set_losses.empty()) return draws(reranker.loss);
  return std::any_of(reranker.set_losses.begin(), reranker.set_losses.end(), draws);
}

// The validation file, and what the evaluator reads of it or of --eval_file.
LabelledPairs RerankingJob::read_evaluation(const DataParts& parts, FeatureMaker& maker) const {
  const RerankerOptions& reranker = task_->reranker();
  const bool evaluates = reranker.evaluator != Evaluator::kNone;
  const std::vector<std::filesystem::path> eval_files =
      arguments_.eval_file ? std::vector<std::filesystem::path>{*arguments_.eval_file}
                           : parts.files.validation;
  std::vector<PairRows> read_parts;
  if (!evaluates || arguments_.validation_file != arguments_.eval_file)
    read_parts.push_back(read(parts.files.validation, "validation", reranker.loss,
                              arguments_.max_eval_samples, parts.log));
  const RowForm of_evaluator = row_form(reranker.evaluator), of_loss = row_form(reranker.loss);
  const bool same =
      !arguments_.eval_file && (of_evaluator == of_loss ||
                                (of_evaluator == RowForm::kSearches && of_loss == RowForm::kLists));
  if (evaluates && !same) {
    read_parts.push_back(
        read_pairs(eval_files, row_form(reranker.evaluator),
                   arguments_.eval_file ? in_order_of_file(arguments_) : arguments_,
                   arguments_.max_eval_samples, /*need_labels=*/true));
    log_part("evaluator", read_parts.back(), parts.log);
  }
  LabelledPairs labelled = with_features(read_parts, "validation", parts.log, maker);
  if (!evaluates) return labelled;
  labelled.evaluator_labels = read_parts.back().labels;
  labelled.base = read_parts.back().base;
  labelled.evaluator_begin = labelled.size() + 1 - read_parts.back().begins.size();
  if (!same && read_parts.size() == 1) labelled.loss_end = 0;
  return labelled;
}

Sampler RerankingJob::sampler(const PairRows& pairs, const LossOptions& loss) const {
  if (arguments_.batch_sampler == "batch_sampler") return {};
  BatchTexts texts = batch_texts(pairs, row_form(loss));
  return no_duplicates(std::move(texts.values), texts.columns, /*over_shards=*/false);
}

void RerankingJob::load_train(const DataParts& parts, FeatureMaker& maker) {
  const auto& most = arguments_.max_train_samples;
  const RerankerOptions& reranker = task_->reranker();
  if (reranker.set_losses.empty()) {
    const PairRows pairs = read(parts.files.train, "train", reranker.loss, most, parts.log);
    LabelledPairs labelled = with_features({&pairs, 1}, "train", parts.log, maker);
    if (has_in_batch_negatives()) {
      labelled.texts = with_texts({&pairs, 1}, maker);
      needs_other_rows_ = has_lone_passage(pairs);
    }
    task_->set_train(std::move(labelled), sampler(pairs, reranker.loss));
    return;
  }
  std::vector<PairRows> read_sets;
  std::vector<PairSet> sets;
  std::vector<SampledSet> sampled;
  std::vector<float> labels;
  std::size_t first_sample = 0;
  for (const auto& [name, files] : parts.files.train_sets) {
    const LossOptions& loss = reranker.set_losses[read_sets.size()];
    parts.log.fact("loss", fmt::format("{}: {}", name, loss.name));
    read_sets.push_back(read(files, fmt::format("train {}", name), loss, most, parts.log));
    const PairRows& pairs = read_sets.back();
    sets.push_back({first_sample, labels.size(), pairs.labels_per_row, !pairs.labels.empty()});
    sampled.push_back({pairs.begins.size() - 1, sampler(pairs, loss)});
    if (loss_needs(loss.name).in_batch_negatives && has_lone_passage(pairs))
      needs_other_rows_ = true;
    labels.insert(labels.end(), pairs.labels.begin(), pairs.labels.end());
    first_sample += sampled.back().rows;
  }
  LabelledPairs all = with_features(read_sets, "train", parts.log, maker);
  all.labels = std::move(labels);
  all.sets = std::move(sets);
  if (has_in_batch_negatives()) all.texts = with_texts(read_sets, maker);
  task_->set_train(
      std::move(all),
      several_sets(std::move(sampled), set_order_named(arguments_.multi_dataset_batch_sampler),
                   /*over_shards=*/false));
}

void RerankingJob::load_data(const DataParts& parts) {
  for (const std::string& note : notes_) parts.log.warning(note);
  parts.log.fact("loss", task_->reranker().loss.name);
  FeatureMaker maker(parts, arguments_.preprocessing_num_workers, arguments_.overwrite_cache);
  if (parts.stages.train) load_train(parts, maker);
  if (parts.stages.eval) task_->add_evaluation(Split::kEval, read_evaluation(parts, maker));
  if (parts.stages.predict) {
    const PairRows pairs = read(parts.files.test, "test", task_->reranker().loss,
                                arguments_.max_predict_samples, parts.log);
    task_->add_evaluation(Split::kPredict, with_features({&pairs, 1}, "test", parts.log, maker));
  }
}

void RerankingJob::describe_training(const TrainingShape& shape, StartLog& log) const {
  const RerankerOptions& reranker = task_->reranker();
  if (!has_in_batch_negatives()) return;
  const std::size_t negatives =
      most_in_batch_negatives(reranker.in_batch, shape.batch_size, /*passages=*/1);
  log.fact("negatives", fmt::format("{} of the other rows for each query", negatives));
  if (shape.batch_size > 1 || !needs_other_rows_) return;
  raise<ConfigError>(
      "--loss {}: found a batch of one row, expected at least 2, because passages of the other "
      "rows are the negatives; raise --per_device_train_batch_size",
      reranker.loss.name);
}

std::size_t RerankingJob::result_bytes(const Stages& stages) const {
  std::size_t pairs = 0;
  if (stages.eval) pairs = task_->num_features(Split::kEval);
  if (stages.predict) pairs = std::max(pairs, task_->num_features(Split::kPredict));
  return pairs * (64 + task_->reranker().num_labels * 2 * sizeof(float));
}

std::vector<std::string> RerankingJob::result_files(Split split) const {
  return split == Split::kPredict ? std::vector<std::string>{kPredictions}
                                  : std::vector<std::string>{};
}

std::string RerankingJob::main_metric() const { return leading_metrics().metrics.front().key; }

CardTask RerankingJob::card_task() const { return {"Text Ranking", "text-ranking", {}}; }

LeadingMetrics RerankingJob::leading_metrics() const {
  const RerankerOptions& reranker = task_->reranker();
  LeadingMetrics leading{
      .metrics = evaluator_leading_metrics(reranker.evaluator, reranker.num_labels, reranker.at_k,
                                           reranker.evaluator_name),
      .training_loss = "loss"};
  leading.metrics.push_back(evaluation_loss_metric());
  return leading;
}

std::optional<TryCommand> RerankingJob::try_command() const {
  if (task_->reranker().num_labels > 1) {
    return TryCommand{.subcommand = "predict",
                      .words = {"Where does Ada live?", "--text_pair", "Ada lives in London."}};
  }
  return TryCommand{
      .subcommand = "rerank", .words = {"Where does Ada live?"}, .input = "Ada lives in London."};
}

}  // namespace tandem::tasks::reranking
