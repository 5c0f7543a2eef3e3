#include "tandem/tasks/question_answering/question_answering_job.h"

#include <fmt/format.h>

#include <algorithm>

#include "tandem/data/read_questions.h"
#include "tandem/tasks/question_answering/mistakes_analysis.h"
#include "tandem/tasks/question_answering/question_data.h"
#include "tandem/tasks/question_answering/span_head.h"

namespace tandem::question_answering {
namespace {

constexpr std::size_t kMistakesShown = 300;  // wrong answers in report.html, with their texts

}  // namespace

void QuestionAnsweringJob::describe(tasks::StartLog& log) const {
  if (arguments_.pad_to_max_length) return;
  log.fact("padding",
           "none is computed: loss and softmax run over real tokens; --pad_to_max_length "
           "true or false gives Hugging Face's numbers");
}

std::span<const std::string_view> QuestionAnsweringJob::file_extensions() const {
  return data::question_file_extensions();
}

tasks::Task& QuestionAnsweringJob::make_task(models::ModelConfig config,
                                             const text::Tokenizer& tokenizer,
                                             const tasks::TaskSettings& settings) {
  const auto size = [](int value) { return static_cast<std::size_t>(value); };
  return made(
      std::move(config), tokenizer, tasks::task_options(settings, arguments_.pad_to_max_length),
      PostprocessOptions{.version_2_with_negative = arguments_.version_2_with_negative,
                         .n_best_size = size(arguments_.n_best_size),
                         .max_answer_length = size(arguments_.max_answer_length),
                         .null_score_diff_threshold = arguments_.null_score_diff_threshold});
}

void QuestionAnsweringJob::load_data(const tasks::DataParts& parts) {
  load_questions(arguments_, parts, *task_);
}

// The outputs are copied by column.
std::size_t QuestionAnsweringJob::result_bytes(const tasks::Stages& stages) const {
  return output_bytes() +
         std::max(stages.eval ? task_->answers_bytes(tasks::Split::kEval) : 0,
                  stages.predict ? task_->answers_bytes(tasks::Split::kPredict) : 0);
}

std::vector<std::string> QuestionAnsweringJob::result_files(tasks::Split split) const {
  const std::string prefix = split == tasks::Split::kEval ? "eval" : "predict";
  return {prefix + "_predictions.json", prefix + "_nbest_predictions.json",
          prefix + "_null_odds.json"};
}

std::string QuestionAnsweringJob::title() const {
  return arguments_.version_2_with_negative ? "question answering, some questions have no answer"
                                            : "question answering";
}

tasks::CardTask QuestionAnsweringJob::card_task() const {
  return {"Question Answering", "question-answering", {"f1", "exact_match"}};
}

// SQuAD's metrics are percentages; version 2 has another name for exact matches.
tasks::LeadingMetrics QuestionAnsweringJob::leading_metrics() const {
  const char* exact = arguments_.version_2_with_negative ? "exact" : "exact_match";
  return {.metrics = {{"f1", "F1", tasks::MetricUnit::kPercent},
                      {exact, "Exact match", tasks::MetricUnit::kPercent}}};
}

std::optional<tasks::TryCommand> QuestionAnsweringJob::try_command() const {
  return tasks::TryCommand{.subcommand = "ask",
                           .words = {"--context", "-", "Where does Ada live?"},
                           .input = "Ada lives in London."};
}

std::optional<tasks::Analysis> QuestionAnsweringJob::analysis() const {
  return analyze(task_->mistakes(kMistakesShown));
}

}  // namespace tandem::question_answering
