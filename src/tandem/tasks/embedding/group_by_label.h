// Batches in which every label has at least two rows, in the order of sentence-transformers.
#pragma once

#include <cstddef>
#include <span>

#include "tandem/tasks/sampler.h"

namespace tandem::tasks::embedding {

// labels[row]. The rows of each label are shuffled by torch's permutation for the seed 0 + epoch:
// the seed of the run changes nothing, as in sentence-transformers. The labels, in an order that is
// drawn anew for each round, then give two rows each until fewer than two labels have rows left. A
// last batch of two rows is left out, and so are a label's last row of an odd number and a label
// with one row. over_shards: the batches of all shards together are the parts of one batch.
// Throws DataError if fewer than two labels have two rows.
Sampler group_by_label(std::span<const float> labels, bool over_shards);

// Throws ConfigError for a batch of fewer than 4 rows or an odd number of them.
void check_batch_of_labels(std::size_t batch_size);

}  // namespace tandem::tasks::embedding
