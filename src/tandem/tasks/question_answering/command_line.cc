#include "tandem/tasks/question_answering/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <string_view>

#include "tandem/core/error.h"
#include "tandem/data/read_questions.h"
#include "tandem/tasks/question_answering/question_answering_job.h"

namespace tandem::question_answering {
namespace {

using flags::field;
using flags::flag;
using flags::FlagTable;
using flags::grouped;
using tasks::QaArguments;

constexpr double kMaxLength = 1 << 20;

FlagTable data_flags() {
  FlagTable table = tasks::data_source_flags(
      "training questions: JSON (SQuAD's, {\"data\": [...]}, a list, JSON lines), CSV, "
      "Parquet or Arrow, also .gz or .zst");
  for (const flags::Flag& row : {
           flag("overwrite_cache", field<&QaArguments::overwrite_cache>(),
                "make features anew even if an earlier run kept them"),
           flag("preprocessing_num_workers", field<&QaArguments::preprocessing_num_workers>(),
                "threads that make features, if not all of the rank's; the features are the same")
               .between(1, 1024),
       }) {
    table.push_back(row);
  }
  return grouped("Data", std::move(table));
}

FlagTable feature_flags() {
  return grouped("Features",
                 {
                     flag("max_seq_length", field<&QaArguments::max_seq_length>(),
                          "tokens of question, context window and special tokens together")
                         .between(4, kMaxLength),
                     flag("doc_stride", field<&QaArguments::doc_stride>(),
                          "tokens that two windows of a long context share")
                         .between(0, kMaxLength),
                     flag("pad_to_max_length", field<&QaArguments::pad_to_max_length>(),
                          "unset: compute no padding; true: pad to max_seq_length (Hugging Face's "
                          "default numbers); false: pad to "
                          "the longest of the batch (Hugging Face's numbers with false)")
                         .with_bare()
                         .with_negation(),
                     flag("max_train_samples", field<&QaArguments::max_train_samples>(),
                          "use only the first n training examples")
                         .at_least(0),
                     flag("max_eval_samples", field<&QaArguments::max_eval_samples>(),
                          "use only the first n evaluation examples")
                         .at_least(0)
                         .alias("max_val_samples"),
                     flag("max_predict_samples", field<&QaArguments::max_predict_samples>(),
                          "use only the first n test examples")
                         .at_least(0)
                         .alias("max_test_samples"),
                     flag("skip_unusable_examples", field<&QaArguments::skip_unusable_examples>(),
                          "tandem's own: leave out and count training examples of which no feature "
                          "can be made, "
                          "instead of ending with an error"),
                     flag("fix_last_token_labels", field<&QaArguments::fix_last_token_labels>(),
                          "tandem's own: label an answer that starts in a window's last context "
                          "token rightly, which Hugging "
                          "Face does not"),
                 });
}

FlagTable answer_flags() {
  return grouped(
      "Answers",
      {
          flag("version_2_with_negative", field<&QaArguments::version_2_with_negative>(),
               "SQuAD v2: some questions have no answer"),
          flag("null_score_diff_threshold", field<&QaArguments::null_score_diff_threshold>(),
               "v2: how much better \"no answer\" must score to win"),
          flag("n_best_size", field<&QaArguments::n_best_size>(),
               "candidates per feature and answers kept per question")
              .between(1, kMaxLength),
          flag("max_answer_length", field<&QaArguments::max_answer_length>(),
               "longest answer in tokens")
              .between(1, kMaxLength),
      });
}

void check_lengths(const tasks::QaArguments& data) {
  if (data.doc_stride >= data.max_seq_length) {
    raise<ConfigError>(
        "--doc_stride {} must be smaller than --max_seq_length {}: it is the overlap of two "
        "windows",
        data.doc_stride, data.max_seq_length);
  }
}

}  // namespace

FlagTable CommandLine::flags() const {
  FlagTable table = data_flags();
  for (FlagTable part : {feature_flags(), answer_flags()}) {
    table.insert(table.end(), part.begin(), part.end());
  }
  return table;
}

std::vector<std::string> CommandLine::metrics() const {
  if (arguments_.version_2_with_negative) return {"exact", "f1", "HasAns_exact", "HasAns_f1"};
  return {"exact_match", "f1"};
}

void CommandLine::check(const tasks::Stages& stages, std::string_view evaluation_flag) {
  const QaArguments& data = arguments_;
  check_lengths(data);
  tasks::check_data_source(data, stages, evaluation_flag, data::question_file_extensions());
}

std::unique_ptr<tasks::JobTask> CommandLine::make_job() const {
  return std::make_unique<QuestionAnsweringJob>(arguments_);
}

}  // namespace tandem::question_answering
