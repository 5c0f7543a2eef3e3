#include "tandem/models/pretrained/from_scratch.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/models/pretrained/initial_values.h"
#include "tandem/models/pretrained/parameter_order.h"
#include "tandem/models/pretrained/torch_random.h"

namespace tandem::models {
namespace {

using Parameters = std::vector<const nn::ParameterSpec*>;

class Construction {
 public:
  Construction(const ModelConfig& config, const nn::ParameterLayout& layout,
               std::span<float> weights, std::uint64_t seed)
      : config_(config), layout_(layout), weights_(weights), generator_(seed) {}

  void run() {
    Parameters encoder, head;
    const MaskedLanguageHeadParts& parts = config_.family->masked_language_head;
    for (const nn::ParameterSpec* parameter :
         parameters_as_defined(layout_, DefinitionOrder::kTransformers4)) {
      if (parameter->name.starts_with(config_.family->base_prefix)) {
        encoder.push_back(parameter);
      } else if (parameter->name != parts.bias && parameter->name != output_name()) {
        head.push_back(parameter);
      }
    }
    construct(encoder);
    if (config_.family->construction.positions_twice) construct_positions(encoder);
    initialize(encoder);
    construct(head);
    generator_.skip_uniform(output_size());
    if (config_.family->construction.output_bias) generator_.skip_uniform(config_.vocab_size);
    initialize(head);
    if (const nn::ParameterSpec* output = layout_.find(output_name())) initialize({output});
    if (const nn::ParameterSpec* bias = layout_.find(parts.bias)) initialize({bias});
  }

 private:
  std::string output_name() const {
    const Family& family = *config_.family;
    return std::string(family.causal_language_head.output.empty()
                           ? family.masked_language_head.output
                           : family.causal_language_head.output) +
           ".weight";
  }
  std::size_t output_size() const { return config_.vocab_size * config_.embedding_width(); }

  // Tables are normal, linear layers uniform, the parameters of LayerNorm constant.
  void construct(const Parameters& parameters) {
    bool linear = false;  // the module of the last weight
    for (const nn::ParameterSpec* parameter : parameters) {
      const bool table = parameter->shape.size() == 2;
      if (parameter->kind == nn::ParameterKind::kBias && !table) {
        if (linear) generator_.skip_uniform(parameter->size);
        continue;
      }
      linear = parameter->kind == nn::ParameterKind::kWeight &&
               !config_.family->construction.normal_weights;
      if (linear) {
        generator_.skip_uniform(parameter->size);
      } else if (table) {  // also a Conv1D
        generator_.skip_normal(parameter->size);
      }
    }
  }

  void construct_positions(const Parameters& encoder) {
    for (const nn::ParameterSpec* parameter : encoder) {
      if (parameter->name.ends_with("embeddings.position_embeddings.weight"))
        generator_.skip_normal(parameter->size);
    }
  }

  void initialize(const Parameters& parameters) {
    for (const nn::ParameterSpec* parameter : parameters) {
      // Fixed positions are drawn, and then computed.
      if (!parameter->trainable) generator_.skip_normal(parameter->size);
      draw_initial_values(config_, *parameter, weights_.subspan(parameter->offset, parameter->size),
                          generator_);
    }
  }

  const ModelConfig& config_;
  const nn::ParameterLayout& layout_;
  std::span<float> weights_;
  TorchGenerator generator_;
};

}  // namespace

void initialize_from_scratch(const ModelConfig& config, const nn::ParameterLayout& layout,
                             std::span<float> weights, std::uint64_t seed) {
  if (weights.size() != layout.size())
    raise<InvalidArgument>("room for {} weights; expected {}", weights.size(), layout.size());
  std::fill(weights.begin(), weights.end(), 0.0f);  // gaps between parameters hold 0
  Construction(config, layout, weights, seed).run();
}

}  // namespace tandem::models
