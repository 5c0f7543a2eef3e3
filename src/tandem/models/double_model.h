// An encoder with two logits per row in double precision, one scalar at a time, as the formulas
// stand in the papers: the oracle for the gradients (by central differences) and for the precision
// of bf16. Test only.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <numbers>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/kernels/dropout.h"
#include "tandem/models/encoder_model.h"

namespace tandem::models::testing {

class DoubleModel {
 public:
  using Matrix = std::vector<double>;  // row-major

  // Keeps references to all of them. `parameters`: [model.layout().size()].
  DoubleModel(const EncoderModel& model, const std::vector<double>& parameters,
              const nn::PackedBatch& batch, const nn::DropoutStream& dropout)
      : model_(model),
        config_(model.config()),
        parameters_(parameters),
        batch_(batch),
        dropout_(dropout),
        R(batch.rows()),
        H(config_.hidden_size),
        I(config_.intermediate_size) {}

  // [rows, 2]
  Matrix logits() const {
    Matrix x = embed();
    for (std::size_t l = 0; l < config_.num_hidden_layers; ++l) x = layer(l, x);
    drop(x, H, config_.num_hidden_layers, nn::DropoutPlace::kInput, config_.qa_dropout);
    return linear(x, "qa_outputs", 2, H);
  }

 private:
  const double* parameter(const std::string& name) const {
    const nn::ParameterSpec* spec = model_.layout().find(name);
    TANDEM_CHECK(spec != nullptr, "no parameter {}", name);
    return parameters_.data() + spec->offset;
  }
  std::string base() const { return std::string(config_.family->base_prefix); }

  Matrix embed() const {
    const std::string e = base() + "embeddings.";
    const double* word = parameter(e + "word_embeddings.weight");
    const double* position = parameter(e + "position_embeddings.weight");
    const double* type =
        config_.type_vocab_size > 0 ? parameter(e + "token_type_embeddings.weight") : nullptr;
    Matrix x(R * H);
    for (std::size_t r = 0; r < R; ++r) {
      for (std::size_t c = 0; c < H; ++c) {
        x[r * H + c] = word[batch_.input_ids[r] * H + c] +
                       position[batch_.position_ids[r] * H + c] +
                       (type ? type[batch_.token_type_ids[r] * H + c] : 0.0);
      }
    }
    layer_norm(x, e + "LayerNorm");
    drop(x, H, 0, nn::DropoutPlace::kInput, config_.hidden_dropout_prob);
    return x;
  }

  Matrix layer(std::size_t l, const Matrix& x) const {
    const LayerNames& names = config_.family->layer;
    const auto name = [&](std::string_view part) {
      return fmt::format("{}{}{}.{}", base(), names.layers, l, part);
    };
    Matrix context =
        attention(l, linear(x, name(names.query), H, H), linear(x, name(names.key), H, H),
                  linear(x, name(names.value), H, H));
    Matrix attended = linear(context, name(names.attention_output), H, H);
    drop(attended, H, l, nn::DropoutPlace::kAttentionOutput,
         config_.attention_output_dropout_prob());
    add(attended, x);
    layer_norm(attended, name(names.attention_norm));

    Matrix wide = linear(attended, name(names.intermediate), I, H);
    for (double& value : wide) value = activation(config_.hidden_act, value);
    Matrix y = linear(wide, name(names.output), H, I);
    drop(y, H, l, nn::DropoutPlace::kFeedForwardOutput, config_.hidden_dropout_prob);
    add(y, attended);
    layer_norm(y, name(names.output_norm));
    return y;
  }

  Matrix linear(const Matrix& x, const std::string& name, std::size_t out, std::size_t in) const {
    const double* weight = parameter(name + ".weight");
    const double* bias = parameter(name + ".bias");
    Matrix y(R * out);
    for (std::size_t r = 0; r < R; ++r) {
      for (std::size_t n = 0; n < out; ++n) {
        double sum = bias[n];
        for (std::size_t k = 0; k < in; ++k) sum += x[r * in + k] * weight[n * in + k];
        y[r * out + n] = sum;
      }
    }
    return y;
  }

  // Per sequence and head: softmax over its real rows, dropout on the probabilities, mean of the
  // values.
  Matrix attention(std::size_t l, const Matrix& q, const Matrix& k, const Matrix& v) const {
    const std::size_t D = config_.head_dim();
    Matrix out(R * H, 0.0);
    for (std::size_t s = 0; s < batch_.num_sequences(); ++s) {
      const std::size_t begin = batch_.row_begin[s];
      const std::size_t keys = batch_.key_count[s];
      for (std::size_t head = 0; head < config_.num_attention_heads; ++head) {
        kernels::Dropout site = dropout_.at(l, nn::DropoutPlace::kAttentionProbabilities,
                                            config_.attention_probs_dropout_prob);
        site.site += static_cast<std::uint32_t>(head);
        const kernels::DropoutMask mask = kernels::dropout_mask(site, batch_.sample[s]);
        for (std::size_t r = begin; r < batch_.row_begin[s + 1]; ++r) {
          std::vector<double> p(keys);
          double total = 0;
          for (std::size_t j = 0; j < keys; ++j) {
            double score = 0;
            for (std::size_t d = head * D; d < (head + 1) * D; ++d)
              score += q[r * H + d] * k[(begin + j) * H + d];
            p[j] = std::exp(score / std::sqrt(static_cast<double>(D)));
            total += p[j];
          }
          for (std::size_t j = 0; j < keys; ++j) {
            const double factor = p[j] / total * mask_factor(mask, site.p, r - begin, j);
            for (std::size_t d = head * D; d < (head + 1) * D; ++d)
              out[r * H + d] += factor * v[(begin + j) * H + d];
          }
        }
      }
    }
    return out;
  }

  void layer_norm(Matrix& x, const std::string& name) const {
    const double* gamma = parameter(name + ".weight");
    const double* beta = parameter(name + ".bias");
    const double n = static_cast<double>(H);
    for (std::size_t r = 0; r < R; ++r) {
      double* row = &x[r * H];
      double mean = 0;
      double variance = 0;
      for (std::size_t c = 0; c < H; ++c) mean += row[c] / n;
      for (std::size_t c = 0; c < H; ++c) variance += (row[c] - mean) * (row[c] - mean) / n;
      const double rstd = 1 / std::sqrt(variance + config_.layer_norm_eps);
      for (std::size_t c = 0; c < H; ++c) row[c] = (row[c] - mean) * rstd * gamma[c] + beta[c];
    }
  }

  void drop(Matrix& x, std::size_t columns, std::size_t l, nn::DropoutPlace place, double p) const {
    const kernels::Dropout site = dropout_.at(l, place, p);
    for (std::size_t s = 0; s < batch_.num_sequences(); ++s) {
      const kernels::DropoutMask mask = kernels::dropout_mask(site, batch_.sample[s]);
      for (std::size_t r = batch_.row_begin[s]; r < batch_.row_begin[s + 1]; ++r) {
        for (std::size_t c = 0; c < columns; ++c) {
          x[r * columns + c] *= mask_factor(mask, site.p, r - batch_.row_begin[s], c);
        }
      }
    }
  }

  static double mask_factor(const kernels::DropoutMask& mask, float p, std::size_t row,
                            std::size_t column) {
    if (p == 0) return 1;
    return kernels::dropout_factor(mask, static_cast<std::uint32_t>(row),
                                   static_cast<std::uint32_t>(column));
  }

  static void add(Matrix& y, const Matrix& x) {
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += x[i];
  }

  static double activation(kernels::Activation kind, double x) {
    switch (kind) {
      case kernels::Activation::kRelu:
        return x > 0 ? x : 0;
      case kernels::Activation::kGelu:
        return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
      case kernels::Activation::kGeluNew:
        return 0.5 * x *
               (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
      case kernels::Activation::kTanh:
        return std::tanh(x);
    }
    return 0;
  }

  const EncoderModel& model_;
  const ModelConfig& config_;
  const std::vector<double>& parameters_;
  const nn::PackedBatch& batch_;
  const nn::DropoutStream dropout_;
  const std::size_t R;
  const std::size_t H;
  const std::size_t I;
};

}  // namespace tandem::models::testing
