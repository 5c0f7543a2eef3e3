// The flags of Hugging Face's TrainingArguments, all names of transformers 4.0 to 5.x, and what
// tandem does with each.
#include "apps/arguments/flags.h"

namespace tandem::apps {
namespace {

using trainer::TrainingArguments;

constexpr double kMaxCount = 2147483647;  // largest count of things that are stored in an int

TrainingArguments& training_of(const ArgumentParts& parts) {
  return parts.get<TrainingArguments>();
}

// warmup_steps below 1 is a share of all steps since transformers 5.0.
Binding warmup_steps_binding() {
  Binding binding;
  binding.kind = Kind::kNumber;
  binding.get = [](const ArgumentParts& parts) { return Json(training_of(parts).warmup_steps); };
  binding.set = [](const ArgumentParts& parts, const Json& value) {
    const double steps = value.get<double>();
    if (steps > 0 && steps < 1) {
      training_of(parts).warmup_ratio = steps;
      training_of(parts).warmup_steps = 0;
      return;
    }
    if (steps != static_cast<double>(static_cast<std::int64_t>(steps))) {
      throw ConfigError(fmt::format(
          "argument --warmup_steps: {} is neither a whole number nor a share below 1", steps));
    }
    training_of(parts).warmup_steps = static_cast<std::int64_t>(steps);
  };
  binding.initial = flags::initial_of<TrainingArguments>(binding);
  return binding;
}

// A dictionary that is kept as its JSON text.
Binding lr_scheduler_kwargs_binding() {
  Binding binding;
  binding.kind = Kind::kDict;
  binding.get = [](const ArgumentParts& parts) {
    return Json::parse(training_of(parts).lr_scheduler_kwargs);
  };
  binding.set = [](const ArgumentParts& parts, const Json& value) {
    training_of(parts).lr_scheduler_kwargs = value.dump();
  };
  binding.initial = flags::initial_of<TrainingArguments>(binding);
  return binding;
}

// --adafactor of transformers 4.
Binding adafactor_binding() {
  Binding binding;
  binding.kind = Kind::kBool;
  binding.set = [](const ArgumentParts& parts, const Json& value) {
    if (value.get<bool>()) training_of(parts).optim = trainer::OptimizerName::kAdafactor;
  };
  return binding;
}

// --evaluate_during_training of transformers 4.0.
Binding evaluate_during_training_binding() {
  Binding binding;
  binding.kind = Kind::kBool;
  binding.set = [](const ArgumentParts& parts, const Json& value) {
    if (value.get<bool>()) training_of(parts).eval_strategy = trainer::IntervalStrategy::kSteps;
  };
  return binding;
}

// --group_by_length of transformers 4.
Binding group_by_length_binding() {
  Binding binding;
  binding.kind = Kind::kBool;
  binding.set = [](const ArgumentParts& parts, const Json& value) {
    if (value.get<bool>())
      training_of(parts).train_sampling_strategy = trainer::SamplingStrategy::kGroupByLength;
  };
  return binding;
}

FlagTable job_flags() {
  return grouped(
      "Job", {
                 flag("output_dir", field<&TrainingArguments::output_dir>(),
                      "where models, checkpoints and results go")
                     .as_path(),
                 flag("overwrite_output_dir", field<&TrainingArguments::overwrite_output_dir>(),
                      "train anew although output_dir is not empty"),
                 flag("do_train", field<&TrainingArguments::do_train>(), "train"),
                 flag("do_eval", field<&TrainingArguments::do_eval>(),
                      "evaluate on the validation questions"),
                 flag("do_predict", field<&TrainingArguments::do_predict>(),
                      "predict answers of the test questions"),
                 flag("resume_from_checkpoint", field<&TrainingArguments::resume_from_checkpoint>(),
                      "checkpoint directory to resume from")
                     .as_path(),
                 flag("seed", field<&TrainingArguments::seed>(),
                      "seed of the new head, the data order and dropout")
                     .between(0, 4294967295.0),
                 flag("data_seed", field<&TrainingArguments::data_seed>(),
                      "seed of the data order, if not seed")
                     .between(0, 4294967295.0),
                 note("full_determinism", Kind::kBool, false, "results are always deterministic"),
             });
}

FlagTable step_flags() {
  return grouped(
      "Batches and steps",
      {
          flag("per_device_train_batch_size",
               field<&TrainingArguments::per_device_train_batch_size>(),
               "features per rank and micro-batch")
              .between(1, kMaxCount)
              .alias("per_gpu_train_batch_size",
                     "is the old name of --per_device_train_batch_size"),
          flag("per_device_eval_batch_size",
               field<&TrainingArguments::per_device_eval_batch_size>(),
               "features per rank and evaluation batch")
              .between(1, kMaxCount)
              .alias("per_gpu_eval_batch_size", "is the old name of --per_device_eval_batch_size"),
          flag("gradient_accumulation_steps",
               field<&TrainingArguments::gradient_accumulation_steps>(), "micro-batches per update")
              .between(1, kMaxCount),
          flag("num_train_epochs", field<&TrainingArguments::num_train_epochs>(),
               "passes over the training set")
              .between(0, 1e9),
          flag("max_steps", field<&TrainingArguments::max_steps>(),
               "updates; if positive it wins over num_train_epochs, negative: no limit"),
          flag("dataloader_drop_last", field<&TrainingArguments::dataloader_drop_last>(),
               "training leaves the incomplete last batches of an epoch out"),
          flag("train_sampling_strategy", field<&TrainingArguments::train_sampling_strategy>(),
               "order of the training features: random is another one each epoch, sequential "
               "always that of the file; group_by_length makes batches of similar length, which "
               "saves nothing without padding"),
          setter("group_by_length", group_by_length_binding(),
                 "the old name of --train_sampling_strategy group_by_length"),
          note("length_column_name", Kind::kString, "length", "lengths are always known"),
          flag("dataloader_num_workers", field<&TrainingArguments::dataloader_num_workers>(),
               "read-ahead threads")
              .between(0, kMaxCount)
              .ruled(Verdict::kNote, "features are in memory; no workers are needed"),
          note("dataloader_pin_memory", Kind::kBool, true, "CPUs need no pinned memory"),
          note("dataloader_persistent_workers", Kind::kBool, false,
               "features are in memory; no workers are needed"),
          note("dataloader_prefetch_factor", Kind::kInteger, nullptr,
               "features are in memory; no workers are needed"),
          note("dataloader_multiprocessing_context", Kind::kString, nullptr,
               "features are in memory; no workers are needed"),
          note("dataloader_in_order", Kind::kBool, true,
               "features are in memory; no workers are needed"),
          note("auto_find_batch_size", Kind::kBool, false,
               "memory is planned and printed before training"),
          note("remove_unused_columns", Kind::kBool, true,
               "only the columns that are needed are ever read"),
          note("label_names", Kind::kList, nullptr, "the labels of a task are fixed"),
      });
}

// --optim with the names of transformers that tandem does not have.
Flag optim_flag() {
  constexpr std::string_view kGpuOptimizer = "it exists for GPUs only; use adamw_torch";
  constexpr std::string_view kOtherOptimizer = "tandem has no such optimizer; use adamw_torch";
  Flag optim = flag("optim", field<&TrainingArguments::optim>(), "optimizer")
                   .synonym("adamw_torch_fused", "adamw_torch");
  for (const char* name : {"adamw_torch_xla",     "adamw_torch_npu_fused",
                           "adamw_apex_fused",    "adamw_torch_4bit",
                           "adamw_torch_8bit",    "adamw_bnb_8bit",
                           "adamw_8bit",          "ademamix_8bit",
                           "lion_8bit",           "paged_adamw_32bit",
                           "paged_adamw_8bit",    "paged_ademamix_32bit",
                           "paged_ademamix_8bit", "paged_lion_32bit",
                           "paged_lion_8bit",     "rmsprop_bnb",
                           "rmsprop_bnb_8bit",    "rmsprop_bnb_32bit",
                           "galore_adamw_8bit",   "galore_adamw_8bit_layerwise"}) {
    optim.rule(name, Verdict::kRefused, kGpuOptimizer);
  }
  for (const char* name :
       {"adamw_anyprecision", "ademamix", "lion_32bit", "rmsprop", "galore_adamw",
        "galore_adafactor", "galore_adamw_layerwise", "galore_adafactor_layerwise", "lomo",
        "adalomo", "grokadamw", "schedule_free_adamw", "schedule_free_radam", "schedule_free_sgd",
        "apollo_adamw", "apollo_adamw_layerwise", "stable_adamw"}) {
    optim.rule(name, Verdict::kRefused, kOtherOptimizer);
  }
  return optim;
}

FlagTable optimizer_flags() {
  return grouped(
      "Optimizer",
      {
          optim_flag(),
          setter("adafactor", adafactor_binding(), "the old name of --optim adafactor"),
          flag("optim_args", field<&TrainingArguments::optim_args>(),
               "key=value,...: momentum, dampening, nesterov of sgd; lr_decay, eps, "
               "initial_accumulator_value of adagrad; clip_threshold, decay_rate of adafactor"),
          refused("optim_target_modules", Kind::kList, nullptr,
                  "only GaLore and APOLLO use it; use --optim adamw_torch"),
          flag("learning_rate", field<&TrainingArguments::learning_rate>(), "peak learning rate")
              .at_least(0),
          flag("learning_rate_mapping", field<&TrainingArguments::learning_rate_mapping>(),
               "peak learning rates of some parameters, for example {\"embeddings\": 1e-5}: a "
               "regular expression over their names, and the rate"),
          flag("weight_decay", field<&TrainingArguments::weight_decay>(),
               "decoupled weight decay; not for biases and LayerNorm weights")
              .at_least(0),
          flag("adam_beta1", field<&TrainingArguments::adam_beta1>(), "decay of the first moment")
              .between(0, 0.9999999999),
          flag("adam_beta2", field<&TrainingArguments::adam_beta2>(), "decay of the second moment")
              .between(0, 0.9999999999),
          flag("adam_epsilon", field<&TrainingArguments::adam_epsilon>(),
               "added to the root of the second moment")
              .at_least(0),
          flag("max_grad_norm", field<&TrainingArguments::max_grad_norm>(),
               "clip the gradient to this global norm; 0 or less: do not clip"),
          flag("neftune_noise_alpha", field<&TrainingArguments::neftune_noise_alpha>(),
               "uniform noise of alpha/sqrt(length x hidden size) on the embeddings of training "
               "(NEFTune)")
              .between(0, 1e9),
          note("label_smoothing_factor", Kind::kNumber, 0.0,
               "question answering has no labels to smooth, in Hugging Face neither"),
      });
}

FlagTable schedule_flags() {
  return grouped("Learning-rate schedule",
                 {
                     flag("lr_scheduler_type", field<&TrainingArguments::lr_scheduler_type>(),
                          "curve after warm-up"),
                     flag("lr_scheduler_kwargs", lr_scheduler_kwargs_binding(),
                          "settings of the schedule, for example {\"num_cycles\": 2} "
                          "(docs/training.md)"),
                     flag("warmup_steps", warmup_steps_binding(),
                          "updates of linear warm-up; below 1: share of all updates")
                         .between(0, 9e15),
                     flag("warmup_ratio", field<&TrainingArguments::warmup_ratio>(),
                          "share of all updates for warm-up, when warmup_steps is 0")
                         .between(0, 1),
                 });
}

FlagTable evaluation_flags() {
  return grouped(
      "Evaluation during training",
      {
          flag("eval_strategy", field<&TrainingArguments::eval_strategy>(), "when to evaluate")
              .alias("evaluation_strategy", "is the old name of --eval_strategy"),
          flag("eval_steps", field<&TrainingArguments::eval_steps>(),
               "updates between evaluations; below 1: share of all updates; unset: logging_steps")
              .at_least(0),
          flag("eval_delay", field<&TrainingArguments::eval_delay>(),
               "steps or epochs before the first evaluation; 0 or less: none"),
          flag("eval_on_start", field<&TrainingArguments::eval_on_start>(),
               "evaluate before training"),
          setter("evaluate_during_training", evaluate_during_training_binding(),
                 "the old name of --eval_strategy steps"),
          flag("load_best_model_at_end", field<&TrainingArguments::load_best_model_at_end>(),
               "end with the checkpoint that evaluated best"),
          flag("metric_for_best_model", field<&TrainingArguments::metric_for_best_model>(),
               "f1 or exact_match; v2: f1, exact, HasAns_f1, HasAns_exact; unset: f1"),
          flag("greater_is_better", field<&TrainingArguments::greater_is_better>(),
               "whether more is better in that metric; unset: yes"),
          note("eval_accumulation_steps", Kind::kInteger, nullptr,
               "logits are kept in main memory anyway"),
          note("prediction_loss_only", Kind::kBool, false,
               "evaluation always gives answers and metrics"),
          note("include_inputs_for_metrics", Kind::kBool, false, "the metrics of a task are fixed"),
          note("include_for_metrics", Kind::kList, nullptr, "the metrics of a task are fixed"),
          note("batch_eval_metrics", Kind::kBool, false, "metrics need all answers"),
          note("eval_do_concat_batches", Kind::kBool, true,
               "evaluation always collects all batches"),
          note("eval_use_gather_object", Kind::kBool, false,
               "ranks always gather what the task needs"),
          note("use_legacy_prediction_loop", Kind::kBool, false, "there is one evaluation loop"),
          note("past_index", Kind::kInteger, -1, "these models have no past states"),
          note("use_cache", Kind::kBool, false, "these models have no past states"),
      });
}

FlagTable logging_flags() {
  return grouped(
      "Logging",
      {
          flag("logging_strategy", field<&TrainingArguments::logging_strategy>(), "when to log"),
          flag("logging_steps", field<&TrainingArguments::logging_steps>(),
               "updates between log lines; below 1: share of all updates")
              .at_least(0),
          flag("logging_first_step", field<&TrainingArguments::logging_first_step>(),
               "log the first update too"),
          flag("logging_nan_inf_filter", field<&TrainingArguments::logging_nan_inf_filter>(),
               "count a loss that is not finite as the average in the log"),
          flag("disable_tqdm", field<&TrainingArguments::disable_tqdm>(),
               "no progress bars; unset: --log_level decides"),
          flag("log_level", field<&TrainingArguments::log_level>(),
               "of the main process: from warning on no lines of the library, from error on no "
               "progress bars unless --disable_tqdm false is given"),
          flag("log_level_replica", field<&TrainingArguments::log_level_replica>(),
               "of the other ranks: from info on they write lines of the library too"),
          flag("log_on_each_node", field<&TrainingArguments::log_on_each_node>(),
               "the first rank of every node writes lines as the main process does; false: only "
               "rank 0"),
          flag("log_format", field<&TrainingArguments::log_format>(),
               "tandem's own: json makes every line of the log one JSON object; unset: "
               "TANDEM_LOG_FORMAT"),
          // Other values are refused when the arguments are finished.
          flag("report_to", field<&TrainingArguments::report_to>(),
               "integrations to report to: none, tensorboard, or all, which means tensorboard"),
          flag("run_name", field<&TrainingArguments::run_name>(),
               "name of the run, for the report and the model card; unset: output_dir"),
          flag("logging_dir", field<&TrainingArguments::logging_dir>(),
               "where TensorBoard's events go; unset: output_dir/runs/<time>_<host>")
              .as_path(),
          flag("include_tokens_per_second", field<&TrainingArguments::include_tokens_per_second>(),
               "train_tokens_per_second in the results of training"),
          flag("include_num_input_tokens_seen",
               field<&TrainingArguments::include_num_input_tokens_seen>(),
               "count the tokens that were trained on, in the log and trainer_state.json; true "
               "(its values before transformers 4.57 were truth values) means all")
              .with_truth_values("all", "no")
              .with_bare(),
          flag("skip_memory_metrics", field<&TrainingArguments::skip_memory_metrics>(),
               "false: the results have the resident memory that each stage took"),
          note("project", Kind::kString, "huggingface", "there is no Trackio integration"),
          note("trackio_space_id", Kind::kString, "trackio", "there is no Trackio integration"),
          note("trackio_bucket_id", Kind::kString, nullptr, "there is no Trackio integration"),
          note("trackio_static_space_id", Kind::kString, nullptr,
               "there is no Trackio integration"),
          note("debug", Kind::kString, "", "there are no such debug options").with_bare(),
      });
}

FlagTable checkpoint_flags() {
  return grouped(
      "Checkpoints",
      {
          flag("save_strategy", field<&TrainingArguments::save_strategy>(),
               "when to write checkpoints"),
          flag("save_steps", field<&TrainingArguments::save_steps>(),
               "updates between checkpoints; below 1: share of all updates; 0 or less: only after "
               "the last"),
          flag("save_total_limit", field<&TrainingArguments::save_total_limit>(),
               "keep the newest n checkpoints and the best; unset, 0 or less: all")
              .between(-kMaxCount, kMaxCount),
          flag("save_only_model", field<&TrainingArguments::save_only_model>(),
               "checkpoints without optimizer state, from which nothing can be resumed"),
          flag("save_on_each_node", field<&TrainingArguments::save_on_each_node>(),
               "every node writes checkpoints, for hosts without a common file system"),
          flag("ignore_data_skip", field<&TrainingArguments::ignore_data_skip>(),
               "after a resume begin the epoch's data anew (continuing at the same position takes "
               "no time here)"),
          flag("save_safetensors", field<&TrainingArguments::save_safetensors>(),
               "weights as model.safetensors; false: as pytorch_model.bin, which torch.load reads"),
          note("restore_callback_states_from_checkpoint", Kind::kBool, false,
               "there are no callbacks with state"),
          note("enable_jit_checkpoint", Kind::kBool, false,
               "SIGTERM and SIGINT always write a checkpoint"),
      });
}

}  // namespace

FlagTable training_flags() {
  FlagTable table;
  for (const FlagTable& part :
       {job_flags(), step_flags(), optimizer_flags(), schedule_flags(), evaluation_flags(),
        logging_flags(), checkpoint_flags(), machine_flags()}) {
    table.insert(table.end(), part.begin(), part.end());
  }
  return table;
}

}  // namespace tandem::apps
