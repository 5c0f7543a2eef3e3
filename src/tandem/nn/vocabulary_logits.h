// The output layer of a decoder that generates: logits = x·Wᵀ of a few rows at a time, with
// operands as in a pass of the model (nn/vocabulary_loss.h) and f32 sums.
#pragma once

#include <cstddef>
#include <variant>
#include <vector>

#include "tandem/core/bfloat16.h"
#include "tandem/core/buffer.h"
#include "tandem/kernels/context.h"
#include "tandem/kernels/packed_weight.h"
#include "tandem/nn/weights.h"

namespace tandem::nn {

// Used by one thread. For contexts with the kernels that made it.
class VocabularyLogits {
 public:
  // weight: [V, E] f32, which must live as long. Parallel over context.threads.
  VocabularyLogits(const kernels::Context& context, std::size_t vocabulary, std::size_t width,
                   const float* weight, Precision precision);

  std::size_t vocabulary() const { return vocabulary_; }
  std::size_t width() const { return width_; }

  // logits [rows, V] of x [rows, E], overwritten. No bit depends on the other rows.
  void compute(const kernels::Context& context, std::size_t rows, const float* x, float* logits);

 private:
  using Weight = std::variant<kernels::PackedWeight<float>, kernels::PackedWeight<bfloat16>>;
  Weight pack(const kernels::Context& context, const float* weight, Precision precision);

  std::size_t vocabulary_, width_;
  Buffer rounded_weight_;  // [V, E] bf16, where kernels read the operand as it is
  Weight weight_;
  std::vector<bfloat16> rounded_x_;  // of one call
};

}  // namespace tandem::nn
