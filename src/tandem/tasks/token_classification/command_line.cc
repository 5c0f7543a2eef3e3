#include "tandem/tasks/token_classification/command_line.h"

#include <utility>

#include "tandem/tasks/token_classification/token_classification_job.h"

namespace tandem::token_classification {
namespace {

using flags::field;
using flags::flag;
using flags::FlagTable;
using flags::grouped;
using tasks::NerArguments;

FlagTable data_flags() {
  FlagTable table = tasks::data_source_flags(
      "training sentences, in each row a list of words and a list of tags: JSON lines, Parquet or "
      "Arrow, also .gz or .zst");
  for (const flags::Flag& row : {
           flag("task_name", field<&NerArguments::task_name>(),
                "ner, pos or chunk: the tags are in the column <task_name>_tags"),
           flag("text_column_name", field<&NerArguments::text_column_name>(),
                "column of the words; unset: tokens, else the first"),
           flag("label_column_name", field<&NerArguments::label_column_name>(),
                "column of the tags; unset: <task_name>_tags, else the second"),
           flag("overwrite_cache", field<&NerArguments::overwrite_cache>(),
                "make features anew even if an earlier run kept them"),
           flag("preprocessing_num_workers", field<&NerArguments::preprocessing_num_workers>(),
                "threads that make features, if not all of the rank's; the features are the same")
               .between(1, 1024),
       }) {
    table.push_back(row);
  }
  return grouped("Data", std::move(table));
}

FlagTable feature_flags() {
  constexpr double kMaxLength = 1 << 20;
  return grouped(
      "Features",
      {
          flag("max_seq_length", field<&NerArguments::max_seq_length>(),
               "tokens of a sentence and special tokens together; unset: the tokenizer's "
               "model_max_length")
              .between(3, kMaxLength),
          flag("pad_to_max_length", field<&NerArguments::pad_to_max_length>(),
               "unset: compute no padding; true: pad to max_seq_length; false: pad to the longest "
               "of the batch; the numbers are the same but for rounding")
              .with_bare()
              .with_negation(),
          flag("label_all_tokens", field<&NerArguments::label_all_tokens>(),
               "give every token of a word its label, not only the first: I-x behind B-x"),
          flag("max_train_samples", field<&NerArguments::max_train_samples>(),
               "use only the first n training sentences")
              .at_least(0),
          flag("max_eval_samples", field<&NerArguments::max_eval_samples>(),
               "use only the first n evaluation sentences")
              .at_least(0)
              .alias("max_val_samples"),
          flag("max_predict_samples", field<&NerArguments::max_predict_samples>(),
               "use only the first n test sentences")
              .at_least(0)
              .alias("max_test_samples"),
      });
}

FlagTable score_flags() {
  return grouped(
      "Scores",
      {
          flag("return_entity_level_metrics", field<&NerArguments::return_entity_level_metrics>(),
               "scores of every type of entity in addition to the overall ones"),
          flag("label_smoothing_factor", field<&NerArguments::label_smoothing_factor>(),
               "share of the loss that asks for all labels alike; also of eval_loss")
              .between(0, 1),
      });
}

}  // namespace

FlagTable CommandLine::flags() const {
  FlagTable table = data_flags();
  for (FlagTable part : {feature_flags(), score_flags()}) {
    table.insert(table.end(), part.begin(), part.end());
  }
  return table;
}

std::vector<std::string> CommandLine::metrics() const {
  if (arguments_.return_entity_level_metrics)
    return {"loss", "overall_precision", "overall_recall", "overall_f1", "overall_accuracy"};
  return {"loss", "precision", "recall", "f1", "accuracy"};
}

std::unique_ptr<tasks::JobTask> CommandLine::make_job() const {
  return std::make_unique<TokenClassificationJob>(arguments_);
}

}  // namespace tandem::token_classification
