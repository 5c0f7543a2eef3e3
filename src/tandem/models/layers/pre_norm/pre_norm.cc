#include "tandem/models/layers/pre_norm/pre_norm.h"

#include <fmt/format.h>

#include <array>
#include <memory>
#include <numeric>
#include <span>
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
  RotaryPositions(const ModelConfig& config, double theta, const kernels::RotaryScaling* scaling)
      : positions_(config.max_position_embeddings),
        cos_(positions_ * config.head_dim() / 2),
        sin_(cos_.size()) {
    kernels::fill_rotary_table(theta, config.head_dim(), positions_, cos_.data(), sin_.data(),
                               scaling);
  }
  kernels::RotaryTable table() const {
    return {.positions = positions_, .cos = cos_.data(), .sin = sin_.data()};
  }

 private:
  std::size_t positions_;
  std::vector<float> cos_, sin_;
};

kernels::Window window_of(const ModelConfig& config, const PreNormForm& form, std::size_t index) {
  if (form.causal) return kernels::Window::causal();
  if (config.attention.is_global(index)) return {};
  return kernels::Window::around(config.attention.local_window());
}

PreNormOptions options_of(const ModelConfig& config, const PreNormForm& form, std::size_t index,
                          const RotaryPositions* positions) {
  const double dropout = config.attention_probs_dropout_prob, hidden = config.hidden_dropout_prob;
  const double attention_output = form.drops_residuals ? hidden : dropout;
  return {
      .index = index,
      .hidden_size = config.hidden_size,
      .intermediate_size = config.intermediate_size,
      .attention = {.heads = config.num_attention_heads,
                    .head_dim = config.head_dim(),
                    .key_heads = config.num_key_value_heads,
                    .window = window_of(config, form, index)},
      .activation = config.hidden_act,
      .layer_norm_eps = config.layer_norm_eps,
      .root_mean_square = form.root_mean_square,
      .attention_dropout = dropout,
      .attention_output_dropout = config.family->attention_output_dropout ? attention_output : 0.0,
      .activation_dropout = form.drops_residuals ? 0.0 : hidden,
      .output_dropout = form.drops_residuals ? hidden : 0.0,
      .gated = form.gated,
      .positions = positions == nullptr ? kernels::RotaryTable{} : positions->table()};
}

// Adds the parameters of one layer, in the reverse of the order in which the class of transformers
// defines them.
class LayerParameters {
 public:
  LayerParameters(const PreNorm& kind, const ModelConfig& config, std::size_t index,
                  nn::ParameterLayout& layout)
      : names_(kind.names()), form_(kind.form()), config_(config), index_(index), layout_(layout) {}

  PreNormParameters add() {
    if (form_.norms_last) {
      add_feed_forward_norm();
      add_attention_norm();
      add_feed_forward();
      add_attention();
    } else {
      add_feed_forward();
      add_feed_forward_norm();
      add_attention();
      add_attention_norm();
    }
    return parameters_;
  }

 private:
  std::string name(std::string_view part) const {
    return fmt::format("{}{}{}.{}", config_.family->base_prefix, names_.layers, index_, part);
  }
  nn::Bias bias() const { return config_.family->bias; }

  // One module of `parts` parts, or a module for each, which alone may have another bias.
  template <std::size_t kCount>
  nn::Linear add_wide(std::string_view stage, const std::array<std::string_view, kCount>& parts,
                      std::span<const std::size_t> sizes, nn::Bias of_each) {
    std::vector<std::string> modules;
    for (const std::string_view part : parts)
      if (!part.empty()) modules.push_back(name(part));
    if (modules.size() > 1)
      return layout_.add_linear(stage, modules, sizes, config_.hidden_size, of_each);
    const std::size_t all = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
    return add_one(stage, modules.front(), all, config_.hidden_size);
  }
  nn::Linear add_one(std::string_view stage, const std::string& module, std::size_t out_features,
                     std::size_t in_features) {
    return form_.transposed_weights
               ? layout_.add_transposed_linear(stage, module, out_features, in_features)
               : layout_.add_linear(stage, module, out_features, in_features, bias());
  }

  void add_feed_forward_norm() {
    parameters_.feed_forward_norm =
        layout_.add_layer_norm(name(names_.feed_forward_norm), config_.hidden_size, bias());
  }
  void add_attention_norm() {
    if (index_ == 0 && !form_.first_norm) return;
    parameters_.attention_norm =
        layout_.add_layer_norm(name(names_.attention_norm), config_.hidden_size, bias());
  }
  void add_feed_forward() {
    const std::size_t I = config_.intermediate_size;
    parameters_.down = add_one("down", name(names_.down), config_.hidden_size, I);
    parameters_.up = form_.gated ? add_wide("up", names_.up, std::array{I, I}, bias())
                                 : add_one("up", name(names_.up[0]), I, config_.hidden_size);
  }
  void add_attention() {
    const std::size_t D = config_.head_dim(), queries = config_.num_attention_heads * D;
    const std::size_t keys =
        config_.num_key_value_heads == 0 ? queries : config_.num_key_value_heads * D;
    if (!names_.query_norm.empty()) {
      parameters_.key_norm = layout_.add_layer_norm(name(names_.key_norm), D, nn::Bias::kNo).weight;
      parameters_.query_norm =
          layout_.add_layer_norm(name(names_.query_norm), D, nn::Bias::kNo).weight;
    }
    parameters_.attention_output =
        add_one("attention output", name(names_.attention_output), config_.hidden_size, queries);
    parameters_.qkv = add_wide("qkv", names_.qkv, std::array{queries, keys, keys},
                               form_.qkv_bias ? nn::Bias::kYes : bias());
  }

  const PreNormNames& names_;
  const PreNormForm& form_;
  const ModelConfig& config_;
  std::size_t index_;
  nn::ParameterLayout& layout_;
  PreNormParameters parameters_;
};

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
  std::size_t key_value_width() const override {
    const kernels::AttentionShape& shape = options_.attention;
    return shape.window.after == 0 ? 2 * shape.kv_heads() * shape.head_dim : 0;
  }
  void count_products(const SequenceWork& work, AddProducts add) const override {
    const auto H = static_cast<double>(options_.hidden_size);
    const auto I = static_cast<double>(options_.intermediate_size);
    const auto U = static_cast<double>(options_.up_width());
    const auto W = static_cast<double>(options_.qkv_width());
    const auto C = static_cast<double>(options_.context_width());
    const double pairs =
        kernels::attention_pairs(static_cast<std::size_t>(work.rows),
                                 static_cast<std::size_t>(work.keys), options_.attention.window);
    add("qkv", W * H * work.rows);
    add("attention", 2 * C * pairs);
    add("attention output", C * H * work.output_rows);
    add("up", U * H * work.output_rows);
    add("down", H * I * work.output_rows);
  }

  template <class T>
  LayerBytes measure(const LayerRows& rows, bool training) const {
    Region saved, scratch;
    PreNormTensors<T>::lay_out(saved, scratch, options_, parameters_, rows, training);
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

// y = norm(x). x stays, so backward and restore_output() need only its statistics.
class FinalNorm final : public LayerOf<FinalNorm> {
 public:
  FinalNorm(nn::LayerNormParameters parameters, const PreNormForm& form, double eps)
      : parameters_(parameters), root_mean_square_(form.root_mean_square), eps_(eps) {}

  LayerTraits traits() const override {
    return {.mixes_rows = false, .reads_operand = false, .backward_reads_residual = true};
  }
  void count_products(const SequenceWork&, AddProducts) const override {}

  template <class T>
  LayerBytes measure(const LayerRows& rows, bool) const {
    Region kept;
    lay_out(kept, rows.all);
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
    nn::LayerNormActivations saved = lay_out(kept, pass.rows.rows());
    saved.sum = pass.x.residual;
    return saved;
  }
  // Without the sum.
  nn::LayerNormActivations lay_out(Region& kept, std::size_t rows) const {
    nn::LayerNormActivations saved;
    if (!root_mean_square_) saved.mean = kept.allocate<float>(rows);
    saved.rstd = kept.allocate<float>(rows);
    return saved;
  }

  nn::LayerNormParameters parameters_;
  bool root_mean_square_;
  double eps_;
};

void check(const ModelConfig& config) {
  if (config.head_dim() % 2 == 0) return;
  raise<ConfigError>(
      "{} columns of a head; rotary positions need an even number: head_dim, or "
      "hidden_size {} over num_attention_heads {}",
      config.head_dim(), config.hidden_size, config.num_attention_heads);
}

}  // namespace

LayerTable PreNorm::make(const ModelConfig& config, nn::ParameterLayout& layout) const {
  if (form_.rotary) check(config);
  const RotaryAttention& attention = config.attention;
  const auto positions_of = [&](double theta, const kernels::RotaryScaling* scaling) {
    return form_.rotary ? std::make_shared<const RotaryPositions>(config, theta, scaling) : nullptr;
  };
  const auto global =
      positions_of(attention.global_theta, attention.scaling ? &*attention.scaling : nullptr);
  const auto local =
      attention.global_every == 1 ? nullptr : positions_of(attention.local_theta, nullptr);
  const std::size_t before = layout.trained_size();
  const nn::LayerNormParameters final_norm =
      layout.add_layer_norm(fmt::format("{}{}", config.family->base_prefix, names_.final_norm),
                            config.hidden_size, config.family->bias);
  const std::size_t final_end = layout.trained_size();
  LayerTable table = make_table(config.num_hidden_layers, layout, [&](std::size_t index) {
    const auto& positions = attention.is_global(index) ? global : local;
    return std::make_unique<PreNormLayer>(options_of(config, form_, index, positions.get()),
                                          LayerParameters(*this, config, index, layout).add(),
                                          positions);
  });
  table.layers.push_back({std::make_unique<FinalNorm>(final_norm, form_, config.layer_norm_eps),
                          final_end, final_end > before});
  return table;
}

}  // namespace tandem::models
