// Matryoshka representation learning (Kusupati et al. 2022): a loss summed over the first
// components of the embeddings, which are made unit vectors after the cut.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "tandem/tasks/embedding/loss.h"

namespace tandem::tasks::embedding {

struct MatryoshkaSize {
  std::size_t components = 0;
  double weight = 1;
};

// Σ weight · inner(unit vectors of the first `components` of each embedding).
std::unique_ptr<EmbeddingLoss> make_matryoshka_loss(std::unique_ptr<EmbeddingLoss> inner,
                                                    std::vector<MatryoshkaSize> sizes);

}  // namespace tandem::tasks::embedding
