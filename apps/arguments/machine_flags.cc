// The flags of TrainingArguments about where and how a job computes: types of numbers, devices and
// compilers, ranks, the Hub.
#include "apps/arguments/accelerator_config.h"
#include "apps/arguments/flags.h"

namespace tandem::apps {
namespace {

using trainer::TrainingArguments;

constexpr std::string_view kBuiltInKernels = "the built-in kernels are always used";
constexpr std::string_view kNoHubAccess = "nothing is pushed to the Hub";
constexpr std::string_view kOnlyCpus = "tandem computes on CPUs only; remove the flag";

FlagTable number_flags() {
  constexpr std::string_view kUseBf16 = "16-bit floats are for GPUs; use --bf16";
  return grouped(
      "Numbers and kernels",
      {
          flag("bf16", field<&TrainingArguments::bf16>(),
               "bf16 matrix products with f32 sums; weights and optimizer stay f32"),
          flag("bf16_full_eval", field<&TrainingArguments::bf16_full_eval>(),
               "bf16 matrix products in runs that only evaluate"),
          flag("gradient_checkpointing", field<&TrainingArguments::gradient_checkpointing>(),
               "keep only the output of each layer and compute the rest again in backward")
              .alias("activation_checkpointing"),
          note("gradient_checkpointing_kwargs", Kind::kDict, nullptr,
               "recomputation has no settings here")
              .alias("activation_checkpointing_kwargs"),
          flag(
              "gradient_dtype", field<&TrainingArguments::gradient_dtype>(),
              "tandem's own: bf16 rounds every sum of gradients to bf16, which halves what travels "
              "between nodes"),
          accepted("use_cpu", Kind::kBool, false, "compute on the CPU, which tandem always does"),
          note("no_cuda", Kind::kBool, false,
               "tandem always computes on CPUs (since transformers 4.32 the flag is --use_cpu)"),
          note("use_ipex", Kind::kBool, false, kBuiltInKernels),
          note("jit_mode_eval", Kind::kBool, false, kBuiltInKernels),
          note("torch_compile", Kind::kBool, false, kBuiltInKernels),
          note("torch_compile_backend", Kind::kString, nullptr, kBuiltInKernels),
          note("torch_compile_mode", Kind::kString, nullptr, kBuiltInKernels),
          note("torchdynamo", Kind::kString, nullptr, kBuiltInKernels),
          note("use_liger_kernel", Kind::kBool, false, kBuiltInKernels),
          note("liger_kernel_config", Kind::kDict, nullptr, kBuiltInKernels),
          note("fp16_opt_level", Kind::kString, "O1", kBuiltInKernels),
          note("fp16_backend", Kind::kString, "auto", kBuiltInKernels),
          note("half_precision_backend", Kind::kString, "auto", kBuiltInKernels),
          note("tf32", Kind::kBool, nullptr, kBuiltInKernels),
          note("torch_empty_cache_steps", Kind::kInteger, nullptr, "there is no such cache"),
          refused("fp16", Kind::kBool, false, kUseBf16),
          refused("fp16_full_eval", Kind::kBool, false, kUseBf16),
          refused("use_mps_device", Kind::kBool, false, kOnlyCpus),
          refused("tpu_num_cores", Kind::kInteger, nullptr, kOnlyCpus),
          refused("tpu_metrics_debug", Kind::kBool, false, kOnlyCpus),
      });
}

FlagTable rank_flags() {
  constexpr std::string_view kOtherHardware = "that library is for other hardware; use ccl";
  constexpr std::string_view kDataParallel =
      "every rank holds the whole model; start more ranks with mpirun or torchrun";
  Flag backend =
      flag("ddp_backend", field<&TrainingArguments::ddp_backend>(),
           "whose library carries messages between ranks: ccl is tandem's own, over tcp or "
           "what CCL_ATL_TRANSPORT names")
          .alias("xpu_backend", "is the old name of --ddp_backend");
  for (const char* name : {"nccl", "hccl", "cncl", "mccl", "xccl"}) {
    backend.rule(name, Verdict::kRefused, kOtherHardware);
  }
  return grouped(
      "Ranks",
      {
          backend,
          flag("ddp_timeout", field<&TrainingArguments::ddp_timeout>(),
               "seconds to wait for another rank")
              .at_least(1),
          flag("ddp_bucket_cap_mb", field<&TrainingArguments::ddp_bucket_cap_mb>(),
               "size of the gradient ranges that are reduced together")
              .between(1, 1 << 20),
          flag("logical_shards", field<&TrainingArguments::logical_shards>(),
               "tandem's own: shards of a step; unset: the number of ranks, or what a checkpoint "
               "has")
              .between(1, 1 << 20),
          note("local_rank", Kind::kInteger, -1,
               "the launcher's environment has the number of this rank"),
          note("ddp_find_unused_parameters", Kind::kBool, nullptr, "every parameter is used"),
          note("ddp_static_graph", Kind::kBool, nullptr, "every step computes the same anyway"),
          note("ddp_broadcast_buffers", Kind::kBool, nullptr, "these models have no buffers"),
          note("average_tokens_across_devices", Kind::kBool, false,
               "the loss is a mean over features, as Hugging Face's is here"),
          flag("accelerator_config", accelerator_config_binding(),
               "even_batches, split_batches and gradient_accumulation_kwargs.num_steps "
               "(docs/training.md)"),
          flag("split_batches", field<&TrainingArguments::split_batches>(),
               "per_device_train_batch_size is that of all ranks together"),
          note("dispatch_batches", Kind::kBool, nullptr, "every rank reads its own batches"),
          note("ray_scope", Kind::kString, "last", "there is no hyperparameter search"),
          note("mp_parameters", Kind::kString, "", "it belongs to SageMaker"),
          note("_n_gpu", Kind::kInteger, -1, "there are no GPUs"),
          refused("deepspeed", Kind::kDict, nullptr, kDataParallel),
          refused("fsdp", Kind::kList, nullptr, kDataParallel),
          refused("fsdp_config", Kind::kDict, nullptr, kDataParallel),
          refused("fsdp_min_num_params", Kind::kInteger, 0, kDataParallel),
          refused("fsdp_transformer_layer_cls_to_wrap", Kind::kString, nullptr, kDataParallel),
          refused("sharded_ddp", Kind::kString, "", kDataParallel),
          refused("parallelism_config", Kind::kDict, nullptr, kDataParallel),
          refused("tp_size", Kind::kInteger, 0, kDataParallel),
      });
}

FlagTable hub_flags() {
  return grouped("Hub",
                 {
                     refused("push_to_hub", Kind::kBool, false,
                             "upload output_dir with huggingface-cli instead"),
                     note("hub_model_id", Kind::kString, nullptr, kNoHubAccess),
                     note("hub_strategy", Kind::kString, "every_save", kNoHubAccess),
                     note("hub_token", Kind::kString, nullptr, kNoHubAccess).as_secret(),
                     note("hub_private_repo", Kind::kBool, nullptr, kNoHubAccess).with_bare(),
                     note("hub_always_push", Kind::kBool, false, kNoHubAccess),
                     note("hub_revision", Kind::kString, nullptr, kNoHubAccess),
                     note("push_to_hub_model_id", Kind::kString, nullptr, kNoHubAccess),
                     note("push_to_hub_organization", Kind::kString, nullptr, kNoHubAccess),
                     note("push_to_hub_token", Kind::kString, nullptr, kNoHubAccess).as_secret(),
                 });
}

}  // namespace

FlagTable machine_flags() {
  FlagTable table;
  for (const FlagTable& part : {number_flags(), rank_flags(), hub_flags()})
    table.insert(table.end(), part.begin(), part.end());
  return table;
}

}  // namespace tandem::apps
