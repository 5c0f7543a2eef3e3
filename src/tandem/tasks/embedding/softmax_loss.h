// Classification of pairs of texts (Reimers and Gurevych 2019): a linear classifier over [u, v,
// |u - v|, u * v], of which each part is optional, and the cross entropy of its classes.
#pragma once

#include <cstddef>
#include <memory>

#include "tandem/tasks/embedding/loss.h"

namespace tandem::tasks::embedding {

struct SoftmaxOptions {
  std::size_t classes = 0;
  bool texts = true;       // u and v
  bool difference = true;  // |u - v|
  bool product = false;    // u * v
};

// Parameters: classifier.weight [classes, features] and classifier.bias [classes]. Labels: the
// class of each row.
std::unique_ptr<EmbeddingLoss> make_softmax_loss(const SoftmaxOptions& options);

}  // namespace tandem::tasks::embedding
