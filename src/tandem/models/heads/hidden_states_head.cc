#include "tandem/models/heads/hidden_states_head.h"

#include <algorithm>
#include <utility>

#include "tandem/core/error.h"

namespace tandem::models {
namespace {

constexpr std::size_t kRowsPerChunk = 32;

}  // namespace

HiddenStatesHead::HiddenStatesHead(std::string class_suffix, const ModelConfig& config)
    : Head({.class_suffix = std::move(class_suffix),
            .unit = HeadShape::Unit::kRow,
            .num_labels = config.hidden_size,
            .outside = true,
            .shares_word_embeddings = config.tie_word_embeddings}) {}

void HiddenStatesHead::forward(const nn::Pass&, std::span<const float> hidden, std::span<float>,
                               std::span<float> logits) const {
  std::copy_n(hidden.begin(), logits.size(), logits.begin());
}

void HiddenStatesHead::backward(const nn::Pass&, std::span<const float>, std::span<float>,
                                std::span<const float> grad_logits, std::span<float> grad_hidden,
                                const nn::Gradients&) const {
  std::copy_n(grad_logits.begin(), grad_hidden.size(), grad_hidden.begin());
}

void gather_rows(const kernels::Context& context, std::span<const float> hidden,
                 std::span<const std::uint32_t> rows, std::size_t hidden_size,
                 std::span<float> to) {
  context.threads.parallel_for(num_chunks(rows.size(), kRowsPerChunk), [&](std::size_t chunk, int) {
    const std::size_t end = std::min(rows.size(), (chunk + 1) * kRowsPerChunk);
    for (std::size_t i = chunk * kRowsPerChunk; i < end; ++i)
      std::copy_n(hidden.data() + rows[i] * hidden_size, hidden_size, to.data() + i * hidden_size);
  });
}

void spread_rows(std::span<const float> grad_rows, std::span<const std::uint32_t> rows,
                 std::size_t hidden_size, std::span<float> grad_hidden) {
  std::fill(grad_hidden.begin(), grad_hidden.end(), 0.0f);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::copy_n(grad_rows.data() + i * hidden_size, hidden_size,
                grad_hidden.data() + rows[i] * hidden_size);
  }
}

std::size_t offset_of(const nn::ParameterLayout& layout, const std::string& name) {
  const nn::ParameterSpec* const found = layout.find(name);
  TANDEM_CHECK(found != nullptr, "the layout has no {}", name);
  return found->offset;
}

}  // namespace tandem::models
