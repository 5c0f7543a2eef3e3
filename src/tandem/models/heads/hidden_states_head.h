// Parts that the heads of language models share. A batch has many rows, of which the task chooses
// those whose tokens count. So the model's head passes hidden states on, and the task computes the
// logits of the chosen rows.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tandem/kernels/context.h"
#include "tandem/models/encoder/head.h"

namespace tandem::models {

// Logits are the hidden states, [R, H].
class HiddenStatesHead : public Head {
 public:
  HiddenStatesHead(std::string class_suffix, const ModelConfig& config);

  void forward(const nn::Pass&, std::span<const float> hidden, std::span<float>,
               std::span<float> logits) const override;
  void backward(const nn::Pass&, std::span<const float>, std::span<float>,
                std::span<const float> grad_logits, std::span<float> grad_hidden,
                const nn::Gradients&) const override;
};

// to [rows, H] = the rows of hidden [R, H] that `rows` names.
void gather_rows(const kernels::Context& context, std::span<const float> hidden,
                 std::span<const std::uint32_t> rows, std::size_t hidden_size, std::span<float> to);
// The reverse: every other row of grad_hidden [R, H] is zero.
void spread_rows(std::span<const float> grad_rows, std::span<const std::uint32_t> rows,
                 std::size_t hidden_size, std::span<float> grad_hidden);

// The offset of a parameter that the layout has.
std::size_t offset_of(const nn::ParameterLayout& layout, const std::string& name);

}  // namespace tandem::models
