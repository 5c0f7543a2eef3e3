// Where every parameter of a model lies in one flat f32 arena.
//
// Weights, gradients, Adam moments and bf16 copies are separate arenas with this one layout (the
// copies end where no product reads any more), so "the parameter" is an offset. Parameters are
// added in the order in which backward finishes them: the head, layer L-1 … layer 0, the
// embeddings. A gradient bucket that can start its reduction while backward still runs is then
// always a prefix [0, end) of the arena.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tandem/nn/weights.h"

namespace tandem::nn {

// Kind of a parameter; decides weight decay and the initialization of a missing one.
enum class ParameterKind {
  kWeight,           // matrix of a linear layer: [out_features, in_features], or transposed
  kBias,             // bias of a linear layer, a LayerNorm or scores: never decays
  kLayerNormWeight,  // never decays
  kEmbedding         // table [rows, H]; decays
};

// Whether a linear layer or a LayerNorm has a bias.
enum class Bias : bool { kNo, kYes };

struct ParameterSpec {
  std::string name;  // Hugging Face's name, e.g. "bert.encoder.layer.0.output.dense.weight"
  std::vector<std::size_t> shape;  // row-major
  std::size_t offset = 0;          // offset of its first element in the arena
  std::size_t size = 0;            // product of shape
  ParameterKind kind = ParameterKind::kWeight;
  bool weight_decay = false;  // kWeight and kEmbedding, as run_qa's two parameter groups
  // false: its gradient stays 0 and the optimizer leaves it alone (fixed sinusoidal positions).
  bool trainable = true;

  std::size_t end() const { return offset + size; }
};

// A run of elements that the optimizer treats alike.
struct ElementRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool weight_decay = false;
  friend bool operator==(const ElementRange&, const ElementRange&) = default;
};

class ParameterLayout {
 public:
  // Arena offsets are multiples of this many elements: one cache line of f32, so no two parameters
  // share a line.
  static constexpr std::size_t kAlignment = 16;

  // Appends a parameter at the next aligned offset and returns that offset. TANDEM_CHECKs that the
  // name is new.
  std::size_t add(std::string name, std::vector<std::size_t> shape, ParameterKind kind,
                  bool trainable = true);
  // As add(), but directly behind the previous parameter, so that the two can be read as one matrix
  // (query, key and value are one [3H, H] product). The offset is still a multiple of kAlignment
  // whenever the previous size is one.
  std::size_t add_adjacent(std::string name, std::vector<std::size_t> shape, ParameterKind kind);

  // Appends the weight and the bias of a linear layer, "<module>.weight" and "<module>.bias".
  // Several modules, of `out_features` each, that read the same input are one layer: their weights
  // lie one behind the other, then their biases.
  Linear add_linear(std::string_view name, std::span<const std::string> modules,
                    std::size_t out_features, std::size_t in_features, Bias bias = Bias::kYes);
  // The same for modules of their own sizes, one of out_features for each.
  Linear add_linear(std::string_view name, std::span<const std::string> modules,
                    std::span<const std::size_t> out_features, std::size_t in_features,
                    Bias bias = Bias::kYes);
  Linear add_linear(std::string_view name, const std::string& module, std::size_t out_features,
                    std::size_t in_features, Bias bias = Bias::kYes) {
    return add_linear(name, std::span(&module, 1), out_features, in_features, bias);
  }
  // One layer whose weight is stored transposed, with a bias.
  Linear add_transposed_linear(std::string_view name, const std::string& module,
                               std::size_t out_features, std::size_t in_features);
  // Weight and bias of a LayerNorm over `size` columns.
  LayerNormParameters add_layer_norm(const std::string& module, std::size_t size,
                                     Bias bias = Bias::kYes);

  // In arena order.
  const std::vector<ParameterSpec>& parameters() const { return parameters_; }
  // Those of add_linear(), in arena order.
  const std::vector<Linear>& linears() const { return linears_; }
  // Null when there is no parameter of this name.
  const ParameterSpec* find(std::string_view name) const;

  // Elements of the arena, alignment gaps included; a multiple of kAlignment. Gaps hold 0 in every
  // arena.
  std::size_t size() const;
  // Elements up to the end of the last matrix of a linear layer: the part of the arena that
  // products read, so all that a bf16 copy needs to hold. Embeddings lie behind it.
  std::size_t bf16_size() const;
  // Elements of parameters: what Hugging Face prints as the number of parameters.
  std::size_t num_parameters() const;
  std::size_t num_trainable_parameters() const;

  // The trainable elements as maximal runs of equal weight decay, in arena order. A gap behind a
  // parameter counts with it (0 stays 0 under AdamW), so the runs are few.
  std::vector<ElementRange> trainable_ranges() const;

 private:
  std::size_t append(std::size_t offset, std::string name, std::vector<std::size_t> shape,
                     ParameterKind kind, bool trainable);

  std::vector<ParameterSpec> parameters_;
  std::vector<Linear> linears_;
  std::unordered_map<std::string, std::size_t> index_;
};

}  // namespace tandem::nn
