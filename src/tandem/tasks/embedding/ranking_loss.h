// MultipleNegativesRankingLoss (InfoNCE) and its symmetric form: the other rows of the group are
// negatives (van den Oord et al. 2018, Li et al. 2023), of which a guide may exclude some
// (Solatorio 2024). Similarities are computed in tiles; memory is that of a few tiles for any
// number of rows.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "tandem/tasks/embedding/loss.h"

namespace tandem::tasks::embedding {

// Which negatives' logits grow by strength · similarity, a term without a gradient.
enum class Hardness { kNone, kInBatchNegatives, kHardNegatives, kAllNegatives };

// A guide excludes negatives whose cosine by its embeddings is above that of the row's positive
// pair, less a margin. Labels of a row: the guide's embeddings of its columns, one behind the
// other.
struct GuideOptions {
  double margin = 0;
  bool relative = false;  // the margin is a part of the positive pair's cosine
};

struct RankingOptions {
  double scale = 20;
  bool cosine = true;  // else the dot product
  bool query_to_query = false;
  bool doc_to_query = false;
  bool doc_to_doc = false;
  bool joint = true;  // one softmax over all directions; else the mean of one softmax for each
  Hardness hardness = Hardness::kNone;
  double hardness_strength = 0;
  // query_to_query and doc_to_doc then compare the anchors, and the positives, with each other.
  std::optional<GuideOptions> guide = {};
};

std::unique_ptr<EmbeddingLoss> make_ranking_loss(const RankingOptions& options);

}  // namespace tandem::tasks::embedding
