// A head that is not tandem's own: two logits of a sequence, from the mean of its real rows.
#pragma once

#include <algorithm>
#include <memory>

#include "tandem/models/head.h"
#include "tandem/nn/linear.h"

namespace tandem::toy {

class MeanHead final : public models::Head {
 public:
  static constexpr std::size_t kLabels = 2;

  MeanHead(const models::ModelConfig& config, nn::ParameterLayout& layout)
      : linear_(layout.add_linear("head", "choice", kLabels, config.hidden_size)) {}

  std::string_view class_suffix() const override { return "ForWordCounts"; }
  std::size_t num_logits(std::size_t, std::size_t sequences) const override {
    return sequences * kLabels;
  }
  double multiply_adds(double, double sequences) const override {
    return sequences * static_cast<double>(kLabels * linear_.in_features);
  }
  // The means, and their gradient.
  std::size_t memory(std::size_t, std::size_t sequences, bool training) const override {
    return (training ? 2 : 1) * sequences * linear_.in_features;
  }

  void forward(const nn::Pass& pass, std::span<const float> hidden, std::span<float> memory,
               std::span<float> logits) const override {
    const std::size_t H = linear_.in_features;
    const std::span<float> means = memory.first(pass.sequences.count() * H);
    std::fill(means.begin(), means.end(), 0.0f);
    for (std::size_t s = 0; s < pass.sequences.count(); ++s) {
      const float share = 1.0f / static_cast<float>(pass.sequences.key_count[s]);
      for (std::size_t k = 0; k < pass.sequences.key_count[s] * H; ++k)
        means[s * H + k % H] += share * hidden[pass.sequences.row_begin[s] * H + k];
    }
    nn::linear_forward<float>(pass, linear_, means, logits);
  }

  void backward(const nn::Pass& pass, std::span<const float>, std::span<float> memory,
                std::span<const float> grad_logits, std::span<float> grad_hidden,
                const nn::Gradients& grads) const override {
    const std::size_t H = linear_.in_features;
    const std::size_t size = pass.sequences.count() * H;
    const std::span<float> grad_means = memory.subspan(size, size);
    nn::linear_backward<float, float>(pass, linear_, memory.first(size), grad_logits, grad_means,
                                      /*accumulate_grad_x=*/false, grads);
    std::fill(grad_hidden.begin(), grad_hidden.end(), 0.0f);
    for (std::size_t s = 0; s < pass.sequences.count(); ++s) {
      const float share = 1.0f / static_cast<float>(pass.sequences.key_count[s]);
      for (std::size_t k = 0; k < pass.sequences.key_count[s] * H; ++k)
        grad_hidden[pass.sequences.row_begin[s] * H + k] = share * grad_means[s * H + k % H];
    }
  }

 private:
  nn::Linear linear_;
};

inline std::unique_ptr<models::Head> make_mean_head(const models::ModelConfig& config,
                                                    nn::ParameterLayout& layout) {
  return std::make_unique<MeanHead>(config, layout);
}

}  // namespace tandem::toy
