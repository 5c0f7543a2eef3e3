#include "tandem/models/layers/pre_norm/pre_norm.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/models/encoder/model_config.h"
#include "tandem/models/layers/pre_norm/pre_norm_pass.h"

namespace tandem::models {
namespace {

// Cosines and sines for all positions of a model. All layers with one base share them.
class RotaryPositions {
 public:
  RotaryPositions(const ModelConfig& config, double theta)
      : positions_(config.max_position_embeddings),
        cos_(positions_ * config.head_dim() / 2),
        sin_(cos_.size()) {
    kernels::fill_rotary_table(theta, config.head_dim(), positions_, cos_.data(), sin_.data());
  }
  kernels::RotaryTable table() const {
    return {.positions = positions_, .cos = cos_.data(), .sin = sin_.data()};
  }

 private:
  std::size_t positions_;
  std::vector<float> cos_, sin_;
};

PreNormOptions options_of(const ModelConfig& config, std::size_t index,
                          const RotaryPositions& positions) {
  const bool global = config.attention.is_global(index);
  return {.index = index,
          .hidden_size = config.hidden_size,
          .num_heads = config.num_attention_heads,
          .intermediate_size = config.intermediate_size,
          .activation = config.hidden_act,
          .layer_norm_eps = config.layer_norm_eps,
          .attention_dropout = config.attention_probs_dropout_prob,
          .feed_forward_dropout = config.hidden_dropout_prob,
          .window = global ? kernels::kAllKeys : config.attention.local_window(),
          .positions = positions.table()};
}

PreNormParameters add_parameters(const PreNormNames& names, const ModelConfig& config,
                                 std::size_t index, nn::ParameterLayout& layout) {
  const auto name = [&](std::string_view part) {
    return fmt::format("{}{}{}.{}", config.family->base_prefix, names.layers, index, part);
  };
  const std::size_t H = config.hidden_size, I = config.intermediate_size;
  const nn::Bias bias = config.family->bias;
  PreNormParameters parameters;
  parameters.down = layout.add_linear("down", name(names.down), H, I, bias);
  parameters.up = layout.add_linear("up", name(names.up), 2 * I, H, bias);
  parameters.feed_forward_norm = layout.add_layer_norm(name(names.feed_forward_norm), H, bias);
  parameters.attention_output =
      layout.add_linear("attention output", name(names.attention_output), H, H, bias);
  parameters.qkv = layout.add_linear("qkv", name(names.qkv), 3 * H, H, bias);
  if (index > 0)
    parameters.attention_norm = layout.add_layer_norm(name(names.attention_norm), H, bias);
  return parameters;
}

class PreNormLayer final : public LayerOf<PreNormLayer> {
 public:
  PreNormLayer(const PreNormOptions& options, const PreNormParameters& parameters,
               std::shared_ptr<const RotaryPositions> positions)
      : options_(options), parameters_(parameters), positions_(std::move(positions)) {}

  LayerTraits traits() const override {
    return {.restores_output = false,
            .reads_operand = !parameters_.attention_norm.has_value(),
            .backward_reads_residual = true};
  }
  void count_products(const SequenceWork& work, AddProducts add) const override {
    const auto H = static_cast<double>(options_.hidden_size);
    const auto I = static_cast<double>(options_.intermediate_size);
    const double pairs = kernels::attention_pairs(
        static_cast<std::size_t>(work.rows), static_cast<std::size_t>(work.keys), options_.window);
    add("qkv", 3 * H * H * work.rows);
    add("attention", 2 * H * pairs);
    add("attention output", H * H * work.output_rows);
    add("up", 2 * H * I * work.output_rows);
    add("down", H * I * work.output_rows);
  }

  template <class T>
  LayerBytes measure(const LayerRows& rows, bool training) const {
    Region saved, scratch;
    PreNormTensors<T>::lay_out(saved, scratch, options_, rows, training);
    return {.saved = saved.used(), .scratch = scratch.used()};
  }
  template <class T>
  void run_forward(const LayerPass<T>& pass) const {
    PreNormPass<T>(pass, options_, parameters_).forward();
  }
  template <class T>
  void run_restore(const LayerPass<T>&, bool) const {
    TANDEM_CHECK(false, "a pre-norm layer does not restore its output");
  }
  template <class T>
  void run_backward(const LayerPass<T>& pass, std::span<float> grad,
                    const nn::Gradients& grads) const {
    PreNormPass<T>(pass, options_, parameters_).backward(grad, grads);
  }

 private:
  PreNormOptions options_;
  PreNormParameters parameters_;
  std::shared_ptr<const RotaryPositions> positions_;  // options_.positions points into it
};

// y = LayerNorm(x). x stays, so backward and restore_output() need only its statistics.
class FinalNorm final : public LayerOf<FinalNorm> {
 public:
  FinalNorm(nn::LayerNormParameters parameters, std::size_t hidden_size, double eps)
      : parameters_(parameters), hidden_size_(hidden_size), eps_(eps) {}

  LayerTraits traits() const override {
    return {.mixes_rows = false, .reads_operand = false, .backward_reads_residual = true};
  }
  void count_products(const SequenceWork&, AddProducts) const override {}

  template <class T>
  LayerBytes measure(const LayerRows& rows, bool) const {
    Region kept;
    kept.allocate<float>(rows.all);
    kept.allocate<float>(rows.all);
    return {.kept = kept.used()};
  }
  template <class T>
  void run_forward(const LayerPass<T>& pass) const {
    nn::layer_norm_forward<T>(pass.rows, parameters_, eps_, saved(pass), pass.y);
  }
  template <class T>
  void run_restore(const LayerPass<T>& pass, bool residual) const {
    nn::layer_norm_recompute<T>(pass.rows, parameters_, saved(pass), residual, pass.y);
  }
  template <class T>
  void run_backward(const LayerPass<T>& pass, std::span<float> grad,
                    const nn::Gradients& grads) const {
    nn::dropout_add_layer_norm_backward<T>(pass.rows, parameters_, {}, saved(pass), grad, {},
                                           grads);
  }

 private:
  template <class T>
  nn::LayerNormActivations saved(const LayerPass<T>& pass) const {
    Region kept(pass.memory.kept);
    const std::size_t rows = pass.rows.rows();
    return {pass.x.residual, kept.allocate<float>(rows), kept.allocate<float>(rows)};
  }

  nn::LayerNormParameters parameters_;
  std::size_t hidden_size_;
  double eps_;
};

void check(const ModelConfig& config) {
  if (config.head_dim() % 2 == 0) return;
  raise<ConfigError>(
      "hidden_size {} over num_attention_heads {} is {}; rotary positions need an "
      "even number",
      config.hidden_size, config.num_attention_heads, config.head_dim());
}

}  // namespace

LayerTable PreNorm::make(const ModelConfig& config, nn::ParameterLayout& layout) const {
  check(config);
  const auto global =
      std::make_shared<const RotaryPositions>(config, config.attention.global_theta);
  const auto local = std::make_shared<const RotaryPositions>(config, config.attention.local_theta);
  const nn::LayerNormParameters final_norm =
      layout.add_layer_norm(fmt::format("{}{}", config.family->base_prefix, names_.final_norm),
                            config.hidden_size, config.family->bias);
  const std::size_t final_end = layout.size();
  LayerTable table = make_table(config.num_hidden_layers, layout, [&](std::size_t index) {
    const auto& positions = config.attention.is_global(index) ? global : local;
    return std::make_unique<PreNormLayer>(options_of(config, index, *positions),
                                          add_parameters(names_, config, index, layout), positions);
  });
  table.layers.push_back(
      {std::make_unique<FinalNorm>(final_norm, config.hidden_size, config.layer_norm_eps),
       final_end});
  return table;
}

}  // namespace tandem::models
