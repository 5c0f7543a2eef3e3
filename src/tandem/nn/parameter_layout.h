// Where every parameter of a model lies in one flat f32 arena.
//
// Weights, gradients, Adam moments and bf16 copies are separate arenas with this one layout (the
// copies end where no product reads any more), so "the parameter" is an offset. Parameters are
// added in the order in which backward finishes them: the head, layer L-1 … layer 0, the
// embeddings. A gradient bucket that can start its reduction while backward still runs is then
// always a prefix [0, end) of the arena.
//
// If a base model is frozen (TrainedParts), the arena has three zones, each in the order in which
// parameters are added: the trained parameters, the frozen ones, and the frozen operands. Those are
// matrices that products of the pass's precision alone read, so in bf16 only their copy exists.
// Gradients, moments, buckets and checkpoints end where the first zone ends, f32 weights next to a
// bf16 copy where the second one ends.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tandem/nn/weights.h"

namespace tandem::nn {

// Kind of a parameter; decides weight decay and the initialization of a missing one.
enum class ParameterKind {
  kWeight,           // matrix of a linear layer: [out_features, in_features], or transposed
  kBias,             // bias of a linear layer, a LayerNorm or scores: never decays
  kLayerNormWeight,  // never decays
  kEmbedding,        // table [rows, H]; decays
  kLowRankDown,      // A of an adapter: [rank, in_features]; decays
  kLowRankUp         // B of an adapter: [out_features, rank]; decays
};

// Whether a linear layer or a LayerNorm has a bias.
enum class Bias : bool { kNo, kYes };

// Whether a linear layer may have a low-rank update. Code that computes the layer itself, instead
// of with linear_forward(), cannot.
enum class Adaptable : bool { kNo, kYes };

struct ParameterSpec {
  std::string name;  // Hugging Face's name, e.g. "bert.encoder.layer.0.output.dense.weight"
  std::vector<std::size_t> shape;  // row-major
  std::size_t offset = 0;          // offset of its first element in the arena
  std::size_t size = 0;            // product of shape
  ParameterKind kind = ParameterKind::kWeight;
  bool weight_decay = false;  // matrices and tables, as run_qa's two parameter groups
  // false: the optimizer leaves it alone. Its gradient stays 0 (fixed sinusoidal positions), or it
  // has none (frozen).
  bool trainable = true;

  std::size_t end() const { return offset + size; }
  // Its elements in an arena of weights or gradients.
  template <typename T>
  std::span<T> values_in(std::span<T> arena) const {
    return arena.subspan(offset, size);
  }
};

// A run of elements that the optimizer treats alike.
struct ElementRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool weight_decay = false;
  friend bool operator==(const ElementRange&, const ElementRange&) = default;
};

// Chooses the trained parameters of a model whose base is frozen.
class TrainedParts {
 public:
  struct Adapter {
    std::size_t rank = 0;
    double scale = 1;
    double dropout = 0;
  };
  virtual ~TrainedParts() = default;
  // The adapter of a linear layer's module, or nothing.
  virtual std::optional<Adapter> adapter_of(std::string_view module) const = 0;
  // Whether this parameter of the base model is trained.
  virtual bool trains(std::string_view parameter) const = 0;
};

class ParameterLayout {
 public:
  // Arena offsets are multiples of this many elements: one cache line of f32, so no two parameters
  // share a line.
  static constexpr std::size_t kAlignment = 16;

  // All parameters are trained.
  ParameterLayout() = default;
  // Measures the sizes of the zones. Its offsets count from the beginning of each zone.
  explicit ParameterLayout(std::shared_ptr<const TrainedParts> trained)
      : trained_(std::move(trained)) {}
  // `measured` has the parameters that will be added to this layout.
  ParameterLayout(std::shared_ptr<const TrainedParts> trained, const ParameterLayout& measured);

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
  // lie one behind the other, then their biases. The matrices of their adapters follow, those of
  // the inputs first.
  Linear add_linear(std::string_view name, std::span<const std::string> modules,
                    std::size_t out_features, std::size_t in_features, Bias bias = Bias::kYes,
                    Adaptable adaptable = Adaptable::kYes);
  // The same for modules of their own sizes, one of out_features for each.
  Linear add_linear(std::string_view name, std::span<const std::string> modules,
                    std::span<const std::size_t> out_features, std::size_t in_features,
                    Bias bias = Bias::kYes, Adaptable adaptable = Adaptable::kYes);
  Linear add_linear(std::string_view name, const std::string& module, std::size_t out_features,
                    std::size_t in_features, Bias bias = Bias::kYes,
                    Adaptable adaptable = Adaptable::kYes) {
    return add_linear(name, std::span(&module, 1), out_features, in_features, bias, adaptable);
  }
  // One layer whose weight is stored transposed, with a bias.
  Linear add_transposed_linear(std::string_view name, const std::string& module,
                               std::size_t out_features, std::size_t in_features);
  // Whether the matrices added from here on are operands: products of the pass's precision alone
  // read them (Weights::matrix). Set while the layers of an encoder are added.
  void set_adds_operands(bool adds) { adds_operands_ = adds; }
  // Weight and bias of a LayerNorm over `size` columns.
  LayerNormParameters add_layer_norm(const std::string& module, std::size_t size,
                                     Bias bias = Bias::kYes);

  // In the order of add(), which is arena order in each zone.
  const std::vector<ParameterSpec>& parameters() const { return parameters_; }
  // Those of add_linear(), in arena order.
  const std::vector<Linear>& linears() const { return linears_; }
  // Null when there is no parameter of this name.
  const ParameterSpec* find(std::string_view name) const;

  // Elements of the arena of weights with alignment gaps; a multiple of kAlignment. Gaps hold 0
  // in every arena.
  std::size_t size() const;
  // Elements of the trained zone so far: the end of the gradients. size() unless a base is frozen.
  std::size_t trained_size() const;
  bool has_frozen_base() const { return trained_ != nullptr; }
  // Where the frozen operands begin: the end of f32 weights next to a bf16 copy. size() unless a
  // base is frozen.
  std::size_t operands_begin() const;
  // Elements up to the end of the last matrix of a linear layer: the part of the arena that
  // products read, so all that a bf16 copy needs to hold. Embeddings lie behind it. If a base is
  // frozen, the copy ends with the operands and has a hole where the other frozen parameters are.
  std::size_t bf16_size() const;
  // Elements of parameters: what Hugging Face prints as the number of parameters.
  std::size_t num_parameters() const;
  std::size_t num_trainable_parameters() const;

  // The trainable elements as maximal runs of equal weight decay, in arena order. A gap behind a
  // parameter counts with it (0 stays 0 under AdamW), so the runs are few.
  std::vector<ElementRange> trainable_ranges() const;

 private:
  enum Zone : std::size_t { kTrained, kFrozen, kOperands, kZones };
  Zone zone_of(std::string_view name, ParameterKind kind) const;
  std::size_t append(bool adjacent, std::string name, std::vector<std::size_t> shape,
                     ParameterKind kind, bool trainable);
  LowRank add_low_rank(std::span<const std::string> modules,
                       std::span<const std::size_t> out_features, std::size_t in_features);

  std::shared_ptr<const TrainedParts> trained_;  // null: all
  std::array<std::size_t, kZones> ends_ = {};    // of the zones, so far
  bool adds_operands_ = false;
  std::vector<ParameterSpec> parameters_;
  std::vector<Linear> linears_;
  std::unordered_map<std::string, std::size_t> index_;
};

}  // namespace tandem::nn
