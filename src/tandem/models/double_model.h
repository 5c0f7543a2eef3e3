// An encoder with two logits per row, or with the family's head of texts, in double precision, one
// scalar at a time, as the formulas stand in the papers: the oracle for the gradients (by central
// differences) and for the precision of bf16. Test only.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/kernels/attention.h"
#include "tandem/kernels/disentangled_attention.h"
#include "tandem/kernels/dropout.h"
#include "tandem/models/encoder/encoder_model.h"
#include "tandem/models/encoder/lora.h"
#include "tandem/models/heads/prediction_head.h"
#include "tandem/models/layers/post_norm/relative_bias.h"
#include "tandem/models/layers/post_norm/relative_embeddings.h"
#include "tandem/models/test_models.h"

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
    Matrix x = hidden();
    const std::size_t L = config_.num_hidden_layers;
    if (has_prediction_head(config_)) {
      x = predict(x);
      drop(x, H, L, nn::DropoutSite::kHeadHidden, config_.token_head_dropout_prob());
      return linear(x, std::string(config_.family->prediction_head.output), 2, H);
    }
    drop(x, H, L, nn::DropoutSite::kInput, config_.qa_dropout);
    return linear(x, "qa_outputs", 2, H);
  }

  // [sequences, num_labels]
  Matrix sequence_logits(std::size_t num_labels) const {
    const SequenceHeadParts& head = config_.family->sequence_head;
    const std::size_t L = config_.num_hidden_layers;
    const double rate = config_.sequence_head_dropout_prob();
    const Matrix rows = hidden();
    Matrix x;
    for (std::size_t s = 0; s < batch_.num_sequences(); ++s) {
      const auto first = rows.begin() + static_cast<std::ptrdiff_t>(batch_.row_begin[s] * H);
      x.insert(x.end(), first, first + static_cast<std::ptrdiff_t>(H));
    }
    if (has_prediction_head(config_)) {
      x = predict(x);
      drop_first_rows(x, L, nn::DropoutSite::kHeadHidden, rate);
      return linear(x, std::string(config_.family->prediction_head.output), num_labels, H);
    }
    if (head.drops_input) drop_first_rows(x, L, nn::DropoutSite::kInput, rate);
    x = linear(x, std::string(head.dense), H, H);
    for (double& value : x) value = activation(head.activation, value);
    drop_first_rows(x, L, nn::DropoutSite::kHeadHidden, rate);
    return linear(x, std::string(head.output), num_labels, H);
  }

 private:
  const double* parameter(const std::string& name) const {
    const nn::ParameterSpec* spec = model_.layout().find(name);
    TANDEM_CHECK(spec != nullptr, "no parameter {}", name);
    return parameters_.data() + spec->offset;
  }
  // Null for one that the model does not have.
  const double* optional_parameter(const std::string& name) const {
    return model_.layout().find(name) == nullptr ? nullptr : parameter(name);
  }
  std::string base() const { return std::string(config_.family->base_prefix); }

  Matrix hidden() const {
    Matrix x = embed();
    const PreNormNames* modern = pre_norm_names(*config_.family);
    for (std::size_t l = 0; l < config_.num_hidden_layers; ++l)
      x = modern == nullptr ? layer(l, x) : pre_norm_layer(*modern, l, std::move(x));
    if (modern != nullptr) pre_norm_norm(x, base() + std::string(modern->final_norm));
    return x;
  }

  // The part of ModernBERT's heads in front of dropout and output layer.
  Matrix predict(const Matrix& rows) const {
    const PredictionHeadParts& head = config_.family->prediction_head;
    Matrix x = linear(rows, std::string(head.dense), H, H);
    for (double& value : x) value = activation(config_.classifier_activation, value);
    layer_norm(x, std::string(head.norm), H);
    return x;
  }

  Matrix embed() const {
    const EmbeddingNames& names = config_.family->embeddings;
    const std::string e = base() + std::string(names.prefix);
    const double* word = parameter(word_embeddings_name(*config_.family));
    const double* position = optional_parameter(fmt::format("{}{}.weight", e, names.position));
    const double* type =
        config_.type_vocab_size > 0 ? parameter(e + "token_type_embeddings.weight") : nullptr;
    const std::size_t E = config_.embedding_width();
    Matrix x(R * E);
    for (std::size_t s = 0; s < batch_.num_sequences(); ++s) {
      for (std::size_t r = batch_.row_begin[s]; r < batch_.row_begin[s + 1]; ++r) {
        const std::size_t p = position_of(batch_.row_begin[s], r);
        const std::size_t t = config_.family->reads_token_types ? batch_.token_type_ids[r] : 0;
        for (std::size_t c = 0; c < E; ++c) {
          x[r * E + c] = word[batch_.input_ids[r] * E + c] +
                         (position ? position[p * E + c] : 0.0) + (type ? type[t * E + c] : 0.0);
        }
      }
    }
    if (!names.norm.empty()) layer_norm(x, e + std::string(names.norm), E);
    drop(x, E, 0, nn::DropoutSite::kInput, config_.embeddings_dropout_prob());
    return E == H ? x : linear(x, base() + "embeddings_project", H, E);
  }

  // As the families define it: counting rows, or tokens that are not the padding.
  std::size_t position_of(std::size_t begin, std::size_t row) const {
    if (config_.family->positions != nn::Positions::kTokens) return row - begin;
    const auto pad = static_cast<std::size_t>(config_.pad_token_id);
    if (batch_.input_ids[row] == config_.pad_token_id) return pad;
    const auto first = batch_.input_ids.begin();
    const auto to = [&](std::size_t r) { return first + static_cast<std::ptrdiff_t>(r); };
    const auto pads = std::count(to(begin), to(row + 1), config_.pad_token_id);
    return pad + (row + 1 - begin) - static_cast<std::size_t>(pads);
  }

  Matrix layer(std::size_t l, const Matrix& x) const {
    const PostNormNames& names = layer_names(*config_.family);
    const auto name = [&](std::string_view part) {
      return fmt::format("{}{}{}.{}", base(), names.layers, l, part);
    };
    Matrix context =
        attention(l, linear(x, name(names.query), H, H), linear(x, name(names.key), H, H),
                  linear(x, name(names.value), H, H), {}, positions(l, names));
    Matrix attended = linear(context, name(names.attention_output), H, H);
    drop(attended, H, l, nn::DropoutSite::kAttentionOutput,
         config_.attention_output_dropout_prob());
    add(attended, x);
    layer_norm(attended, name(names.attention_norm), H);

    Matrix wide = linear(attended, name(names.intermediate), I, H);
    for (double& value : wide) value = activation(config_.hidden_act, value);
    Matrix y = linear(wide, name(names.output), H, I);
    drop(y, H, l, nn::DropoutSite::kFeedForwardOutput, config_.hidden_dropout_prob);
    add(y, attended);
    layer_norm(y, name(names.output_norm), H);
    return y;
  }

  Matrix pre_norm_layer(const PreNormNames& names, std::size_t l, Matrix x) const {
    const PreNormForm& form = pre_norm(*config_.family)->form();
    const auto name = [&](std::string_view part) {
      return fmt::format("{}{}{}.{}", base(), names.layers, l, part);
    };
    Matrix h = x;
    if (l > 0 || form.first_norm) pre_norm_norm(h, name(names.attention_norm));
    const std::size_t D = config_.head_dim(), C = config_.num_attention_heads * D;
    const std::size_t keys = key_heads() * D;
    std::vector<Matrix> parts =
        wide(h, {names.qkv.begin(), names.qkv.end()}, {C, keys, keys}, name);
    if (!names.query_norm.empty()) {
      norm(parts[0], name(names.query_norm), D, true);
      norm(parts[1], name(names.key_norm), D, true);
    }
    const bool global = config_.attention.is_global(l);
    const double theta = global ? config_.attention.global_theta : config_.attention.local_theta;
    if (form.rotary) {
      rotate(parts[0], theta, C);
      rotate(parts[1], theta, keys);
    }
    kernels::Window window;
    if (!global) window = kernels::Window::around(config_.attention.local_window());
    if (form.causal) window = kernels::Window::causal();
    Matrix attended = linear(attention(l, parts[0], parts[1], parts[2], window),
                             name(names.attention_output), H, C);
    if (config_.family->attention_output_dropout) {
      drop(attended, H, l, nn::DropoutSite::kAttentionOutput,
           form.drops_residuals ? config_.hidden_dropout_prob
                                : config_.attention_probs_dropout_prob);
    }
    add(x, attended);

    h = x;
    pre_norm_norm(h, name(names.feed_forward_norm));
    std::vector<std::size_t> sizes = {I};
    if (form.gated) sizes.push_back(I);
    const std::vector<Matrix> parts_of_up =
        wide(h, {names.up.begin(), names.up.end()}, sizes, name);
    Matrix active(R * I);
    for (std::size_t i = 0; i < active.size(); ++i) {
      active[i] = activation(config_.hidden_act, parts_of_up[0][i]);
      if (form.gated) active[i] *= parts_of_up[1][i];
    }
    const auto drop_here = [&](Matrix& values, std::size_t columns) {
      drop(values, columns, l, nn::DropoutSite::kFeedForwardOutput, config_.hidden_dropout_prob);
    };
    if (!form.drops_residuals) drop_here(active, I);
    Matrix y = linear(active, name(names.down), H, I);
    if (form.drops_residuals) drop_here(y, H);
    add(x, y);
    return x;
  }

  // The parts of a product with one module, or with a module for each part.
  template <class Name>
  std::vector<Matrix> wide(const Matrix& x, const std::vector<std::string_view>& modules,
                           const std::vector<std::size_t>& sizes, Name name) const {
    std::vector<Matrix> parts;
    if (!modules[1].empty()) {
      for (std::size_t i = 0; i < sizes.size(); ++i)
        parts.push_back(linear(x, name(modules[i]), sizes[i], H));
      return parts;
    }
    const std::size_t all = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
    const Matrix together = linear(x, name(modules[0]), all, H);
    std::size_t begin = 0;
    for (const std::size_t size : sizes) {
      Matrix& part = parts.emplace_back();
      for (std::size_t row = 0; row < R; ++row)
        for (std::size_t c = 0; c < size; ++c) part.push_back(together[row * all + begin + c]);
      begin += size;
    }
    return parts;
  }

  std::size_t key_heads() const {
    return config_.num_key_value_heads == 0 ? config_.num_attention_heads
                                            : config_.num_key_value_heads;
  }

  void pre_norm_norm(Matrix& x, const std::string& name) const {
    norm(x, name, H, pre_norm(*config_.family)->form().root_mean_square);
  }

  // Turns (x₁, x₂), halves of a head, by the angles of the row's position.
  void rotate(Matrix& x, double theta, std::size_t width) const {
    const std::size_t D = config_.head_dim();
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t j = i % D;
      if (j >= D / 2) continue;
      const std::size_t row = i / width;
      const auto next = std::upper_bound(batch_.row_begin.begin(), batch_.row_begin.end(), row);
      const auto position = static_cast<double>(row - *(next - 1));
      const double angle =
          position * std::pow(theta, -2 * static_cast<double>(j) / static_cast<double>(D));
      const double first = x[i], second = x[i + D / 2];
      x[i] = first * std::cos(angle) - second * std::sin(angle);
      x[i + D / 2] = second * std::cos(angle) + first * std::sin(angle);
    }
  }

  // The rows of linear(): those of the texts, or positions.
  enum class Rows { kTexts, kPositions };

  Matrix linear(const Matrix& x, const std::string& name, std::size_t out, std::size_t in,
                Rows rows_of_x = Rows::kTexts) const {
    const double* weight = parameter(name + ".weight");
    const double* bias = optional_parameter(name + ".bias");
    const PreNorm* kind = pre_norm(*config_.family);
    const bool transposed = kind != nullptr && kind->form().transposed_weights &&
                            name.starts_with(config_.family->base_prefix);
    const std::size_t rows = x.size() / in;
    Matrix y(rows * out);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t n = 0; n < out; ++n) {
        double sum = bias == nullptr ? 0 : bias[n];
        for (std::size_t k = 0; k < in; ++k) {
          sum += x[r * in + k] * (transposed ? weight[k * out + n] : weight[n * in + k]);
        }
        y[r * out + n] = sum;
      }
    }
    add_adapter(x, name, y, out, in, rows_of_x);
    return y;
  }

  // y += s · dropout(x)·Aᵀ·Bᵀ of a module with an adapter.
  void add_adapter(Matrix x, const std::string& name, Matrix& y, std::size_t out, std::size_t in,
                   Rows kind) const {
    const double* const down = optional_parameter(name + ".lora_A.weight");
    if (down == nullptr) return;
    const double* const up = parameter(name + ".lora_B.weight");
    const auto [low_rank, part] = adapter_at(model_.layout().find(name + ".lora_A.weight")->offset);
    kernels::Dropout site = dropout_.at(0, nn::DropoutSite::kAdapter, low_rank->dropout);
    site.site = low_rank->site;
    if (kind == Rows::kPositions) {
      drop_positions(x, site, first_position());
    } else if (x.size() == R * in) {
      drop(x, in, site);
    }
    const double scale = lora_scale(*config_.lora, name);
    for (std::size_t r = 0; r < x.size() / in; ++r) {
      for (std::size_t k = 0; k < part->rank; ++k) {
        double low = 0;
        for (std::size_t c = 0; c < in; ++c) low += x[r * in + c] * down[k * in + c];
        for (std::size_t n = 0; n < out; ++n)
          y[r * out + n] += scale * low * up[n * part->rank + k];
      }
    }
  }

  std::pair<const nn::LowRank*, const nn::LowRankPart*> adapter_at(std::size_t down) const {
    for (const nn::Linear& linear : model_.layout().linears()) {
      for (const nn::LowRankPart& part : linear.low_rank.parts)
        if (part.down == down) return {&linear.low_rank, &part};
    }
    return {nullptr, nullptr};
  }

  // Queries and keys of DeBERTa's positions, by their number: buckets + bucket(key − query).
  struct Positions {
    Matrix queries, keys;
  };
  std::ptrdiff_t position_of_distance(std::ptrdiff_t distance) const {
    return static_cast<std::ptrdiff_t>(config_.position_buckets) +
           position_bucket(distance, config_.position_buckets, config_.farthest_position());
  }
  // The number of the first position that a pass of this batch has.
  std::size_t first_position() const {
    std::size_t longest = 0;
    for (std::size_t s = 0; s < batch_.num_sequences(); ++s)
      longest = std::max<std::size_t>(longest, batch_.row_begin[s + 1] - batch_.row_begin[s]);
    return static_cast<std::size_t>(position_of_distance(1 - static_cast<std::ptrdiff_t>(longest)));
  }
  // Row i draws as row i − first, once for all texts.
  void drop_positions(Matrix& x, const kernels::Dropout& site, std::size_t first) const {
    const kernels::DropoutMask mask = kernels::dropout_mask(site, kernels::kNoSample);
    for (std::size_t i = first * H; i < x.size(); ++i)
      x[i] *= mask_factor(mask, site.p, i / H - first, i % H);
  }
  Positions positions(std::size_t l, const PostNormNames& names) const {
    if (names.relative_embeddings.empty()) return {};
    const std::size_t count = 2 * config_.position_buckets;
    const double* table = parameter(fmt::format("{}{}.weight", base(), names.relative_embeddings));
    Matrix x;
    for (std::size_t row = 0; row <= count; ++row) {
      const double* from = table + std::min(count - row, count - 1) * H;
      x.insert(x.end(), from, from + H);
    }
    layer_norm(x, base() + std::string(names.relative_norm), H);
    drop_positions(x, dropout_.at(l, nn::DropoutSite::kPositions, config_.hidden_dropout_prob), 0);
    const auto project = [&](std::string_view part) {
      return linear(x, fmt::format("{}{}{}.{}", base(), names.layers, l, part), H, H,
                    Rows::kPositions);
    };
    return {project(names.query), project(names.key)};
  }

  // Per sequence and head: softmax over its real rows, dropout on the probabilities, mean of the
  // values.
  Matrix attention(std::size_t l, const Matrix& q, const Matrix& k, const Matrix& v,
                   const kernels::Window& window = {}, const Positions& positions = {}) const {
    const std::size_t D = config_.head_dim(), C = config_.num_attention_heads * D;
    const std::size_t keys_width = key_heads() * D,
                      group = config_.num_attention_heads / key_heads();
    Matrix out(R * C, 0.0);
    for (std::size_t s = 0; s < batch_.num_sequences(); ++s) {
      const std::size_t begin = batch_.row_begin[s];
      const std::size_t keys = batch_.key_count[s];
      for (std::size_t head = 0; head < config_.num_attention_heads; ++head) {
        kernels::Dropout site = dropout_.at(l, nn::DropoutSite::kAttentionProbabilities,
                                            config_.attention_probs_dropout_prob);
        site.site += static_cast<std::uint32_t>(head);
        const kernels::DropoutMask mask = kernels::dropout_mask(site, batch_.sample[s]);
        for (std::size_t r = begin; r < batch_.row_begin[s + 1]; ++r) {
          std::vector<double> p(keys);
          double total = 0;
          for (std::size_t j = 0; j < keys; ++j) {
            const std::size_t own = r - begin;
            if (j > own ? j - own > window.after : own - j > window.before) continue;
            double score = 0;
            for (std::size_t d = 0; d < D; ++d)
              score += q[r * C + head * D + d] * k[(begin + j) * keys_width + head / group * D + d];
            if (!positions.queries.empty()) {
              const auto at = static_cast<std::size_t>(position_of_distance(
                  static_cast<std::ptrdiff_t>(j) - static_cast<std::ptrdiff_t>(own)));
              for (std::size_t d = head * D; d < head * D + D; ++d) {
                score += q[r * C + d] * positions.keys[at * C + d] +
                         k[(begin + j) * C + d] * positions.queries[at * C + d];
              }
              score /= std::sqrt(3.0);
            }
            p[j] = std::exp(score / std::sqrt(static_cast<double>(D)) +
                            relative_bias(head, r - begin, j));
            total += p[j];
          }
          for (std::size_t j = 0; j < keys; ++j) {
            if (p[j] == 0) continue;
            const double factor = p[j] / total * mask_factor(mask, site.p, r - begin, j);
            for (std::size_t d = 0; d < D; ++d) {
              out[r * C + head * D + d] +=
                  factor * v[(begin + j) * keys_width + head / group * D + d];
            }
          }
        }
      }
    }
    return out;
  }

  // 0 for families without one.
  double relative_bias(std::size_t head, std::size_t row, std::size_t key) const {
    if (pre_norm_names(*config_.family) != nullptr) return 0;
    const PostNormNames& names = layer_names(*config_.family);
    if (names.relative_bias.empty()) return 0;
    const auto distance = static_cast<std::ptrdiff_t>(key) - static_cast<std::ptrdiff_t>(row);
    return parameter(fmt::format(
        "{}{}.weight", base(),
        names.relative_bias))[relative_bucket(distance) * config_.num_attention_heads + head];
  }

  void layer_norm(Matrix& x, const std::string& name, std::size_t columns) const {
    norm(x, name, columns, false);
  }
  void norm(Matrix& x, const std::string& name, std::size_t columns, bool root_mean_square) const {
    const double* gamma = parameter(name + ".weight");
    const double* beta = optional_parameter(name + ".bias");
    const double n = static_cast<double>(columns);
    for (std::size_t r = 0; r < x.size() / columns; ++r) {
      double* row = &x[r * columns];
      double mean = 0;
      double variance = 0;
      for (std::size_t c = 0; c < columns && !root_mean_square; ++c) mean += row[c] / n;
      for (std::size_t c = 0; c < columns; ++c) variance += (row[c] - mean) * (row[c] - mean) / n;
      const double rstd = 1 / std::sqrt(variance + config_.layer_norm_eps);
      for (std::size_t c = 0; c < columns; ++c)
        row[c] = (row[c] - mean) * rstd * gamma[c] + (beta == nullptr ? 0 : beta[c]);
    }
  }

  void drop(Matrix& x, std::size_t columns, std::size_t l, nn::DropoutSite kind, double p) const {
    drop(x, columns, dropout_.at(l, kind, p));
  }
  void drop(Matrix& x, std::size_t columns, const kernels::Dropout& site) const {
    for (std::size_t s = 0; s < batch_.num_sequences(); ++s) {
      const kernels::DropoutMask mask = kernels::dropout_mask(site, batch_.sample[s]);
      for (std::size_t r = batch_.row_begin[s]; r < batch_.row_begin[s + 1]; ++r) {
        for (std::size_t c = 0; c < columns; ++c) {
          x[r * columns + c] *= mask_factor(mask, site.p, r - batch_.row_begin[s], c);
        }
      }
    }
  }

  // x: [sequences, H], row 0 of each.
  void drop_first_rows(Matrix& x, std::size_t l, nn::DropoutSite kind, double p) const {
    const kernels::Dropout site = dropout_.at(l, kind, p);
    for (std::size_t s = 0; s < batch_.num_sequences(); ++s) {
      const kernels::DropoutMask mask = kernels::dropout_mask(site, batch_.sample[s]);
      for (std::size_t c = 0; c < H; ++c) x[s * H + c] *= mask_factor(mask, site.p, 0, c);
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
      case kernels::Activation::kSilu:
        return x / (1 + std::exp(-x));
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
