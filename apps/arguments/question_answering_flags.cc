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
  using quant::QuantizationArguments;
  constexpr std::string_view kPruning =
      "pruning sets weights to 0, which makes no product faster here; --apply_quantization does";
  constexpr std::string_view kDistillation =
      "distillation needs a teacher's logits in the loss, which training does not have";
  return grouped(
      "Quantization",
      {
          flag("apply_quantization", field<&QuantizationArguments::apply_quantization>(),
               "save an int8 model: quantize the linear layers, evaluate, and keep layers in f32 "
               "where the metric drops too far"),
          flag("quantization_approach", field<&QuantizationArguments::quantization_approach>(),
               "ranges of the layers' inputs")
              .rule("aware_training", Verdict::kRefused,
                    "quantization-aware training is not there; static or dynamic quantize a "
                    "trained model"),
          flag("num_calibration_samples", field<&QuantizationArguments::num_calibration_samples>(),
               "static: training features that the ranges are measured on, in training's order")
              .at_least(1),
          flag("metric", field<&QuantizationArguments::metric>(),
               "what the int8 model is judged by: a metric of the evaluation")
              .alias("tune_metric"),
          flag("tolerance_criterion", field<&QuantizationArguments::tolerance_criterion>(),
               "largest drop of the metric, as a share of the f32 model's; negative: it must rise")
              .between(-1, 1),
          flag("max_trials", field<&QuantizationArguments::max_trials>(),
               "tandem's own: int8 models to evaluate at most")
              .between(1, 1000),
          flag("verify_loading", field<&QuantizationArguments::verify_loading>(),
               "read the saved int8 model again: its logits must be the same bits"),
          flag("train_before_quantization",
               field<&QuantizationArguments::train_before_quantization>(),
               "tandem's own: --do_train trains, and the result is quantized; otherwise its file "
               "is only calibrated on"),
          refused("quantization_config", Kind::kString, nullptr,
                  "configuration files of Intel Neural Compressor are not read; give "
                  "--quantization_approach, --tolerance_criterion and --max_trials"),
          refused("apply_pruning", Kind::kBool, false, kPruning),
          refused("target_sparsity", Kind::kNumber, nullptr, kPruning),
          refused("pruning_config", Kind::kString, nullptr, kPruning),
          refused("apply_distillation", Kind::kBool, false, kDistillation),
          refused("teacher_model_name_or_path", Kind::kString, nullptr, kDistillation),
          refused("distillation_config", Kind::kString, nullptr, kDistillation),
          refused("generate_teacher_logits", Kind::kBool, false, kDistillation),
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
