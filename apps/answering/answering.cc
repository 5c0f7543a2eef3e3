#include "apps/answering/answering.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <numeric>

#include "apps/download_progress.h"
#include "tandem/core/error.h"
#include "tandem/data/question_example.h"
#include "tandem/quant/load_model.h"
#include "tandem/tasks/question_answering/features.h"

namespace tandem::apps {
namespace {

using question_answering::Candidate;
using question_answering::FeatureSet;
using question_answering::Padding;
using question_answering::Prediction;

constexpr std::size_t kBatchSize = 8;    // windows computed together
constexpr std::size_t kCandidates = 20;  // run_qa's --n_best_size

int thread_count(const Environment& environment) {
  const long asked = environment.get_int("OMP_NUM_THREADS", 0, 4096).value_or(0);
  return asked > 0 ? static_cast<int>(asked) : available_cores();
}

data::QuestionSet question_set(std::string_view context, std::string_view question) {
  data::QuestionSet::Builder builder;
  builder.add(
      {.id = "question", .title = "", .context = context, .question = question, .answers = {}});
  return builder.finish();
}

nn::PackedBatch batch_of(const FeatureSet& features, std::size_t begin, std::size_t end) {
  std::vector<std::uint32_t> indices(end - begin);
  std::iota(indices.begin(), indices.end(), static_cast<std::uint32_t>(begin));
  question_answering::BatchRows rows;
  question_answering::fill_batch(features, indices, Padding::kNone, rows);
  nn::PackedBatch batch;
  batch.input_ids = std::move(rows.input_ids);
  batch.token_type_ids = std::move(rows.token_type_ids);
  batch.position_ids = std::move(rows.position_ids);
  batch.row_begin = std::move(rows.row_begin);
  batch.key_count = std::move(rows.key_count);
  batch.sample.assign(indices.begin(), indices.end());
  return batch;
}

std::size_t count_code_points(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

Answer to_answer(const Candidate& candidate, std::string_view context) {
  Answer answer{.text = "", .probability = candidate.probability, .span = std::nullopt};
  if (candidate.placeholder || candidate.text.empty()) return answer;
  answer.text = candidate.text;
  const auto offset = static_cast<std::size_t>(candidate.text.data() - context.data());
  const std::size_t start = count_code_points(context.substr(0, offset));
  answer.span = AnswerSpan{.start = start, .end = start + count_code_points(candidate.text)};
  return answer;
}

// The chosen answer first, the others by their score.
std::vector<Candidate> ranked(const Prediction& prediction, std::size_t count) {
  std::vector<Candidate> candidates = prediction.n_best;
  const auto chosen =
      std::find_if(candidates.begin(), candidates.end(),
                   [&](const Candidate& candidate) { return candidate.text == prediction.text; });
  if (chosen != candidates.end()) std::rotate(candidates.begin(), chosen, chosen + 1);
  if (candidates.size() > count) candidates.resize(count);
  return candidates;
}

hub::ModelLocation locate(const hub::ModelArguments& arguments, const Environment& environment) {
  DownloadProgress downloads;
  return hub::resolve_model(arguments, environment, &downloads);
}

}  // namespace

Reader::Reader(const hub::ModelArguments& arguments, const Environment& environment)
    : threads_(thread_count(environment)),
      kernels_(kernels::select_kernels(kernels::CpuFeatures::detect(),
                                       environment.get("TANDEM_KERNELS").value_or(""),
                                       kernels::Precision::kFloat32)),
      scratch_(threads_.num_threads()),
      location_(locate(arguments, environment)),
      tokenizer_(text::Tokenizer::load(location_.tokenizer_directory)),
      task_(models::ModelConfig::load(location_.config_directory), tokenizer_, {}),
      weights_(task_.layout().size() * sizeof(float)) {
  quant::LoadedModel loaded =
      quant::load_model(location_.model.directory, task_.model().config(), task_.layout(),
                        {threads_, kernels_, scratch_}, weights_.as<float>(), /*seed=*/42);
  int8_ = std::move(loaded.int8);
  const models::LoadReport& report = loaded.report;
  if (!report.newly_initialized.empty()) {
    warning_ = fmt::format(
        "{} has no {}: the model was not trained for question answering, answers are random",
        report.file.string(), report.newly_initialized.front());
  }
}

std::vector<float> Reader::logits_of(const FeatureSet& features) {
  const models::QuestionAnsweringModel& model = task_.model();
  models::Activations activations = model.make_activations(
      {.rows = question_answering::max_batch_rows(features, Padding::kNone, kBatchSize),
       .sequences = kBatchSize},
      nn::Precision::kFloat32, models::PassKind::kInference);
  std::vector<float> logits;
  for (std::size_t begin = 0; begin < features.size(); begin += kBatchSize) {
    const nn::PackedBatch batch =
        batch_of(features, begin, std::min(begin + kBatchSize, features.size()));
    const std::size_t size = batch.rows() * models::QuestionAnsweringModel::kNumLabels;
    logits.resize(logits.size() + size);
    model.forward({threads_, kernels_, scratch_},
                  {weights_.as<float>(), {}, int8_ ? &*int8_ : nullptr}, batch, {}, activations,
                  std::span(logits).last(size));
  }
  return logits;
}

std::vector<Answer> Reader::answer(std::string_view context, std::string_view question,
                                   const AnswerOptions& options) {
  require_text(question, "the question");
  require_text(context, "the context");
  const data::QuestionSet questions = question_set(context, question);
  question_answering::FeatureOptions feature_options;
  feature_options.max_seq_length = options.max_seq_length;
  feature_options.doc_stride = options.doc_stride;
  if (options.max_seq_length >
      max_positions()) {  // a small model: half a window of overlap at most, as in HF's pipeline
    feature_options.max_seq_length = max_positions();
    feature_options.doc_stride = std::min(options.doc_stride, max_positions() / 2);
  }
  feature_options.labels = false;
  const FeatureSet features = question_answering::build_features(tokenizer_, questions.examples(),
                                                                 feature_options, threads_);
  const std::vector<float> logits = logits_of(features);
  std::vector<float> start, end;
  for (std::size_t i = 0; i < logits.size(); i += 2) {
    start.push_back(logits[i]);
    end.push_back(logits[i + 1]);
  }
  std::vector<std::size_t> row_begin{0};
  for (std::size_t i = 0; i < features.size(); ++i)
    row_begin.push_back(row_begin.back() + features.num_real_tokens(i));
  question_answering::PostprocessOptions postprocess = options.postprocess;
  postprocess.n_best_size = std::max(kCandidates, options.n_best);
  const auto found = question_answering::postprocess(
      questions.examples(), features, {start, end, row_begin}, postprocess, threads_);
  std::vector<Answer> answers;
  for (const Candidate& candidate : ranked(found.predictions.front(), options.n_best))
    answers.push_back(to_answer(candidate, questions[0].context));
  return answers;
}

void require_text(std::string_view text, std::string_view what) {
  if (text.find_first_not_of(" \t\r\n\f\v") == std::string_view::npos)
    raise<DataError>("{} is empty; expected a text", what);
}

void add_answer_flags(CLI::App& app, hub::ModelArguments& model, AnswerOptions& options) {
  app.add_option("--model,--model_name_or_path", model.model_name_or_path,
                 "model directory, or a name in the Hugging Face cache or on the Hub")
      ->required();
  app.add_option("--model_revision", model.model_revision, "branch, tag or commit id of the model");
  app.add_option("--cache_dir", model.cache_dir, "root of the Hugging Face cache");
  app.add_flag("--version_2_with_negative", options.postprocess.version_2_with_negative,
               "the text may not hold an answer");
  app.add_option("--null_score_diff_threshold", options.postprocess.null_score_diff_threshold,
                 "how much better \"no answer\" must score to win");
  app.add_option("--max_answer_length", options.postprocess.max_answer_length,
                 "longest answer in tokens")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--max_seq_length", options.max_seq_length, "tokens the model reads at once")
      ->check(CLI::Range(4, 1 << 20));
  app.add_option("--doc_stride", options.doc_stride,
                 "tokens that neighbouring windows of a long text share");
}

}  // namespace tandem::apps
