// The flags of adapters (--use_peft), with the names and defaults of TRL's ModelConfig.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::job {

struct LoraArguments {
  bool use_peft = false;  // freeze the model and train adapters
  std::int64_t lora_r = 16;
  double lora_alpha = 32;
  double lora_dropout = 0.05;
  std::vector<std::string> lora_target_modules;   // empty: those of the family
  std::vector<std::string> lora_modules_to_save;  // in addition to the head's
  bool use_rslora = false;
};

}  // namespace tandem::job
