// config.json. What is accepted is a model that can be built and written, and reads back as itself.
#include <cstdint>
#include <string_view>

#include "fuzz/require.h"
#include "tandem/core/error.h"
#include "tandem/models/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tandem;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
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
