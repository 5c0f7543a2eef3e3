#include "apps/arguments/flags.h"

namespace tandem::apps {
namespace {

using tasks::QaArguments;

constexpr double kMaxLength = 1 << 20;

FlagTable data_flags() {
  return grouped(
      "Data",
      {
          flag("dataset_name", field<&QaArguments::dataset_name>(),
               "directory of a data set, or its name in the cache of datasets or of the Hub"),
          flag("dataset_config_name", field<&QaArguments::dataset_config_name>(),
               "configuration of the data set, for example plain_text"),
          flag("train_file", field<&QaArguments::train_file>(),
               "training questions: JSON (SQuAD's, {\"data\": [...]}, a list, JSON lines), CSV, "
               "Parquet or Arrow")
              .as_path(),
          flag("validation_file", field<&QaArguments::validation_file>(),
               "evaluation questions, as train_file")
              .as_path(),
          flag("test_file", field<&QaArguments::test_file>(), "questions to predict, as train_file")
              .as_path(),
          flag("overwrite_cache", field<&QaArguments::overwrite_cache>(),
               "make features anew even if an earlier run kept them"),
          flag("preprocessing_num_workers", field<&QaArguments::preprocessing_num_workers>(),
               "threads that make features, if not all of the rank's; the features are the same")
              .between(1, 1024),
      });
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

}  // namespace

FlagTable question_answering_flags() {
  FlagTable table = data_flags();
  for (FlagTable part : {feature_flags(), answer_flags()}) {
    table.insert(table.end(), part.begin(), part.end());
  }
  return table;
}

FlagTable quantization_flags() {
  constexpr std::string_view kReason = "int8 quantization is not there yet; run the job without it";
  return grouped(
      "Quantization",
      {
          not_yet("apply_quantization", Kind::kBool, false, kReason),
          not_yet("quantization_approach", Kind::kString, nullptr, kReason),
          not_yet("quantization_config", Kind::kString, nullptr, kReason),
          not_yet("num_calibration_samples", Kind::kInteger, 50, kReason),
          not_yet("metric", Kind::kString, nullptr, kReason).alias("tune_metric"),
          not_yet("tolerance_criterion", Kind::kNumber, nullptr, kReason),
          not_yet("verify_loading", Kind::kBool, false, kReason),
          not_yet("train_before_quantization", Kind::kBool, false, kReason),
          not_yet("apply_pruning", Kind::kBool, false, "pruning is not there"),
          not_yet("target_sparsity", Kind::kNumber, nullptr, "pruning is not there"),
          not_yet("pruning_config", Kind::kString, nullptr, "pruning is not there"),
          not_yet("apply_distillation", Kind::kBool, false, "distillation is not there"),
          not_yet("teacher_model_name_or_path", Kind::kString, nullptr,
                  "distillation is not there"),
          not_yet("distillation_config", Kind::kString, nullptr, "distillation is not there"),
          not_yet("generate_teacher_logits", Kind::kBool, false, "distillation is not there"),
      });
}

FlagTable run_qa_flags() {
  FlagTable table = model_flags();
  for (FlagTable part : {question_answering_flags(), training_flags(), quantization_flags()}) {
    table.insert(table.end(), part.begin(), part.end());
  }
  return table;
}

}  // namespace tandem::apps
