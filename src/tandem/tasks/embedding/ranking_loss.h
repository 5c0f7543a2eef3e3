// MultipleNegativesRankingLoss (InfoNCE) and its symmetric form: the other rows of the group are
// negatives (van den Oord et al. 2018, Li et al. 2023). Similarities are computed in tiles; memory
// is that of a few tiles for any number of rows.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "tandem/tasks/embedding/loss.h"

namespace tandem::tasks::embedding {

// Which negatives' logits grow by strength · similarity, a term without a gradient.
enum class Hardness { kNone, kInBatchNegatives, kHardNegatives, kAllNegatives };

struct RankingOptions {
  double scale = 20;
  bool cosine = true;  // else the dot product
  bool query_to_query = false;
  bool doc_to_query = false;
  bool doc_to_doc = false;
  bool joint = true;  // one softmax over all directions; else the mean of one softmax for each
  Hardness hardness = Hardness::kNone;
  double hardness_strength = 0;
};

std::unique_ptr<EmbeddingLoss> make_ranking_loss(const RankingOptions& options);

}  // namespace tandem::tasks::embedding
