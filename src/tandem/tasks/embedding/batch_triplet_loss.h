// Triplet losses that choose anchor, positive and negative from the rows of a group by their class
// (Hermans, Beyer and Leibe 2017; Schroff et al. 2015 for semi-hard negatives).
#pragma once

#include <cstdint>
#include <memory>

#include "tandem/tasks/embedding/loss.h"
#include "tandem/tasks/ranking/pair_functions.h"

namespace tandem::tasks::embedding {

// Which triplets count. A positive is another row of the anchor's class, a negative a row of
// another class.
enum class TripletChoice : std::uint8_t {
  kAll,       // every triplet whose loss is positive; their mean
  kHardest,   // per anchor its farthest positive and nearest negative; the mean over anchors
  kSemiHard,  // per anchor and positive the nearest negative that is farther than the positive,
              // else the farthest one; the mean over these pairs
  kHardestSoftMargin,  // kHardest with log(1 + exp(d_positive - d_negative)) and no margin
};

// The loss of groups with one text column; label[row] is the class. Anchors without a positive or a
// negative count as in sentence-transformers. Every rank computes the distances of all pairs, a
// block of anchors at a time.
std::unique_ptr<EmbeddingLoss> make_batch_triplet_loss(const ranking::PairFunction& distance,
                                                       TripletChoice choice, double margin);

}  // namespace tandem::tasks::embedding
