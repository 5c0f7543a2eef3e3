/** MultipleNegativesRankingLoss in its plain form, until losses.h is there. */
#pragma once

#include <memory>

#include "tandem/tasks/embedding/loss.h"

namespace tandem::tasks::embedding {

std::unique_ptr<EmbeddingLoss> make_minimal_loss(double scale);

}  // namespace tandem::tasks::embedding
