// `tandem ask --model DIR --context FILE "question"`: the answer that a trained model finds in a text, with its probability.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/download_progress.h"
#include "apps/line_output.h"
#include "tandem/core/buffer.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/python_json.h"
#include "tandem/data/question_example.h"
#include "tandem/hub/model_files.h"
#include "tandem/kernels/kernel_set.h"
#include "tandem/models/pretrained.h"
#include "tandem/tasks/question_answering/features.h"
#include "tandem/tasks/question_answering/postprocess.h"
#include "tandem/tasks/question_answering/question_answering_task.h"
#include "tandem/text/tokenizer.h"

namespace tandem::apps {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using question_answering::Candidate;
using question_answering::FeatureSet;
using question_answering::Padding;
using question_answering::Prediction;

constexpr std::size_t kBatchSize = 8;    // windows computed together
constexpr std::size_t kCandidates = 20;  // run_qa's --n_best_size

struct Options {
  hub::ModelArguments model;
  std::string context = "-";
  std::vector<std::string> question;
  bool json = false;
  std::size_t n_best = 1;
  std::size_t max_seq_length = 384;
  std::size_t doc_stride = 128;
  question_answering::PostprocessOptions postprocess;
};

bool parse_options(const std::vector<std::string>& words, Options& options) {
  CLI::App app(
      "Answers a question from a text with a model that was trained for question answering.",
      "tandem ask");
  app.add_option("--model,--model_name_or_path", options.model.model_name_or_path,
                 "model directory, or a name in the Hugging Face cache or on the Hub")
      ->required();
  app.add_option("--model_revision", options.model.model_revision,
                 "branch, tag or commit id of the model");
  app.add_option("--cache_dir", options.model.cache_dir, "root of the Hugging Face cache");
  app.add_option("--context", options.context, "file with the text; -: standard input")->required();
  app.add_option("question", options.question, "the question")->required();
  app.add_flag("--json", options.json,
               "print a JSON object with answer, probability, and position in code points");
  app.add_option("--n_best", options.n_best, "how many answers to print")
      ->check(CLI::Range(1, 1000));
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
  if (!parse_command(app, words)) return false;
  options.postprocess.n_best_size = std::max(kCandidates, options.n_best);
  return true;
}

std::string read_context(const std::string& file) {
  std::string text =
      file == "-" ? std::string(std::istreambuf_iterator<char>(std::cin), {}) : read_file(file);
  if (text.find_first_not_of(" \t\r\n\f\v") == std::string::npos) {
    raise<DataError>("the context {} is empty; expected a text to find the answer in",
                     file == "-" ? "on standard input" : file);
  }
  return text;
}

// A context and a question as a data set of one.
data::QuestionSet question_set(std::string_view context, std::string_view question) {
  data::QuestionSet::Builder builder;
  builder.add(
      {.id = "question", .title = "", .context = context, .question = question, .answers = {}});
  return builder.finish();
}

// A model in memory, ready for inference.
class Reader {
 public:
  Reader(const hub::ModelArguments& arguments, const Environment& environment)
      : threads_(static_cast<int>(environment.get_int("OMP_NUM_THREADS", 0, 4096).value_or(0) > 0
                                      ? *environment.get_int("OMP_NUM_THREADS", 0, 4096)
                                      : available_cores())),
        kernels_(kernels::select_kernels(kernels::CpuFeatures::detect(),
                                         environment.get("TANDEM_KERNELS").value_or(""))),
        scratch_(threads_.num_threads()),
        location_(hub::resolve_model(arguments, environment, &downloads_)),
        tokenizer_(text::Tokenizer::load(location_.tokenizer_directory)),
        task_(models::ModelConfig::load(location_.config_directory), tokenizer_, {}),
        weights_(task_.layout().size() * sizeof(float)) {
    const models::LoadReport report =
        models::load_pretrained(location_.model.directory, task_.model().config(), task_.layout(),
                                weights_.as<float>(), /*seed=*/42);
    if (!report.newly_initialized.empty()) {
      fmt::print(stderr,
                 "tandem: warning: {} has no {}: the model was not trained for question answering, "
                 "answers are random\n",
                 report.file.string(), report.newly_initialized.front());
    }
  }

  const text::Tokenizer& tokenizer() const { return tokenizer_; }
  ThreadPool& threads() { return threads_; }

  // Logits [rows, 2] of all features, one after another, without padding.
  std::vector<float> logits_of(const FeatureSet& features) {
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
      model.forward({threads_, kernels_, scratch_}, {weights_.as<float>(), {}}, batch, {},
                    activations, std::span(logits).last(size));
    }
    return logits;
  }

 private:
  static nn::PackedBatch batch_of(const FeatureSet& features, std::size_t begin, std::size_t end) {
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

  ThreadPool threads_;
  kernels::KernelSet kernels_;
  kernels::Scratch scratch_;
  DownloadProgress downloads_;
  hub::ModelLocation location_;
  text::Tokenizer tokenizer_;
  question_answering::QuestionAnsweringTask task_;
  Buffer weights_;
};

std::size_t count_code_points(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

// One answer; start and end are code points of the context, null when the answer is "none".
ordered_json answer_json(const Candidate& candidate, std::string_view context) {
  ordered_json answer;
  const bool none = candidate.placeholder || candidate.text.empty();
  answer["answer"] = none ? ordered_json("") : ordered_json(std::string(candidate.text));
  answer["probability"] = candidate.probability;
  answer["start"] = nullptr;
  answer["end"] = nullptr;
  if (none) return answer;
  const auto offset = static_cast<std::size_t>(candidate.text.data() - context.data());
  const std::size_t start = count_code_points(context.substr(0, offset));
  answer["start"] = start;
  answer["end"] = start + count_code_points(candidate.text);
  return answer;
}

// The candidates to show: the chosen answer first, the others by their score.
std::vector<Candidate> ranked(const Prediction& prediction, std::size_t count) {
  std::vector<Candidate> candidates = prediction.n_best;
  const auto chosen =
      std::find_if(candidates.begin(), candidates.end(),
                   [&](const Candidate& candidate) { return candidate.text == prediction.text; });
  if (chosen != candidates.end()) std::rotate(candidates.begin(), chosen, chosen + 1);
  if (candidates.size() > count) candidates.resize(count);
  return candidates;
}

void print_json(const std::vector<Candidate>& candidates, const data::QuestionExample& example,
                std::ostream& output) {
  ordered_json result;
  result["question"] = std::string(example.question);
  const ordered_json first = answer_json(candidates.front(), example.context);
  for (const auto& [key, value] : first.items()) result[key] = value;
  if (candidates.size() > 1) {
    for (const Candidate& candidate : candidates)
      result["n_best"].push_back(answer_json(candidate, example.context));
  }
  output << python_json(result) << '\n';
}

void print_text(const std::vector<Candidate>& candidates, std::ostream& output) {
  for (const Candidate& candidate : candidates) {
    const bool none = candidate.placeholder || candidate.text.empty();
    output << fmt::format("{} (probability {:.4f})\n", none ? "no answer" : candidate.text,
                          candidate.probability);
  }
}

}  // namespace

int ask(const Invocation& invocation) {
  Options options;
  if (!parse_options(invocation.words, options)) return 0;
  const std::string question = fmt::format("{}", fmt::join(options.question, " "));
  const data::QuestionSet questions = question_set(read_context(options.context), question);
  Reader reader(options.model, invocation.environment);

  question_answering::FeatureOptions feature_options;
  feature_options.max_seq_length = options.max_seq_length;
  feature_options.doc_stride = options.doc_stride;
  feature_options.labels = false;
  const FeatureSet features = question_answering::build_features(
      reader.tokenizer(), questions.examples(), feature_options, reader.threads());

  const std::vector<float> logits = reader.logits_of(features);
  std::vector<float> start, end;
  for (std::size_t i = 0; i < logits.size(); i += 2) {
    start.push_back(logits[i]);
    end.push_back(logits[i + 1]);
  }
  std::vector<std::size_t> row_begin{0};
  for (std::size_t i = 0; i < features.size(); ++i)
    row_begin.push_back(row_begin.back() + features.num_real_tokens(i));
  const auto answers =
      question_answering::postprocess(questions.examples(), features, {start, end, row_begin},
                                      options.postprocess, reader.threads());

  const std::vector<Candidate> candidates = ranked(answers.predictions.front(), options.n_best);
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is told by write(), see LineOutput
  LineOutput output(STDOUT_FILENO);
  if (options.json) {
    print_json(candidates, questions[0], output);
  } else {
    print_text(candidates, output);
  }
  return 0;
}

}  // namespace tandem::apps
