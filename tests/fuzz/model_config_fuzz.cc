// config.json. An accepted configuration is a model that can be built and written, and reads back
// as itself.
#include <cstdint>
#include <string_view>

#include "fuzz/memory.h"
#include "fuzz/require.h"
#include "tandem/core/error.h"
#include "tandem/models/encoder/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tandem;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // Unknown keys are written with two blanks for each of 64 levels, as in trainer_state_fuzz.cc; a
  // few bytes may ask for 16,384 labels, which are there as names, as two maps and as text.
  const fuzz::MemoryLimit limit(512 * size + (std::size_t{20} << 20));
  try {
    const auto config = models::ModelConfig::parse(text, "input");
    config.validate("input");
    fuzz::require(config.num_attention_heads > 0 &&
                  config.head_dim() * config.num_attention_heads == config.hidden_size);
    const std::string written = config.to_json("Architecture");
    const auto again = models::ModelConfig::parse(written, "written");
    fuzz::require(again.hidden_size == config.hidden_size &&
                  again.vocab_size == config.vocab_size &&
                  again.to_json("Architecture") == written);
  } catch (const ConfigError&) {
  }
  return 0;
}
