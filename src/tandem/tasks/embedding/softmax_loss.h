// SoftmaxLoss (Reimers and Gurevych 2019): a classifier of pairs of embeddings u and v, a linear
// layer on [u; v; |u - v|], which is trained with the encoder.
//
// The layer's parameters belong to the task: it registers them with the optimizer like those of a
// model's head, draws them as torch.nn.Linear does, and leaves them out of the saved encoder.
#pragma once

#include <cstddef>
#include <span>

#include "tandem/tasks/embedding/loss.h"

namespace tandem::tasks::embedding {

struct SoftmaxLayer {
  std::size_t classes = 2;
  bool texts = true;       // u and v (concatenation_sent_rep)
  bool difference = true;  // |u - v| (concatenation_sent_difference)
  bool product = false;    // u · v by components (concatenation_sent_multiplication)

  std::size_t parts() const { return (texts ? 2 : 0) + (difference ? 1 : 0) + (product ? 1 : 0); }
  // Weight [classes, parts · width], then bias [classes].
  std::size_t parameters(std::size_t width) const { return classes * (parts() * width + 1); }
};

struct SoftmaxGradients {
  std::span<float> embeddings;  // [columns, range, width]
  std::span<float> parameters;  // like the parameters; of all rows, so that ranks need no sum
};

// The mean cross entropy over all rows of a group of two columns whose labels are classes.
// Overwrites the gradients; either may be empty. The same bits for any range and number of threads.
double softmax_loss(const SoftmaxLayer& layer, std::span<const float> parameters,
                    const EmbeddedRows& group, RowRange range, const SoftmaxGradients& gradients,
                    const kernels::Context& context);

}  // namespace tandem::tasks::embedding
