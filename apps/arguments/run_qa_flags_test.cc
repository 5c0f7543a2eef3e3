// Every flag has a row, and every row has the effect that it states.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "apps/arguments/arguments_test_support.h"
#include "apps/manual/manual.h"
#include "support/test_support.h"
#include "tandem/flags/grammar.h"

namespace tandem::apps {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The oracle: every flag of run_qa.py and TrainingArguments, transformers 4.0 to 5.1, and tandem's
// own, with what tandem does. W works, N note, R refused.
constexpr std::pair<const char*, const char*> kVerdicts[] = {
    {"W",
     "model_name_or_path config_name tokenizer_name cache_dir model_revision dataset_name "
     "dataset_config_name train_file overwrite_cache preprocessing_num_workers "
     "validation_file test_file max_seq_length pad_to_max_length max_train_samples "
     "max_eval_samples max_val_samples "
     "max_predict_samples version_2_with_negative null_score_diff_threshold doc_stride n_best_size "
     "max_answer_length "
     "fix_last_token_labels skip_unusable_examples do_predict eval_delay eval_on_start log_level "
     "output_dir "
     "overwrite_output_dir do_train do_eval eval_strategy "
     "evaluation_strategy eval_steps "
     "per_device_train_batch_size per_device_eval_batch_size per_gpu_train_batch_size "
     "per_gpu_eval_batch_size "
     "gradient_accumulation_steps learning_rate weight_decay adam_beta1 adam_beta2 adam_epsilon "
     "max_grad_norm "
     "num_train_epochs max_steps warmup_steps warmup_ratio lr_scheduler_type logging_strategy "
     "logging_steps "
     "logging_first_step logging_nan_inf_filter save_strategy save_steps save_total_limit "
     "save_only_model save_safetensors token use_auth_token use_cpu seed "
     "data_seed bf16 gradient_checkpointing activation_checkpointing ddp_backend xpu_backend "
     "ddp_timeout "
     "dataloader_drop_last "
     "resume_from_checkpoint "
     "load_best_model_at_end metric_for_best_model greater_is_better disable_tqdm optim report_to "
     "run_name logging_dir "
     "logical_shards "
     "gradient_dtype ddp_bucket_cap_mb evaluate_during_training train_sampling_strategy "
     "group_by_length optim_args learning_rate_mapping "
     "log_level_replica log_on_each_node log_format include_tokens_per_second skip_memory_metrics "
     "include_num_input_tokens_seen "
     "adafactor neftune_noise_alpha lr_scheduler_kwargs save_on_each_node ignore_data_skip "
     "bf16_full_eval "
     "split_batches accelerator_config "
     "apply_quantization quantization_approach num_calibration_samples metric tune_metric "
     "tolerance_criterion max_trials verify_loading train_before_quantization "
     "use_peft lora_r lora_alpha lora_dropout lora_target_modules lora_modules_to_save use_rslora"},
    {"N",
     "trust_remote_code no_cuda "
     "use_ipex jit_mode_eval "
     "full_determinism enable_jit_checkpoint length_column_name dataloader_num_workers "
     "dataloader_pin_memory "
     "dataloader_persistent_workers dataloader_prefetch_factor "
     "dataloader_multiprocessing_context dataloader_in_order activation_checkpointing_kwargs "
     "auto_find_batch_size "
     "remove_unused_columns label_names "
     "label_smoothing_factor eval_accumulation_steps prediction_loss_only "
     "include_inputs_for_metrics include_for_metrics "
     "batch_eval_metrics eval_do_concat_batches eval_use_gather_object use_legacy_prediction_loop "
     "past_index use_cache "
     "project trackio_space_id trackio_bucket_id trackio_static_space_id debug "
     "restore_callback_states_from_checkpoint gradient_checkpointing_kwargs torch_compile "
     "torch_compile_backend "
     "torch_compile_mode torchdynamo use_liger_kernel liger_kernel_config fp16_opt_level "
     "fp16_backend "
     "half_precision_backend tf32 torch_empty_cache_steps local_rank ddp_find_unused_parameters "
     "ddp_static_graph ddp_broadcast_buffers "
     "average_tokens_across_devices dispatch_batches ray_scope mp_parameters "
     "_n_gpu hub_model_id "
     "hub_strategy hub_token hub_private_repo hub_always_push hub_revision push_to_hub_model_id "
     "push_to_hub_organization push_to_hub_token lora_task_type"},
    {"R",
     "fp16 fp16_full_eval use_mps_device tpu_num_cores tpu_metrics_debug optim_target_modules "
     "push_to_hub deepspeed fsdp fsdp_config fsdp_min_num_params "
     "fsdp_transformer_layer_cls_to_wrap sharded_ddp "
     "parallelism_config tp_size "
     "quantization_config apply_pruning target_sparsity pruning_config "
     "apply_distillation teacher_model_name_or_path distillation_config generate_teacher_logits "
     "use_dora load_in_8bit load_in_4bit"}};

// Other flags without which this one is a contradiction.
std::string companions(std::string_view name) {
  if (name == "do_train") return " --train_file t.json";
  if (name == "do_predict") return " --test_file t.json";
  if (name == "max_seq_length") return " --doc_stride 2";
  if (name == "load_best_model_at_end") return " --eval_strategy epoch --save_strategy epoch";
  if (name == "optim_args") return " --optim sgd";
  if (name == "apply_quantization") return " --do_eval";
  if (name == "use_rslora" || name.starts_with("lora_")) return " --use_peft";
  if (name == "lr_scheduler_kwargs") return " --lr_scheduler_type cosine";
  return "";
}

// A value that asks for something other than the default.
std::string example_value(const Flag& flag) {
  if (flag.name == "metric_for_best_model") return "f1";
  if (flag.name == "metric") return "eval_exact_match";
  if (flag.name == "report_to") return "tensorboard";
  if (flag.name == "optim_args") return "momentum=0.9";
  if (flag.name == "learning_rate_mapping") return "{\"weight\":0.5}";
  if (flag.name == "lr_scheduler_kwargs") return "{\"num_cycles\":2}";
  if (flag.name == "accelerator_config") return "{\"split_batches\":true}";
  switch (flag.kind()) {
    case Kind::kBool:
      return flag.initial == Json(true) ? "false" : "true";
    case Kind::kInteger:
      return "7";
    case Kind::kNumber:
      return "0.5";
    case Kind::kString:
      return "text";
    case Kind::kList:
      return "text";
    case Kind::kDict:
      return "{\"key\":1}";
    case Kind::kChoice:
      return flag.choices.front().value;
  }
  return "";
}

TEST(RunQaFlags, EveryFlagOfTheContractHasItsVerdict) {
  std::map<std::string, Verdict> rows;
  for (const Flag& flag : run_qa_flags()) {
    EXPECT_TRUE(rows.emplace(flag.name, flag.verdict).second) << flag.name << " has two rows";
    for (const Alias& alias : flag.aliases)
      EXPECT_TRUE(rows.emplace(alias.name, flag.verdict).second) << alias.name;
  }
  const std::map<std::string, Verdict> letters = {
      {"W", Verdict::kWorks}, {"N", Verdict::kNote}, {"R", Verdict::kRefused}};
  std::size_t expected_rows = 0;
  for (const auto& [letter, names] : kVerdicts) {
    for (const std::string& name : split(names)) {
      ASSERT_TRUE(rows.contains(name)) << name;
      EXPECT_EQ(rows.at(name), letters.at(letter)) << name;
      ++expected_rows;
    }
  }
  EXPECT_GE(rows.size(), expected_rows);
}

// Settings without which a choice is an error.
std::string settings_of(std::string_view choice) {
  if (choice == "warmup_stable_decay") return " --lr_scheduler_kwargs {\"num_decay_steps\":2}";
  const bool has_minimum = choice.ends_with("with_min_lr");
  return has_minimum ? " --lr_scheduler_kwargs {\"min_lr_rate\":0.1}" : "";
}

TEST(RunQaFlags, EveryRowParsesNotesOrRefusesAsItStates) {
  for (const Flag& flag : run_qa_flags()) {
    SCOPED_TRACE(flag.name);
    EXPECT_FALSE(flag.group.empty());
    EXPECT_TRUE(flag.verdict == Verdict::kWorks ? !flag.help.empty() : !flag.reason.empty());
    if (flag.is_path || flag.required) continue;
    std::vector<std::string> words = split(kMinimum + companions(flag.name));
    words.push_back(fmt::format("--{}={}", flag.name, example_value(flag)));
    if (flag.verdict == Verdict::kWorks || flag.verdict == Verdict::kNote) {
      ParsedRunQa parsed;
      ASSERT_NO_THROW(parsed = parse(words));
      EXPECT_TRUE(parsed.given.contains(std::string(flag.name)));
      const auto is_about = [&](const std::string& note) {
        return note.starts_with(fmt::format("--{} has no effect", flag.name));
      };
      EXPECT_EQ(std::count_if(parsed.notes.begin(), parsed.notes.end(), is_about),
                flag.verdict == Verdict::kNote ? 1 : 0);
    } else {
      const Failure failed = failure_of(words);
      EXPECT_EQ(failed.exit_code, 1);
      EXPECT_THAT(failed.message,
                  AllOf(HasSubstr(fmt::format("--{}", flag.name)),
                        HasSubstr(std::string(flag.reason)), HasSubstr("is not supported")));
    }
  }
}

// Giving a flag its default, as many generated command lines do, asks for nothing: no flag may
// refuse that.
TEST(RunQaFlags, DefaultsCanAlwaysBeGiven) {
  for (const Flag& flag : run_qa_flags()) {
    SCOPED_TRACE(flag.name);
    if (flag.initial.is_null() || flag.required || (flag.initial.is_array())) continue;
    const std::string text =
        flag.initial.is_string() ? flag.initial.get<std::string>() : flag.initial.dump();
    std::vector<std::string> words = split(kMinimum);
    words.push_back(fmt::format("--{}={}", flag.name, text));
    EXPECT_NO_THROW(parse(words));
  }
}

TEST(RunQaFlags, EveryChoiceParsesOrIsRefusedAsItsRowStates) {
  for (const Flag& flag : run_qa_flags()) {
    for (const Choice& choice : flag.choices) {
      SCOPED_TRACE(fmt::format("{} {}", flag.name, choice.value));
      const Failure failed = failure_more(fmt::format("--eval_strategy epoch --{} {}{}", flag.name,
                                                      choice.value, settings_of(choice.value)));
      if (choice.verdict == Verdict::kWorks) {
        EXPECT_EQ(failed.message, "no error");
      } else {
        EXPECT_EQ(failed.exit_code, 1);
        EXPECT_THAT(failed.message, HasSubstr(choice.reason));
      }
    }
  }
}

TEST(RunQaHelp, ShowsEveryFlagOnce) {
  const std::string help = help_text(job_description(*find_job_command("run_qa")), 100);
  for (const Flag& flag : run_qa_flags())
    EXPECT_THAT(help, HasSubstr(fmt::format("  --{}", flag.name)));
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

}  // namespace
}  // namespace tandem::apps
