// The batches of an epoch over several data sets, in the order of sentence-transformers. The rows
// of a batch come from one data set.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "tandem/tasks/sampler.h"

namespace tandem::tasks {

enum class SetOrder {
  kProportional,  // all batches of all data sets, in random order
  kRoundRobin,    // a batch of each data set in turn, until the shortest data set ends
};

// Throws ConfigError for a name that is neither "proportional" nor "round_robin".
SetOrder set_order_named(std::string_view name);

struct SampledSet {
  std::size_t rows = 0;
  Sampler sampler = {};  // none: the rows in random order
};

// Row i of a data set has the number i + the rows of the data sets before it. One generator is
// seeded with seed + epoch. It draws the order of the data sets, then a permutation of the rows of
// each data set at its first batch, and another one, which is not used, at a short last batch.
// A data set's own sampler gets epoch 0, because the trainer of sentence-transformers sets the
// epoch of the outer sampler only.
// over_shards: the batches of all shards together are the parts of one batch. A data set's last
// batch of fewer rows than shards is left out.
Sampler several_sets(std::vector<SampledSet> sets, SetOrder order, bool over_shards);

}  // namespace tandem::tasks
