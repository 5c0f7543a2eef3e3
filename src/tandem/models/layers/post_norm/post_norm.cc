#include "tandem/models/layers/post_norm/post_norm.h"

#include <fmt/format.h>

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "tandem/models/encoder/model_config.h"
#include "tandem/models/layers/post_norm/post_norm_pass.h"
#include "tandem/models/layers/post_norm/relative_bias.h"

namespace tandem::models {
namespace {

PostNormOptions options_of(const ModelConfig& config, std::size_t index, const RelativeBias* bias) {
  return {.index = index,
          .hidden_size = config.hidden_size,
          .num_heads = config.num_attention_heads,
          .intermediate_size = config.intermediate_size,
          .activation = config.hidden_act,
          .layer_norm_eps = config.layer_norm_eps,
          .attention_dropout = config.attention_probs_dropout_prob,
          .attention_output_dropout = config.attention_output_dropout_prob(),
          .feed_forward_dropout = config.hidden_dropout_prob,
          .bias = bias};
}

PostNormParameters add_parameters(const PostNormNames& names, const ModelConfig& config,
                                  std::size_t index, nn::ParameterLayout& layout) {
  const auto name = [&](std::string_view part) {
    return fmt::format("{}{}{}.{}", config.family->base_prefix, names.layers, index, part);
  };
  const std::size_t H = config.hidden_size;
  const std::size_t I = config.intermediate_size;
  PostNormParameters parameters;
  parameters.output_norm = layout.add_layer_norm(name(names.output_norm), H);
  parameters.output = layout.add_linear("down", name(names.output), H, I);
  parameters.intermediate = layout.add_linear("up", name(names.intermediate), I, H);
  parameters.attention_norm = layout.add_layer_norm(name(names.attention_norm), H);
  parameters.attention_output =
      layout.add_linear("attention output", name(names.attention_output), H, H);
  // Query, key and value one behind the other, so that one product with a [3H, H] matrix computes
  // all three.
  const std::array qkv = {name(names.query), name(names.key), name(names.value)};
  parameters.qkv = layout.add_linear("qkv", qkv, H, H);
  return parameters;
}

class PostNormLayer final : public LayerOf<PostNormLayer> {
 public:
  PostNormLayer(const PostNormOptions& options, const PostNormParameters& parameters)
      : options_(options), parameters_(parameters) {}

  void count_products(const SequenceWork& work, AddProducts add) const override {
    const auto H = static_cast<double>(options_.hidden_size);
    const auto I = static_cast<double>(options_.intermediate_size);
    add("qkv", 3 * H * H * work.rows);
    add("attention", 2 * H * work.rows * work.keys);
    add("attention output", H * H * work.output_rows);
    add("up", H * I * work.output_rows);
    add("down", H * I * work.output_rows);
  }

  template <class T>
  LayerBytes measure(const LayerRows& rows, bool training) const {
    Region kept, saved, scratch;
    PostNormTensors<T>::lay_out(kept, saved, scratch, options_, rows, training);
    return {.kept = kept.used(), .saved = saved.used(), .scratch = scratch.used()};
  }
  template <class T>
  void run_forward(const LayerPass<T>& pass) const {
    PostNormPass<T>(pass, options_, parameters_).forward();
  }
  template <class T>
  void run_restore(const LayerPass<T>& pass, bool residual) const {
    PostNormPass<T>(pass, options_, parameters_).restore_output(residual);
  }
  template <class T>
  void run_backward(const LayerPass<T>& pass, std::span<float> grad,
                    const nn::Gradients& grads) const {
    PostNormPass<T>(pass, options_, parameters_).backward(grad, grads);
  }

 private:
  PostNormOptions options_;
  PostNormParameters parameters_;
};

}  // namespace

LayerTable PostNorm::make(const ModelConfig& config, nn::ParameterLayout& layout) const {
  std::unique_ptr<RelativeBias> bias;
  if (!names_.relative_bias.empty()) {
    bias =
        std::make_unique<RelativeBias>(config.num_attention_heads, config.max_position_embeddings);
  }
  LayerTable table = make_table(config.num_hidden_layers, layout, [&](std::size_t index) {
    return std::make_unique<PostNormLayer>(options_of(config, index, bias.get()),
                                           add_parameters(names_, config, index, layout));
  });
  if (bias) {
    bias->add_to(layout,
                 fmt::format("{}{}.weight", config.family->base_prefix, names_.relative_bias));
  }
  table.shared = std::move(bias);
  return table;
}

}  // namespace tandem::models
