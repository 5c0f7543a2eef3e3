#include "tandem/tasks/embedding/embedding_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tandem/core/error.h"
#include "tandem/tasks/embedding/group_by_label.h"
#include "tandem/tasks/no_duplicates.h"
#include "tandem/tasks/several_sets.h"

namespace tandem::tasks::embedding {

namespace {

std::string names(const std::vector<const formats::Column*>& columns) {
  std::vector<std::string_view> all;
  all.reserve(columns.size());
  for (const formats::Column* column : columns) all.push_back(column->name);
  return fmt::format("{}", fmt::join(all, ", "));
}

std::vector<std::string_view> column_names(const RowColumns& part) {
  std::vector<std::string_view> all;
  for (const formats::Column* column : part.texts) all.push_back(column->name);
  return all;
}

// Throws ConfigError for a prompt that leaves no room for a text.
void check_prompt(const EmbeddingTask& task, const std::string& prompt, std::size_t max_tokens) {
  if (prompt.empty()) return;
  text::Encoding encoding;
  task.tokenizer().encode(prompt, encoding);
  const std::size_t tokens =
      encoding.ids.size() + task.tokenizer().text_template().special_tokens_of_one();
  if (tokens < max_tokens) return;
  raise<ConfigError>(
      "--prompts: '{}' has {} tokens with the special ones, expected fewer than the {} of "
      "--max_seq_length; shorten it",
      prompt, tokens, max_tokens);
}

std::string pooling_text(const models::SentenceFiles& files) {
  std::vector<std::string_view> all;
  for (const models::Pooling pooling : files.poolings) {
    for (const models::PoolingName& known : models::pooling_names())
      if (known.pooling == pooling) all.push_back(known.name);
  }
  return fmt::format("{}", fmt::join(all, ", "));
}

}  // namespace

std::optional<RowColumns> EmbeddingJob::read(std::span<const std::filesystem::path> files,
                                             const std::optional<std::int64_t>& most,
                                             std::string_view name, StartLog& log) const {
  RowColumns rows = read_columns(
      files, {.texts = arguments_.train_columns ? comma_list(*arguments_.train_columns)
                                                : std::vector<std::string>(),
              .label = arguments_.label_column,
              .most = most ? std::optional(static_cast<std::size_t>(*most)) : std::nullopt});
  if (!rows.left_out.empty()) {
    log.warning(fmt::format("{}: the columns {} are not read as texts and are left out", name,
                            fmt::join(rows.left_out, ", ")));
  }
  for (const std::string& warning : rows.warnings) log.warning(warning);
  return rows;
}

void EmbeddingJob::read_searches(StartLog& log) {
  if (arguments_.eval_corpus) {
    searches_.push_back(
        {"", ranking::read_retrieval_set(
                 {*arguments_.eval_corpus, *arguments_.eval_queries, *arguments_.eval_qrels})});
  }
  if (arguments_.nano_beir) {
    for (const auto& [name, files] : nano_beir_files(arguments_))
      searches_.push_back({name, ranking::read_retrieval_set(files)});
  }
  for (const auto& [name, set] : searches_) {
    log.fact("search", fmt::format("{}{} queries, {} documents", name.empty() ? "" : name + ": ",
                                   set.queries.texts.size(), set.corpus.texts.size()));
    for (const std::string& note : set.notes) log.warning(note);
  }
}

bool EmbeddingJob::has_search(bool nano) const {
  return std::any_of(searches_.begin(), searches_.end(),
                     [&](const NamedSearch& one) { return one.name.empty() != nano; });
}

void EmbeddingJob::read_train(const hub::DatasetFiles& files, StartLog& log) {
  std::vector<hub::NamedFiles> sets = files.train_sets;
  if (sets.empty()) sets.push_back({"", files.train});
  for (const auto& [name, shards] : sets) {
    RowColumns rows = *read(shards, arguments_.max_train_samples,
                            name.empty() ? "train" : fmt::format("train {}", name), log);
    LossOptions loss = choose_loss(rows, name, log);
    check_loss(rows, loss);
    train_.push_back({name, std::move(rows), std::move(loss)});
  }
}

void EmbeddingJob::read_examples(const Stages& stages, const hub::DatasetFiles& files,
                                 StartLog& log) {
  if (stages.train) read_train(files, log);
  if (train_.size() == 1) loss_ = train_.front().loss;
  if (stages.eval) read_searches(log);
  if (stages_with_rows(stages, arguments_).eval)
    eval_ = read(files.validation, arguments_.max_eval_samples, "validation", log);
  if (stages.predict) predict_ = read(files.test, arguments_.max_predict_samples, "test", log);
  for (const auto* part : {&eval_, &predict_}) {
    if (!*part) continue;
    if (!loss_) loss_ = choose_loss(**part, "", log);
    check_loss(**part, *loss_);
  }
}

// Whether the loss can learn from the rows of a part.
void EmbeddingJob::check_loss(const RowColumns& part, const LossOptions& loss) {
  const LossNeeds& needs = loss_needs(loss.name);
  const std::size_t labels = part.labels_per_row;
  check_data(needs, part.texts.size(), labels);
  if (const auto bad = find_bad_label(needs, part.labels, labels)) {
    raise<DataError>("{}: column \"{}\": {}", part.location(bad->row), part.label, bad->problem);
  }
  if (loss.num_labels == 0 || !needs.has_parameters) return;
  for (std::size_t row = 0; row < part.labels.size(); ++row) {
    if (part.labels[row] < static_cast<float>(loss.num_labels)) continue;
    raise<DataError>(
        "{}: column \"{}\": found the label {}, expected a class from 0 to {} for --num_labels {}; "
        "raise it or change the labels",
        part.location(row), part.label, part.labels[row], loss.num_labels - 1, loss.num_labels);
  }
}

std::vector<LossParameter> EmbeddingJob::loss_parameters(std::size_t width) {
  std::vector<LossOptions*> found;
  const auto add = [&](LossOptions& loss) {
    if (loss_needs(loss.name).has_parameters) found.push_back(&loss);
  };
  for (TrainPart& part : train_) add(part.loss);
  if (found.size() > 1) {
    raise<ConfigError>(
        "--loss: found {} data sets with {}, expected one of them at most; join their files",
        found.size(), found.front()->name);
  }
  add(*loss_);
  if (found.empty()) return {};
  if (arguments_.gather_across_devices) {
    raise<ConfigError>(
        "--gather_across_devices: found --loss {}, which compares no rows; leave the flag out",
        found.front()->name);
  }
  const auto count = [&](const RowColumns& part) {
    for (LossOptions* const loss : found)
      for (const float label : part.labels)
        loss->num_labels = std::max(loss->num_labels, static_cast<std::size_t>(label) + 1);
  };
  for (const TrainPart& part : train_)
    if (loss_needs(part.loss.name).has_parameters) count(part.rows);
  for (const auto* part : {&eval_, &predict_})
    if (*part && loss_needs(loss_->name).has_parameters) count(**part);
  return make_loss(*found.front())->parameters(width);
}

// Whether teachers of MSELoss have the size of the model's embeddings.
void EmbeddingJob::check_teachers(std::size_t width) const {
  const auto check = [&](const RowColumns& part, const LossOptions& loss) {
    if (loss_needs(loss.name).labels == LabelKind::kEmbedding)
      check_teacher(part.texts.size(), width, part.labels_per_row);
  };
  for (const TrainPart& part : train_) check(part.rows, part.loss);
  for (const auto* part : {&eval_, &predict_})
    if (*part) check(**part, *loss_);
}

std::unique_ptr<GuideModel> EmbeddingJob::make_guide() const {
  bool needed = loss_needs(loss_->name).guided;
  for (const TrainPart& part : train_) needed = needed || loss_needs(part.loss.name).guided;
  if (!needed) return nullptr;
  if (!guide_) {
    raise<ConfigError>(
        "--loss GISTEmbedLoss: found no --guide, expected the directory or the name of a "
        "bi-encoder");
  }
  return std::make_unique<GuideModel>(guide_->model.directory, guide_->tokenizer_directory);
}

LossOptions EmbeddingJob::choose_loss(const RowColumns& part, const std::string& set,
                                      StartLog& log) const {
  LossOptions loss = loss_options(arguments_, part.label_kind(), set);
  const std::string before = set.empty() ? "" : set + ": ";
  log.fact("columns",
           before + names(part.texts) +
               (part.has_labels() ? fmt::format("; label: {}", part.label) : std::string()));
  log.fact("loss", fmt::format("{}{}{}", before, loss.name,
                               arguments_.loss ? "" : ", chosen by the columns"));
  return loss;
}

std::vector<Evaluator> EmbeddingJob::choose_evaluators() const {
  std::vector<Evaluator> chosen;
  const std::size_t columns = eval_ ? eval_->texts.size() : 0;
  const LabelKind labels = eval_ ? eval_->label_kind() : LabelKind::kNone;
  if (arguments_.evaluator) {
    for (const std::string& name : comma_list(*arguments_.evaluator)) {
      chosen.push_back(evaluator_named(name));
      if (chosen.back() == Evaluator::kRetrieval && !arguments_.eval_corpus) {
        raise<ConfigError>(
            "--evaluator information_retrieval: found no --eval_corpus, expected it with "
            "--eval_queries and --eval_qrels");
      }
      if (chosen.back() == Evaluator::kNanoBeir && !arguments_.nano_beir)
        raise<ConfigError>("--evaluator nano_beir: found no --nano_beir, expected its directory");
      if (!eval_ && !searches(chosen.back()))
        raise<ConfigError>("--evaluator {}: found no validation rows, expected --validation_file",
                           name);
      if (eval_) check_rows(chosen.back(), columns, labels);
    }
    return chosen;
  }
  if (const auto of_rows = default_evaluator(columns, labels)) chosen.push_back(*of_rows);
  if (has_search(/*nano=*/false)) chosen.push_back(Evaluator::kRetrieval);
  if (has_search(/*nano=*/true)) chosen.push_back(Evaluator::kNanoBeir);
  return chosen;
}

Task& EmbeddingJob::make_task(models::ModelConfig config, const text::Tokenizer& tokenizer,
                              const TaskSettings& settings) {
  if (!loss_) loss_ = loss_options(arguments_, LabelKind::kNone);
  EmbeddingOptions options;
  options.files = sentence_files(arguments_, settings.model_directory, config);
  options.pooler = models::read_pooler(settings.model_directory);
  const std::size_t width = models::embedding_size(options.files, config.hidden_size);
  options.loss_parameters = loss_parameters(width);
  options.loss = make_loss(*loss_);
  options.guide = make_guide();
  check_width(*loss_, width);
  for (const TrainPart& part : train_) check_width(part.loss, width);
  check_teachers(width);
  options.gather = arguments_.gather_across_devices;
  for (const TrainPart& part : train_)
    options.mini_batch_size =
        std::max(options.mini_batch_size, mini_batch_size(arguments_, part.loss.name));
  max_tokens_ = std::min({config.max_tokens(), tokenizer.model_max_length(),
                          options.files.max_seq_length.value_or(config.max_tokens())});
  if (arguments_.max_seq_length)
    max_tokens_ = std::min(max_tokens_, static_cast<std::size_t>(*arguments_.max_seq_length));
  options.files.max_seq_length = max_tokens_;
  options.evaluators = {
      .evaluators = choose_evaluators(),
      .similarity = options.files.similarity,
      .name = arguments_.evaluator_name,
      .truncate_dim = static_cast<std::size_t>(arguments_.truncate_dim.value_or(0))};
  return made(std::move(config), tokenizer, task_options(settings, std::nullopt),
              std::move(options));
}

// The texts of searches with the prompts that sentence-transformers' encode_query() and
// encode_document() put in front.
void EmbeddingJob::add_searches(std::span<const NamedSearch> searches, PromptedTexts& texts) const {
  if (searches.empty()) return;
  const models::SentenceFiles& files = task_->files();
  const std::string of_queries = arguments_.query_prompt.value_or(files.query_prompt());
  const std::string of_corpus = arguments_.corpus_prompt.value_or(files.document_prompt());
  for (const std::string& prompt : {of_queries, of_corpus})
    check_prompt(*task_, prompt, max_tokens_);
  for (const NamedSearch& search : searches) {
    for (const std::string& text : search.set.queries.texts) texts.add(of_queries, text);
    for (const std::string& text : search.set.corpus.texts) texts.add(of_corpus, text);
  }
}

// The texts of a part with their prompts, column after column.
void EmbeddingJob::add_rows(const RowColumns& part, const std::string& set,
                            PromptedTexts& texts) const {
  const std::vector<std::string> prompts = prompts_of(arguments_, set, column_names(part));
  for (const std::string& prompt : prompts) check_prompt(*task_, prompt, max_tokens_);
  for (std::size_t column = 0; column < prompts.size(); ++column) {
    for (std::size_t row = 0; row < part.count; ++row)
      texts.add(prompts[column], part.texts[column]->texts[row]);
  }
}

text_classification::TextFeatures EmbeddingJob::features_of(
    const PromptedTexts& prompted, FeatureMaker& maker,
    FunctionRef<std::string(std::size_t)> location) const {
  const std::span<const std::string_view> texts = prompted.views();
  std::uint64_t bytes = 0;
  for (const std::string_view text : texts) bytes += text.size();
  auto features = maker.cache().get<text_classification::TextFeatures>(
      bytes,
      [&] {
        return text_classification::features_key(texts, {}, max_tokens_) +
               (task_->files().do_lower_case ? "do_lower_case: true\n" : "");
      },
      [&] {
        return text_classification::build_text_features(task_->tokenizer(), texts, {}, max_tokens_,
                                                        maker.threads(), location);
      });
  if (!task_->files().include_prompt) prompted.leave_out_prompts(task_->tokenizer(), features);
  return features;
}

TokenizedRows EmbeddingJob::tokenize(const std::optional<RowColumns>& part,
                                     std::span<const NamedSearch> searches, std::string_view name,
                                     StartLog& log, FeatureMaker& maker) const {
  PromptedTexts texts;
  TokenizedRows rows;
  if (part) {
    add_rows(*part, std::string(name), texts);
    rows.rows = part->count;
    rows.columns = part->texts.size();
    rows.labels = part->labels;
    rows.labels_per_row = part->labels_per_row;
  }
  if (part && loss_needs(loss_->name).guided) {
    rows.guide_texts = task_->guide()->features(
        texts, maker.threads(), [&](std::size_t i) { return part->location(i % rows.rows); });
  }
  add_searches(searches, texts);
  rows.texts = features_of(texts, maker, [&](std::size_t i) {
    return part && i < rows.rows * rows.columns ? part->location(i % rows.rows)
                                                : fmt::format("text {} of the search", i);
  });
  maker.log_notes(name);
  if (part) {
    log.fact(name, fmt::format("{}: {} rows of {} texts of up to {} tokens", part->rows.file(),
                               part->count, rows.columns, rows.texts.max_seq_length()));
  }
  return rows;
}

void EmbeddingJob::load_train(StartLog& log, FeatureMaker& maker) {
  PromptedTexts texts;
  TrainingRows all;
  std::vector<std::size_t> ends;
  bool any_guided = false;
  for (const TrainPart& part : train_) {
    add_rows(part.rows, part.name, texts);
    ends.push_back(texts.size());
    const bool guided = loss_needs(part.loss.name).guided;
    any_guided = any_guided || guided;
    const std::size_t columns = part.rows.texts.size();
    all.sets.push_back(
        {.rows = part.rows.count,
         .columns = columns,
         .labels = guided ? std::vector<float>() : part.rows.labels,
         .labels_per_row = guided ? columns * task_->guide()->width() : part.rows.labels_per_row,
         .loss = make_loss(part.loss),
         .guided = guided});
  }
  const auto location = [&](std::size_t i) {
    const auto set =
        static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), i) - ends.begin());
    const RowColumns& rows = train_[set].rows;
    return rows.location((i - (set == 0 ? 0 : ends[set - 1])) % rows.count);
  };
  all.texts = features_of(texts, maker, location);
  if (any_guided) all.guide_texts = task_->guide()->features(texts, maker.threads(), location);
  maker.log_notes("train");
  for (const TrainPart& part : train_) {
    log.fact("train",
             fmt::format("{}{}{}: {} rows of {} texts of up to {} tokens", part.name,
                         part.name.empty() ? "" : ": ", part.rows.rows.file(), part.rows.count,
                         part.rows.texts.size(), all.texts.max_seq_length()));
  }
  task_->set_train(std::move(all), train_sampler());
}

std::span<const float> EmbeddingJob::classes(const RowColumns& part) {
  if (part.labels_per_row == 1) return part.labels;
  raise<ConfigError>(
      "--batch_sampler group_by_label: found {} labels a row, expected one; name the column with "
      "--label_column or use another --batch_sampler",
      part.labels_per_row);
}

Sampler EmbeddingJob::sampler(const RowColumns& part, bool over_shards) const {
  if (arguments_.batch_sampler == "group_by_label")
    return group_by_label(classes(part), over_shards);
  if (arguments_.batch_sampler == "batch_sampler") return {};
  TextNumbers numbers;
  std::vector<std::uint32_t> values;
  for (const formats::Column* column : part.texts)
    for (std::size_t row = 0; row < part.count; ++row)
      values.push_back(numbers.of(column->texts[row]));
  return no_duplicates(std::move(values), part.texts.size(), over_shards);
}

Sampler EmbeddingJob::train_sampler() const {
  const bool over_shards = arguments_.gather_across_devices;
  if (train_.size() == 1) return sampler(train_.front().rows, over_shards);
  std::vector<SampledSet> sets;
  for (const TrainPart& part : train_)
    sets.push_back({part.rows.count, sampler(part.rows, /*over_shards=*/false)});
  return several_sets(std::move(sets), set_order_named(arguments_.multi_dataset_batch_sampler),
                      over_shards);
}

void EmbeddingJob::load_data(const DataParts& parts) {
  parts.log.fact("pooling", pooling_text(task_->files()));
  FeatureMaker maker(parts, arguments_.preprocessing_num_workers, arguments_.overwrite_cache);
  if (!train_.empty()) load_train(parts.log, maker);
  if (eval_ || !searches_.empty()) {
    TokenizedRows rows = tokenize(eval_, searches_, "validation", parts.log, maker);
    task_->set_evaluation(Split::kEval, std::move(rows), std::move(searches_));
  }
  if (predict_)
    task_->set_evaluation(Split::kPredict, tokenize(predict_, {}, "test", parts.log, maker));
  for (TrainPart& part : train_) part.rows = {};
  eval_.reset();
  predict_.reset();
}

void EmbeddingJob::describe_training(const TrainingShape& shape, StartLog& log) const {
  if (arguments_.batch_sampler == "group_by_label") check_batch_of_labels(shape.batch_size);
  for (std::size_t set = 0; set < train_.size(); ++set) {
    const RowSet& rows = task_->train_sets()[set];
    const LossNeeds& needs = loss_needs(train_[set].loss.name);
    check_group(needs, shape.batch_size * (arguments_.gather_across_devices ? shape.shards : 1),
                rows.columns);
    if (needs.in_batch_negatives) describe_negatives(rows, train_[set].name, shape, log);
  }
}

void EmbeddingJob::describe_negatives(const RowSet& set, const std::string& name,
                                      const TrainingShape& shape, StartLog& log) const {
  const auto negatives = [&](std::size_t rows) { return rows * (set.columns - 1) - 1; };
  const std::size_t own = negatives(shape.batch_size);
  const std::size_t all = negatives(shape.batch_size * shape.shards);
  const bool gathered = arguments_.gather_across_devices;
  log.fact("negatives", fmt::format("{}{}{} for each anchor", name, name.empty() ? "" : ": ",
                                    gathered ? all : own));
  if (gathered || shape.shards == 1) return;
  log.warning(fmt::format(
      "each anchor is compared with the {} negatives of its device; --gather_across_devices "
      "compares it with the {} of all {} devices",
      own, all, shape.shards));
}

CardTask EmbeddingJob::card_task() const {
  return {"Sentence Similarity", "sentence-similarity", {}};
}

LeadingMetrics EmbeddingJob::leading_metrics() const {
  LeadingMetrics leading{.metrics = {}, .training_loss = train_.size() > 1 ? "loss" : loss_->name};
  const EvaluatorOptions& options = task_->evaluators();
  for (const Evaluator evaluator : options.evaluators)
    leading.metrics.push_back(primary_metric(evaluator, options));
  leading.metrics.push_back(evaluation_loss_metric());
  return leading;
}

std::optional<TryCommand> EmbeddingJob::try_command() const {
  return TryCommand{.subcommand = "embed", .words = {}, .input = "Ada lives in London."};
}

}  // namespace tandem::tasks::embedding
