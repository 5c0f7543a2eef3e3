// The loss of extractive question answering: a softmax over the rows of each sequence, once for the
// start and once for the end.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tandem/kernels/context.h"
#include "tandem/kernels/sequences.h"

namespace tandem::kernels {

// Returns (mean start loss + mean end loss) / 2, each mean over the sequences whose target is not
// ignored; NaN when all targets of a side are ignored, as torch's cross_entropy. Summed in f64 in
// sequence order.
//   logits: [rows, 2] f32, column 0 = start, 1 = end.
//   start, end: [sequences] target row within its sequence. As in HF's models a negative target
//   counts as row 0, and one at or
//     beyond the sequence's rows is ignored.
//   grad_logits: [rows, 2] f32, overwritten with grad_scale * d loss / d logits (0 for ignored
//   targets); or null: not wanted.
// Pad rows take part in the softmax, as they do in HF's padded batches.
//
// Scalar f64 on the calling thread, the one version there is: two logits per row are less than
// 0.03 % of a step (`tandem bench step`: loss forward, loss backward), so a vectorised twin would
// buy nothing and cost the precision.
double span_cross_entropy(const Context& ctx, const Sequences& sequences, const float* logits,
                          const std::int32_t* start, const std::int32_t* end, float grad_scale,
                          float* grad_logits);

}  // namespace tandem::kernels
