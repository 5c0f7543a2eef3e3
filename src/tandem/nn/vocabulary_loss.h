// The output layer of a language model and its cross entropy: logits = x·Wᵀ + b over a vocabulary,
// computed in slices of it, so that no whole matrix of rows × vocabulary is needed.
//
// Forward keeps a running maximum and a running sum of each row, and the logits of as many slices
// as there is memory for. Backward computes the others again. Slices have a fixed size and rows are
// independent, so bits do not depend on threads. Products read bf16 operands in bf16 passes;
// logits, softmax and gradients of parameters are f32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tandem/core/bfloat16.h"
#include "tandem/core/buffer.h"
#include "tandem/kernels/context.h"
#include "tandem/nn/weights.h"

namespace tandem::nn {

// Inputs of a pass.
struct VocabularyLayer {
  std::size_t rows = 0;                   // R
  std::size_t vocabulary = 0;             // V
  std::size_t width = 0;                  // E
  const float* x = nullptr;               // [R, E]
  const float* weight = nullptr;          // [V, E]
  const float* bias = nullptr;            // [V] or null
  std::span<const std::int32_t> targets;  // [R] in [0, V)
};

// The gradients that backward writes.
struct VocabularyGradients {
  float* x = nullptr;       // [R, E], overwritten
  float* weight = nullptr;  // [V, E], overwritten or added to; null: not wanted
  float* bias = nullptr;    // [V], as weight; null without a bias
  bool accumulate = false;  // whether to add to the gradients of weight and bias
};

// Results of forward for a row.
struct VocabularyRow {
  float largest = 0;       // logit
  double sum = 0;          // sum of e^(logit - largest)
  float target = 0;        // the target's logit
  std::uint32_t best = 0;  // the first of the largest logits
  double log_sum_exp() const;
  double loss() const { return log_sum_exp() - target; }
};

// One pass at a time. Not thread-safe.
class VocabularyLoss {
 public:
  static constexpr std::size_t kSlice = 2048;                        // slice of the vocabulary
  static constexpr std::size_t kKeptBytes = std::size_t{256} << 20;  // a good value of kept_bytes

  // Room for passes of up to `rows` rows; without it forward() allocates. Returns the bytes.
  // training: a backward pass follows. kept_bytes: at most this much is for logits that backward
  // does not compute again.
  std::size_t reserve(std::size_t rows, std::size_t vocabulary, std::size_t width,
                      Precision precision, bool training, std::size_t kept_bytes);

  // The mean loss of the rows, summed in f64 in their order; 0 without rows. Throws InvalidArgument
  // for a target outside the vocabulary.
  double forward(const kernels::Context& context, const VocabularyLayer& layer,
                 Precision precision);
  // A value for each row of the last forward().
  std::span<const VocabularyRow> rows() const { return rows_; }
  // Gradients of scale · the loss of the last forward(), with the same arguments. Once.
  void backward(const kernels::Context& context, const VocabularyLayer& layer, Precision precision,
                double scale, const VocabularyGradients& gradients);

 private:
  template <class T>
  struct Memory;  // views of buffer_
  template <class T>
  Memory<T> memory(const VocabularyLayer& layer);
  template <class T>
  void forward_slices(const kernels::Context& context, const VocabularyLayer& layer);
  template <class T>
  void backward_slices(const kernels::Context& context, const VocabularyLayer& layer, double scale,
                       const VocabularyGradients& gradients);
  void take_slice(const kernels::Context& context, const VocabularyLayer& layer, std::size_t begin,
                  std::size_t count, const float* logits);

  std::vector<VocabularyRow> rows_;
  std::size_t kept_logits_ = 0;  // at most so many
  Buffer buffer_;
};

}  // namespace tandem::nn
