#include "tandem/nn/vocabulary_logits.h"

#include "tandem/kernels/linear.h"
#include "tandem/kernels/reduce.h"

namespace tandem::nn {

using kernels::PackedWeight;

VocabularyLogits::VocabularyLogits(const kernels::Context& context, std::size_t vocabulary,
                                   std::size_t width, const float* weight, Precision precision)
    : vocabulary_(vocabulary), width_(width), weight_(pack(context, weight, precision)) {}

VocabularyLogits::Weight VocabularyLogits::pack(const kernels::Context& context,
                                                const float* weight, Precision precision) {
  if (precision == Precision::kFloat32)
    return PackedWeight<float>(context, vocabulary_, width_, weight);
  rounded_weight_ = Buffer(vocabulary_ * width_ * sizeof(bfloat16));
  bfloat16* const rounded = rounded_weight_.as<bfloat16>().data();
  kernels::convert(context, vocabulary_ * width_, weight, rounded);
  PackedWeight<bfloat16> packed(context, vocabulary_, width_, rounded);
  if (packed.panels() != nullptr) rounded_weight_ = {};
  return packed;
}

void VocabularyLogits::compute(const kernels::Context& context, std::size_t rows, const float* x,
                               float* logits) {
  if (const auto* f32 = std::get_if<PackedWeight<float>>(&weight_)) {
    kernels::linear_forward_f32(context, rows, *f32, x, nullptr, logits);
    return;
  }
  rounded_x_.resize(rows * width_);
  kernels::convert(context, rows * width_, x, rounded_x_.data());
  kernels::linear_forward_f32(context, rows, std::get<PackedWeight<bfloat16>>(weight_),
                              rounded_x_.data(), nullptr, logits);
}

}  // namespace tandem::nn
