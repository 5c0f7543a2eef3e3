// Texts that a decoder continues: for `tandem generate`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/answering/inference_model.h"
#include "apps/answering/sampling.h"
#include "tandem/core/thread_pool.h"
#include "tandem/kernels/packed_weight.h"

namespace tandem::apps {

struct GenerationOptions {
  std::size_t max_new_tokens = 100;
  SamplingOptions sampling;
};

struct Generation {
  std::string text;  // without special tokens
  std::vector<std::int32_t> tokens;
  bool stopped = false;  // by the end-of-text token; else by max_new_tokens
};

// Not thread-safe.
class Generator {
 public:
  // found: with decoder_families().
  Generator(const FoundModel& found, const Environment& environment);

  // on_text gets each piece of the text as soon as its characters are complete. Throws DataError
  // for an empty prompt or one that is not UTF-8, ConfigError when the model has too few positions.
  Generation generate(std::string_view prompt, const GenerationOptions& options,
                      FunctionRef<void(std::string_view)> on_text);

  const InferenceModel& model() const { return model_; }

 private:
  std::vector<std::int32_t> encode(std::string_view prompt) const;
  // The logits behind the last of these tokens.
  std::span<const float> logits_behind(std::span<const std::int32_t> tokens,
                                       models::KeyValues& past);

  InferenceModel model_;
  kernels::PackedWeight<float> output_;  // [V, H]
  std::vector<std::int32_t> end_tokens_;
  std::vector<float> hidden_, logits_;
};

}  // namespace tandem::apps
