#include "apps/arguments/flags.h"
#include "tandem/quant/quantization_arguments.h"

namespace tandem::apps {

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
               "what the int8 model is judged by: a metric of the evaluation; unset: the task's, "
               "as f1 or accuracy")
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

}  // namespace tandem::apps
