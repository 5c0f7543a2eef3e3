// The part of a model that a task adds to the encoder: its own parameters, and logits from the last
// hidden states.
//
// EncoderModel owns memory, precision and the checks of a batch; a head computes in f32 on what the
// encoder gives. Its parameters come first in the layout, for their gradients are final first; a
// head with several layers adds the last one first. The computation is alike for each row of a
// batch, or for each sequence, so its sizes are those of one. It has no state of a pass, so one
// head serves any number of passes. docs/extending/head.md goes through an example.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "tandem/models/encoder/model_config.h"
#include "tandem/nn/parameter_layout.h"
#include "tandem/nn/pass.h"
#include "tandem/nn/weights.h"

namespace tandem::models {

// Sizes of a head for each unit of a batch.
struct HeadShape {
  enum class Unit { kRow, kSequence };
  // The rows of each sequence that the logits depend on. kFirst: no other row is computed behind
  // the attention of the last layer, and the head gets these rows as sequences of one row. A
  // forward pass with an observer (Weights::observer) computes all rows.
  enum class Reads { kAll, kFirst, kLast };

  // The class of transformers is the family's prefix and this: "ForQuestionAnswering".
  std::string class_suffix;
  Unit unit = Unit::kSequence;
  Reads reads = Reads::kAll;
  std::size_t num_labels = 0;  // logits
  // f32 values that a pass needs room for from forward to backward, and how many more in training.
  std::size_t memory = 0;
  std::size_t training_memory = 0;
  // The task computes the head (masked_language_head.h): the logits are the last hidden states, and
  // the head has no products here.
  bool outside = false;
  // The head's parameters are a matrix of which it reads some rows, so its products do not count.
  bool few_products = false;
  // backward() comes after the head has written its part of the gradient of the word embeddings.
  bool shares_word_embeddings = false;

  bool reads_first_rows() const { return reads == Reads::kFirst; }
};

class Head {
 public:
  explicit Head(HeadShape shape) : shape_(std::move(shape)) {}
  virtual ~Head() = default;

  const HeadShape& shape() const { return shape_; }
  // The layout of the whole model, once: for a head that reads parameters of the encoder.
  virtual void layout_complete(const nn::ParameterLayout&) {}
  // How many rows or sequences of a batch the head computes for.
  template <class Count>
  Count units(Count rows, Count sequences) const {
    return shape_.unit == HeadShape::Unit::kRow ? rows : sequences;
  }
  std::size_t num_logits(std::size_t rows, std::size_t sequences) const {
    return units(rows, sequences) * shape_.num_labels;
  }
  std::size_t memory(std::size_t rows, std::size_t sequences, bool training) const {
    return units(rows, sequences) * (shape_.memory + (training ? shape_.training_memory : 0));
  }

  // logits ([num_logits()]; overwritten) from hidden [R, H].   memory: [memory()], the head's until
  // backward.
  virtual void forward(const nn::Pass& pass, std::span<const float> hidden, std::span<float> memory,
                       std::span<float> logits) const = 0;
  // From the gradient of the logits: grad_hidden [R, H], overwritten, and the gradients of the
  // head's parameters, which go to `grads`. The rest as in the forward pass before. R counts the
  // rows that the head gets.
  virtual void backward(const nn::Pass& pass, std::span<const float> hidden,
                        std::span<float> memory, std::span<const float> grad_logits,
                        std::span<float> grad_hidden, const nn::Gradients& grads) const = 0;

 private:
  HeadShape shape_;
};

// Adds the head's parameters to an empty layout and makes the head.
using MakeHead = std::function<std::unique_ptr<Head>(const ModelConfig&, nn::ParameterLayout&)>;

// A MakeHead of a head with such a constructor.
template <class T>
std::unique_ptr<Head> make_head_of(const ModelConfig& config, nn::ParameterLayout& layout) {
  return std::make_unique<T>(config, layout);
}

}  // namespace tandem::models
