#include "apps/arguments/flags.h"
#include "tandem/job/lora_arguments.h"

namespace tandem::apps {

FlagTable lora_flags() {
  using job::LoraArguments;
  constexpr std::string_view kQuantizedBase =
      "the frozen model is kept in f32, or in bf16 with --bf16";
  return grouped(
      "Adapters",
      {
          flag("use_peft", field<&LoraArguments::use_peft>(),
               "freeze the model and train low-rank adapters, in PEFT's files"),
          flag("lora_r", field<&LoraArguments::lora_r>(), "rank of the adapters").between(1, 65536),
          flag("lora_alpha", field<&LoraArguments::lora_alpha>(),
               "adapters are scaled by lora_alpha / lora_r"),
          flag("lora_dropout", field<&LoraArguments::lora_dropout>(),
               "dropout of what an adapter reads")
              .between(0, 0.999),
          flag("lora_target_modules", field<&LoraArguments::lora_target_modules>(),
               "layers with adapters: ends of names, one regular expression, or all-linear; unset: "
               "PEFT's for the family, as query value"),
          flag("lora_modules_to_save", field<&LoraArguments::lora_modules_to_save>(),
               "modules to train whole and save, in addition to the head"),
          flag("use_rslora", field<&LoraArguments::use_rslora>(),
               "scale adapters by lora_alpha / √lora_r"),
          note("lora_task_type", Kind::kString, nullptr, "the command states the task"),
          refused("use_dora", Kind::kBool, false, "adapters are plain LoRA; leave it out"),
          refused("load_in_8bit", Kind::kBool, false, kQuantizedBase),
          refused("load_in_4bit", Kind::kBool, false, kQuantizedBase),
      });
}

}  // namespace tandem::apps
