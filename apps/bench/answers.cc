// `kernel_bench answers`: from logits to answers, files and metrics, for the questions of a file.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <memory>

#include "apps/bench/session.h"
#include "tandem/core/error.h"
#include "tandem/data/read_questions.h"
#include "tandem/hub/model_files.h"
#include "tandem/tasks/question_answering/metrics.h"
#include "tandem/tasks/question_answering/postprocess.h"
#include "tandem/tasks/question_answering/result_files.h"
#include "tandem/text/tokenizer.h"

namespace tandem::apps::bench {
namespace {

namespace qa = question_answering;

struct AnswersOptions {
  Options common;
  std::string model;
  std::string file;
  bool version_2 = false;
};

// Logits as a model gives them in shape: two arrays over all rows, here of noise that depends on
// the place only.
struct NoiseLogits {
  explicit NoiseLogits(const qa::FeatureSet& features) {
    row_begin.push_back(0);
    for (std::size_t i = 0; i < features.size(); ++i) {
      row_begin.push_back(row_begin.back() + features.max_seq_length());
    }
    std::uint64_t state = 42;
    const auto next = [&] {
      state = state * 0x5851f42d4c957f2d + 0x14057b7ef767814f;
      return static_cast<float>(state >> 40) * 0x1p-20f - 8.0f;
    };
    for (std::size_t row = 0; row < row_begin.back(); ++row) {
      start.push_back(next());
      end.push_back(next());
    }
  }
  qa::Logits view() const { return {start, end, row_begin}; }

  std::vector<float> start, end;
  std::vector<std::size_t> row_begin;
};

class Work {
 public:
  Work(const AnswersOptions& options, const data::QuestionSet& questions,
       const qa::FeatureSet& features)
      : questions_(questions), features_(features), logits_(features) {
    options_.version_2_with_negative = options.version_2;
  }

  void answer(ThreadPool& threads) {
    answers_ = qa::postprocess(questions_.examples(), features_, logits_.view(), options_, threads);
  }
  void write() {
    files_ = qa::predictions_json(answers_) + qa::nbest_predictions_json(answers_);
    if (options_.version_2_with_negative) files_ += qa::null_odds_json(answers_);
  }
  void score() {
    std::vector<std::string_view> texts;
    for (const qa::Prediction& prediction : answers_.predictions) texts.push_back(prediction.text);
    metrics_ = options_.version_2_with_negative ? qa::squad_v2_metrics(questions_.examples(), texts)
                                                : qa::squad_metrics(questions_.examples(), texts);
  }
  const std::string& files() const { return files_; }

 private:
  const data::QuestionSet& questions_;
  const qa::FeatureSet& features_;
  const NoiseLogits logits_;
  qa::PostprocessOptions options_;
  qa::Predictions answers_;
  std::string files_;
  qa::Metrics metrics_;
};

int run(const AnswersOptions& options, const Environment& environment) {
  hub::Query query;
  query.name = options.model;
  hub::DownloadObserver silent;
  const text::Tokenizer tokenizer = text::Tokenizer::load(
      hub::locate_model(query, {.tokenizer = true}, environment, silent).directory);
  const data::QuestionSet questions =
      data::read_questions(options.file, {.require_answers = !options.version_2});
  Session session("answers", options.common, environment);
  const qa::FeatureSet features = qa::build_features(
      tokenizer, questions.examples(), {.labels = false, .padding = qa::Padding::kMaxSeqLength},
      session.threads());
  if (features.size() == 0) raise<DataError>("'{}' holds no question", options.file);
  session.report().line(fmt::format("{}: {} questions, {} features of {} rows", options.file,
                                    questions.size(), features.size(), features.max_seq_length()));

  Work work(options, questions, features);
  ThreadPool one(1);
  work.answer(one);
  work.write();
  const std::string of_one_thread = work.files();
  work.answer(session.threads());
  work.write();
  const bool verified = work.files() == of_one_thread;
  if (!verified) {
    session.found_wrong("the answers depend on the number of threads");
  }
  const std::vector<std::function<void()>> works = {[&] { work.answer(session.threads()); },
                                                    [&] { work.write(); }, [&] { work.score(); }};
  const std::vector<Samples> samples = measure(options.common.rounds, works);
  constexpr std::array<const char*, 3> kNames = {"answers and n-best lists", "files as text",
                                                 "metrics"};
  double total = 0;
  for (std::size_t i = 0; i < works.size(); ++i) {
    const Statistics seconds = statistics(samples[i].seconds);
    total += seconds.median;
    session.report().line(fmt::format("{:<26} {:7.3f} s ({:.3f} – {:.3f})", kNames[i],
                                      seconds.median, seconds.min, seconds.max));
    session.report().add(
        {{"name", kNames[i]}, {"verified", verified}, {"seconds", to_json(seconds)}});
  }
  session.report().line(fmt::format("{:<26} {:7.3f} s", "together", total));
  return session.finish();
}

}  // namespace

Bench add_answers(CLI::App& parent) {
  Flags flags(parent, "answers", "from logits to answers, files and metrics");
  auto options = std::make_shared<AnswersOptions>();
  options->common.add_to(flags);
  flags.text("--model_name_or_path,--model", options->model,
             "whose tokenizer: a directory, or a name in the Hugging Face cache",
             Flags::Need::kRequired);
  flags.boolean("--version_2_with_negative", options->version_2, "with questions without answer");
  flags.text("file", options->file, "question file", Flags::Need::kRequired);
  return Bench::of(flags, options, run);
}

}  // namespace tandem::apps::bench
