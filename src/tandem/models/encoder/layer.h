// The slot for layers: what an encoder asks of a layer. An encoder is a table of layers; a kind of
// layer is one folder in models/layers/, and no other code knows the inside of a layer
// (docs/extending/layer.md).
//
// The encoder owns the memory of a pass and the rows between the layers. A layer owns its
// parameters and knows its formulas; it has no state of a pass, so one table serves any number of
// passes. Letters: R rows of all sequences, H hidden size, T the type that matrix products read.
//
// First rows. A head may read the first row of each sequence alone. Then the last layer whose rows
// read each other computes B rows, one per sequence, and the layers behind it get these rows only.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/core/bfloat16.h"
#include "tandem/core/thread_pool.h"
#include "tandem/nn/hidden.h"
#include "tandem/nn/parameter_layout.h"
#include "tandem/nn/pass.h"
#include "tandem/nn/weights.h"

namespace tandem::models {

struct ModelConfig;

// The activations that a forward pass keeps.
//   kInference:    nothing; all layers run in the memory of one.
//   kTraining:     all that backward cannot recompute in one pass over memory.
//   kCheckpointed: each layer's output; backward computes two thirds of each layer's forward once
//                  more. --gradient_checkpointing
enum class PassKind { kInference, kTraining, kCheckpointed };

// Whether a backward pass can follow.
constexpr bool is_training(PassKind kind) { return kind != PassKind::kInference; }

// The rows that a layer has memory for.
struct LayerRows {
  std::size_t all = 0;    // R, of its input
  std::size_t first = 0;  // B, if first rows alone continue; 0: all rows do

  std::size_t output() const { return first == 0 ? all : first; }
};

// The sizes of a layer's memory in bytes.
struct LayerBytes {
  std::size_t kept = 0;     // from forward to backward, in every kind of training pass
  std::size_t saved = 0;    // from forward to backward; with kCheckpointed all layers share it
  std::size_t scratch = 0;  // within one forward or backward; all layers share it
};

// The memory itself, for the layer to lay its tensors out in (core/region.h).
struct LayerMemory {
  std::span<std::byte> kept, saved, scratch;
};

// One layer's part of a pass.
template <class T>
struct LayerPass {
  const nn::Pass& rows;        // rows of x
  const nn::Pass* first_rows;  // null, or the first row of each sequence, as sequences of one row
                               // each: these rows alone continue, and y has them
  PassKind kind;
  // x: the layer's input. y: its output; in backward its memory may be overwritten. In inference
  // both may be the same memory; with T = bfloat16 their residuals may be, in every kind of pass.
  nn::Hidden<T> x, y;
  LayerMemory memory;
  std::span<std::byte> shared;  // the table's SharedPart
  // Generation: of each sequence the keys and values of the rows before, [past_rows,
  // key_value_width()], and behind them the memory for those of this pass. Else empty.
  std::span<T* const> key_values = {};

  const nn::Pass& output_rows() const { return first_rows == nullptr ? rows : *first_rows; }
  LayerRows layer_rows() const {
    return {.all = rows.rows(), .first = first_rows == nullptr ? 0 : first_rows->rows()};
  }
};

// How a layer's input and output have to be treated.
struct LayerTraits {
  // Rows read each other. A layer without this may run on any of the rows alone.
  bool mixes_rows = true;
  // The layer can recompute its output from `kept`, so the encoder need not keep it.
  bool restores_output = true;
  // The layer reads x.operand. Without this the operand may be empty when T is bfloat16.
  bool reads_operand = true;
  // Backward reads x.residual although no checkpointing asks for a second forward.
  bool backward_reads_residual = false;
};

// One sequence, as the work of a layer depends on it.
struct SequenceWork {
  double rows = 0;
  double keys = 0;         // rows that are not padding
  double output_rows = 0;  // 1 if the first row alone continues, else `rows`
};

// A layer of the table. Every function but forward() and backward() may be called at any time.
class Layer {
 public:
  virtual ~Layer() = default;

  virtual LayerTraits traits() const { return {}; }
  // Memory for a pass over these rows. It grows with either number of rows.
  virtual LayerBytes bytes(const LayerRows& rows, nn::Precision precision, bool training) const = 0;
  // Elements that a layer with causal attention keeps of each row for the rows behind it, in
  // generation; 0: it keeps nothing.
  virtual std::size_t key_value_width() const { return 0; }
  // The products of one forward pass of a sequence: add(stage, number) with the stage's name in the
  // profile. Backward costs twice that.
  using AddProducts = FunctionRef<void(std::string_view stage, double multiply_adds)>;
  virtual void count_products(const SequenceWork& work, AddProducts add) const = 0;
  // The products that a forward pass makes once for all its sequences; `longest`: rows of the
  // longest.
  virtual void count_shared_products(std::size_t /*longest*/, AddProducts) const {}

  // y = layer(x), overwritten, together with what backward needs: y.residual, and y.operand unless
  // it is empty. The first rows have the same bits alone as among all.
  virtual void forward(const LayerPass<float>& pass) const = 0;
  virtual void forward(const LayerPass<bfloat16>& pass) const = 0;

  // y of the forward pass, the same bits, from `kept`: y.operand, and y.residual if `residual`.
  // Asked of layers that restore their output.
  virtual void restore_output(const LayerPass<float>& pass, bool residual) const = 0;
  virtual void restore_output(const LayerPass<bfloat16>& pass, bool residual) const = 0;

  // grad: [R, H] f32; on entry its first rows, as many as y has, are the gradient of y, on return
  // it is that of x. Parameter gradients go to `grads` (overwrite or +=, as it states). x and
  // `kept` are those of forward, `saved` too unless pass.kind is kCheckpointed. Then `saved` has
  // the values of another layer, and backward first recomputes this layer's from x.
  virtual void backward(const LayerPass<float>& pass, std::span<float> grad,
                        const nn::Gradients& grads) const = 0;
  virtual void backward(const LayerPass<bfloat16>& pass, std::span<float> grad,
                        const nn::Gradients& grads) const = 0;
};

// A Layer whose functions are templates over T: Kind has
//   template <class T> LayerBytes measure(const LayerRows& rows, bool training) const;
//   template <class T> void run_forward(const LayerPass<T>& pass) const;
//   template <class T> void run_restore(const LayerPass<T>& pass, bool residual) const;
//   template <class T> void run_backward(const LayerPass<T>& pass, std::span<float> grad,
//                                        const nn::Gradients& grads) const;
template <class Kind>
class LayerOf : public Layer {
 public:
  LayerBytes bytes(const LayerRows& rows, nn::Precision precision, bool training) const final {
    return precision == nn::Precision::kFloat32 ? kind().template measure<float>(rows, training)
                                                : kind().template measure<bfloat16>(rows, training);
  }
  void forward(const LayerPass<float>& pass) const final { kind().run_forward(pass); }
  void forward(const LayerPass<bfloat16>& pass) const final { kind().run_forward(pass); }
  void restore_output(const LayerPass<float>& pass, bool residual) const final {
    kind().run_restore(pass, residual);
  }
  void restore_output(const LayerPass<bfloat16>& pass, bool residual) const final {
    kind().run_restore(pass, residual);
  }
  void backward(const LayerPass<float>& pass, std::span<float> grad,
                const nn::Gradients& grads) const final {
    kind().run_backward(pass, grad, grads);
  }
  void backward(const LayerPass<bfloat16>& pass, std::span<float> grad,
                const nn::Gradients& grads) const final {
    kind().run_backward(pass, grad, grads);
  }

 private:
  const Kind& kind() const { return static_cast<const Kind&>(*this); }
};

// State that the layers of a table share: parameters whose gradient is a sum over all layers, and
// values that a pass computes of them once, in memory that every LayerPass gets. A layer that uses
// it knows its type: the kind makes both.
class SharedPart {
 public:
  virtual ~SharedPart() = default;

  // The most rows that linear layers compute in a pass of up to `rows` rows, other than those of
  // the texts.
  virtual std::size_t product_rows(std::size_t /*rows*/) const { return 0; }
  // The memory from forward to backward, for passes of up to `rows` rows.
  virtual std::size_t bytes(std::size_t rows, nn::Precision precision, bool training) const = 0;
  // Before the first layer's forward.
  virtual void forward(const nn::Pass& pass, std::span<std::byte> memory) const = 0;
  // Before the last layer's backward: sets the sums over layers to 0. The layers add theirs from
  // the last to the first.
  virtual void clear_sums(const nn::Pass& pass, std::span<std::byte> memory) const = 0;
  // After the first layer's backward: the gradients of the parameters, to `grads`.
  virtual void backward(const nn::Pass& pass, std::span<std::byte> memory,
                        const nn::Gradients& grads) const = 0;
};

// The table of an encoder's layers.
struct LayerTable {
  struct Entry {
    std::unique_ptr<const Layer> layer;
    // The prefix of the gradients that is final after this layer's backward.
    std::size_t end = 0;
    bool trained = true;  // some of its parameters are
  };
  std::vector<Entry> layers;  // in the order of forward, at least one
  // Null, or made by a kind whose layers share one. Its parameters are the layout's last.
  std::unique_ptr<const SharedPart> shared;
};

// A table of `count` layers: make(index) adds the parameters of layer `index` to `layout`, in the
// order in which backward finishes them, and returns a unique_ptr. It is called for the last layer
// first.
template <class Make>
LayerTable make_table(std::size_t count, nn::ParameterLayout& layout, Make make) {
  LayerTable table;
  table.layers.resize(count);
  for (std::size_t index = count; index-- > 0;) {
    const std::size_t begin = layout.trained_size();
    table.layers[index].layer = make(index);
    table.layers[index].end = layout.trained_size();
    table.layers[index].trained = table.layers[index].end > begin;
  }
  return table;
}

// A kind of layer with the names that a family gives its parts: what Family::layers points to. A
// kind is a constant, so it derives as `final` and is never deleted through this class.
class LayerKind {
 public:
  // Appends the parameters of all layers to `layout`, those of the last layer first and those of a
  // shared part at the end. `config` is valid.
  virtual LayerTable make(const ModelConfig& config, nn::ParameterLayout& layout) const = 0;

 protected:
  ~LayerKind() = default;
};

}  // namespace tandem::models
