// What a task puts on the encoder: its own parameters, and logits from the last hidden states.
//
// EncoderModel owns memory, precision and the checks of a batch; a head computes in f32 on what the
// encoder gives. Its parameters come first in the layout, for their gradients are final first; a
// head with several layers adds the last one first. It has no state of a pass, so one head serves
// any number of passes. docs/extending/head.md goes through an example.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "tandem/models/model_config.h"
#include "tandem/nn/parameter_layout.h"
#include "tandem/nn/pass.h"
#include "tandem/nn/weights.h"

namespace tandem::models {

class Head {
 public:
  virtual ~Head() = default;

  // The class of transformers is the family's prefix and this: "ForQuestionAnswering".
  virtual std::string_view class_suffix() const = 0;
  // Logits of a batch.
  virtual std::size_t num_logits(std::size_t rows, std::size_t sequences) const = 0;
  // Multiply-adds of the products of one forward pass; x6 are the operations of a training pass.
  virtual double multiply_adds(double rows, double sequences) const = 0;
  // f32 values that a pass needs room for, from forward to backward; 0: none.
  virtual std::size_t memory(std::size_t rows, std::size_t sequences, bool training) const = 0;

  // logits ([num_logits()]; overwritten) from hidden [R, H].   memory: [memory()], the head's until
  // backward.
  virtual void forward(const nn::Pass& pass, std::span<const float> hidden, std::span<float> memory,
                       std::span<float> logits) const = 0;
  // From the gradient of the logits: grad_hidden [R, H], overwritten, and the gradients of the
  // head's parameters, which go to `grads`. The rest as in the forward pass before.
  virtual void backward(const nn::Pass& pass, std::span<const float> hidden,
                        std::span<float> memory, std::span<const float> grad_logits,
                        std::span<float> grad_hidden, const nn::Gradients& grads) const = 0;
};

// Adds the head's parameters to an empty layout and makes the head.
using MakeHead = std::function<std::unique_ptr<Head>(const ModelConfig&, nn::ParameterLayout&)>;

}  // namespace tandem::models
