// Losses of probabilities: of the labels of texts and tokens, and of extractive question answering,
// where a softmax goes over the rows of each sequence, once for the start and once for the end.
//
// All return f64 sums of a fixed order, whatever the number of threads. There is one version of
// each, scalar and in f64: a few logits per row are less than 0.03 % of a step (`tandem bench
// step`: loss forward, loss backward), so a vectorised version would gain nothing and cost the
// precision.
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
// Pad rows take part in the softmax, as they do in HF's padded batches. On the calling thread.
double span_cross_entropy(const Context& ctx, const Sequences& sequences, const float* logits,
                          const std::int32_t* start, const std::int32_t* end, float grad_scale,
                          float* grad_logits);

// The target of a row that does not count, as in torch.
inline constexpr std::int32_t kIgnoredTarget = -100;

// One class per row out of `classes`.
struct ClassTargets {
  std::size_t rows = 0;
  std::size_t classes = 0;
  const std::int32_t* target = nullptr;  // [rows] in [0, classes), or kIgnoredTarget
  // e in [0, 1): (1 - e) times the loss plus e times the mean of -log p over all classes (Szegedy
  // et al. 2015; transformers' LabelSmoother).
  double smoothing = 0;
};

// Returns the mean over the rows that count of -log softmax(logits)[target]; NaN when none does, as
// torch's cross_entropy.
//   logits: [rows, classes] f32.
//   grad_logits: [rows, classes] f32, overwritten with grad_scale * d loss / d logits, 0 in rows
//   that do not count; or null: not wanted. It may be logits.
// Throws InvalidArgument for a target outside the classes; the message names the row.
double cross_entropy(const Context& ctx, const ClassTargets& targets, const float* logits,
                     float grad_scale, float* grad_logits);

// Any number of classes per row: the mean over `count` cells of the loss of a sigmoid,
// -t log s(x) - (1 - t) log(1 - s(x)), torch's BCEWithLogitsLoss. NaN when count is 0.
//   logits, targets: [count] f32, targets in [0, 1].
//   grad_logits: [count] f32, overwritten with grad_scale * d loss / d logits; or null. It may be
//   logits.
double binary_cross_entropy(const Context& ctx, std::size_t count, const float* logits,
                            const float* targets, float grad_scale, float* grad_logits);

}  // namespace tandem::kernels
