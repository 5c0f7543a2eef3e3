// How to train: Hugging Face's TrainingArguments for CPUs, with its field names, types and defaults
// (transformers 4.46; where later versions changed only a name, the newest name). Flags that cannot
// matter on a CPU, or that tandem refuses, have no field here: apps/arguments knows them all and
// states what becomes of each. Plain structs without behaviour; copied freely; validated once by
// apps/arguments::parse_run_qa.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tandem/core/log_line.h"
#include "tandem/optim/optimizer.h"
#include "tandem/optim/schedule.h"

namespace tandem::trainer {

// When something periodic happens.
enum class IntervalStrategy { kNo, kSteps, kEpoch };

// When a checkpoint is written; kBest: whenever the metric improves.
enum class SaveStrategy { kNo, kSteps, kEpoch, kBest };

// Order of the training samples: a new permutation in every epoch, always that of the file, or the
// permutation with samples of similar length side by side.
enum class SamplingStrategy { kRandom, kSequential, kGroupByLength };

using LrSchedulerType = optim::ScheduleType;
using OptimizerName = optim::OptimizerName;

// The library that carries messages between ranks (comm/network/transport_options.h). kCcl:
// tandem's own.
enum class DdpBackend { kCcl, kMpi, kGloo };

// transformers' log levels; kPassive leaves the default (info on the main process).
enum class LogLevel { kDetail, kDebug, kInfo, kWarning, kError, kCritical, kPassive };

// Type to which the sums of gradients over the shards are rounded, and in which they travel between
// nodes.
enum class GradientDtype { kFloat32, kBfloat16 };

// Which tokens --include_num_input_tokens_seen counts: none, those of the batches as they are
// computed, or those that are not padding.
enum class TokenCount { kNo, kAll, kNonPadding };

struct TrainingArguments {
  // --- what to do, and where results go ---
  std::string output_dir = "trainer_output";  // a leading ~ is already expanded
  bool overwrite_output_dir = false;  // continue although output_dir is not empty; no automatic
                                      // resume
  bool do_train = false;
  bool do_eval = false;  // set as well when eval_strategy is not "no"
  bool do_predict = false;

  // --- batches and steps ---
  int per_device_train_batch_size = 8;  // features per rank and micro-batch
  int per_device_eval_batch_size = 8;
  bool split_batches = false;           // the batch sizes are those of all ranks together
  int gradient_accumulation_steps = 1;  // micro-batches per update
  double num_train_epochs = 3.0;        // fractions allowed
  std::int64_t max_steps = -1;          // > 0: wins over num_train_epochs; < 0: unset
  // false: the last round of an epoch is not filled up with samples from its beginning; its last
  // shard then has a smaller batch, and a shard without any is refused (accelerate's even_batches).
  bool even_batches = true;
  bool dataloader_drop_last = false;  // training only: leave the incomplete tail of an epoch out
  int dataloader_num_workers = 0;
  SamplingStrategy train_sampling_strategy = SamplingStrategy::kRandom;

  // --- optimizer ---
  OptimizerName optim = OptimizerName::kAdamwTorch;
  std::string optim_args;             // "key=value,key=value": settings of sgd, adagrad, adafactor
  double learning_rate = 5e-5;        // the peak
  std::string learning_rate_mapping;  // JSON {"regular expression": rate}; empty: none
  double weight_decay = 0.0;          // not for biases and LayerNorm weights
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  double max_grad_norm = 1.0;  // global L2 norm; 0 or less: no clipping

  std::optional<double> neftune_noise_alpha;  // noise on the embeddings of training; unset: none

  // --- learning-rate schedule ---
  LrSchedulerType lr_scheduler_type = LrSchedulerType::kLinear;
  std::string lr_scheduler_kwargs = "{}";  // JSON: settings of the type (optim/schedule.h)
  // Both may be given: steps win. warmup_steps < 1 was moved to warmup_ratio (transformers 5.x), so
  // this one is whole.
  std::int64_t warmup_steps = 0;
  double warmup_ratio = 0.0;  // share of all steps, rounded up

  // --- evaluation during training ---
  IntervalStrategy eval_strategy = IntervalStrategy::kNo;
  // In the three *_steps a value < 1 is a share of max_steps (rounded up), otherwise it is whole.
  // eval_steps is never empty after parsing when eval_strategy is "steps": it follows
  // logging_steps.
  std::optional<double> eval_steps;
  double eval_delay = 0;  // steps or epochs (as eval_strategy counts) before the first evaluation
  bool eval_on_start = false;

  // --- logging ---
  IntervalStrategy logging_strategy = IntervalStrategy::kSteps;
  double logging_steps = 500;
  bool logging_first_step = false;
  bool logging_nan_inf_filter = true;  // the log counts a non-finite loss as the running average
  LogLevel log_level = LogLevel::kPassive;
  LogLevel log_level_replica = LogLevel::kWarning;
  bool log_on_each_node = true;
  std::optional<LogFormat> log_format;  // tandem's own; unset: TANDEM_LOG_FORMAT
  TokenCount include_num_input_tokens_seen = TokenCount::kNo;
  bool include_tokens_per_second = false;
  // False: the metrics have what each stage took (memory_tracker.h).
  bool skip_memory_metrics = true;
  std::optional<bool> disable_tqdm;  // set after parsing: true when the log level is above warning
  std::optional<std::string> run_name;     // unset: output_dir
  std::vector<std::string> report_to;      // what works of it: "tensorboard", or empty
  std::optional<std::string> logging_dir;  // for TensorBoard; unset: output_dir/runs/<time>_<host>

  // --- checkpoints ---
  SaveStrategy save_strategy = SaveStrategy::kSteps;
  double save_steps = 500;
  std::optional<int> save_total_limit;  // keep the newest n (and the best); > 0 after parsing
  bool save_only_model = false;         // no optimizer state: such a checkpoint cannot be resumed
  bool save_safetensors = true;         // false: weights as pytorch_model.bin
  bool save_on_each_node = false;
  std::optional<std::string> resume_from_checkpoint;  // a checkpoint directory
  bool ignore_data_skip = false;  // after a resume start the epoch's data from its beginning
  bool load_best_model_at_end = false;
  // Both are set after parsing when load_best_model_at_end: the metric is f1 unless given (with or
  // without the prefix "eval_"), greater_is_better false for names that end in "loss".
  std::optional<std::string> metric_for_best_model;
  std::optional<bool> greater_is_better;

  // --- numbers ---
  std::int64_t seed = 42;
  std::optional<std::int64_t> data_seed;  // order of the data; unset: seed
  bool bf16 = false;  // bf16 matrix products with f32 sums; f32 weights and optimizer
  bool bf16_full_eval = false;
  bool gradient_checkpointing = false;

  // --- several ranks ---
  DdpBackend ddp_backend = DdpBackend::kCcl;
  std::int64_t ddp_timeout = 1800;  // seconds until waiting for another rank is an error
  // Size of the ranges in which gradients are reduced; unset: 25.
  std::optional<int> ddp_bucket_cap_mb;
  // tandem's own (docs/numerics.md). Number of logical shards of a step; unset: the world size at
  // start.
  std::optional<int> logical_shards;
  GradientDtype gradient_dtype = GradientDtype::kFloat32;
};

}  // namespace tandem::trainer
