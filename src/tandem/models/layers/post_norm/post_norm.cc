#include "tandem/models/layers/post_norm/post_norm.h"

#include <fmt/format.h>

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "tandem/models/encoder/model_config.h"
#include "tandem/models/layers/post_norm/post_norm_pass.h"
#include "tandem/models/layers/post_norm/relative_bias.h"
#include "tandem/models/layers/post_norm/relative_embeddings.h"

namespace tandem::models {
namespace {

// The part that the layers share: one of them, or nothing.
struct SharedPositions {
  std::unique_ptr<RelativeBias> bias;
  std::unique_ptr<RelativeEmbeddings> embeddings;
};

SharedPositions make_shared_positions(const PostNormNames& names, const ModelConfig& config) {
  SharedPositions shared;
  if (!names.relative_bias.empty()) {
    shared.bias =
        std::make_unique<RelativeBias>(config.num_attention_heads, config.max_position_embeddings);
  }
  if (!names.relative_embeddings.empty()) {
    shared.embeddings = std::make_unique<RelativeEmbeddings>(
        RelativeEmbeddingsOptions{.hidden_size = config.hidden_size,
                                  .max_rows = config.max_position_embeddings,
                                  .buckets = config.position_buckets,
                                  .farthest = config.farthest_position(),
                                  .layer_norm_eps = config.layer_norm_eps});
  }
  return shared;
}

PostNormOptions options_of(const ModelConfig& config, std::size_t index,
                           const SharedPositions& shared) {
  return {.index = index,
          .hidden_size = config.hidden_size,
          .num_heads = config.num_attention_heads,
          .intermediate_size = config.intermediate_size,
          .activation = config.hidden_act,
          .layer_norm_eps = config.layer_norm_eps,
          .attention_dropout = config.attention_probs_dropout_prob,
          .attention_output_dropout = config.attention_output_dropout_prob(),
          .feed_forward_dropout = config.hidden_dropout_prob,
          .bias = shared.bias.get(),
          .positions = shared.embeddings.get()};
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
    add("attention", 2 * H * work.rows * work.keys + position_products(work));
    add("attention output", H * H * work.output_rows);
    add("up", H * I * work.output_rows);
    add("down", H * I * work.output_rows);
  }
  void count_shared_products(std::size_t longest, AddProducts add) const override {
    if (options_.positions == nullptr) return;
    const auto H = static_cast<double>(options_.hidden_size);
    add("qkv", 3 * H * H * static_cast<double>(options_.positions->positions(longest)));
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
  // Each query and each key with all positions of its text. The projection of the positions is left
  // out: it is done once for all texts of a pass.
  double position_products(const SequenceWork& work) const {
    if (options_.positions == nullptr) return 0;
    const std::size_t products = options_.positions->products(static_cast<std::size_t>(work.rows),
                                                              static_cast<std::size_t>(work.keys));
    return static_cast<double>(options_.hidden_size) * static_cast<double>(products);
  }

  PostNormOptions options_;
  PostNormParameters parameters_;
};

}  // namespace

LayerTable PostNorm::make(const ModelConfig& config, nn::ParameterLayout& layout) const {
  SharedPositions shared = make_shared_positions(names_, config);
  LayerTable table = make_table(config.num_hidden_layers, layout, [&](std::size_t index) {
    return std::make_unique<PostNormLayer>(options_of(config, index, shared),
                                           add_parameters(names_, config, index, layout));
  });
  const std::string_view prefix = config.family->base_prefix;
  if (shared.bias) {
    shared.bias->add_to(layout, fmt::format("{}{}.weight", prefix, names_.relative_bias));
    table.shared = std::move(shared.bias);
  } else if (shared.embeddings) {
    shared.embeddings->add_to(layout, fmt::format("{}{}", prefix, names_.relative_norm),
                              fmt::format("{}{}.weight", prefix, names_.relative_embeddings));
    table.shared = std::move(shared.embeddings);
  }
  return table;
}

}  // namespace tandem::models
