// Division of the sums among ranks: pure functions from (ranks, nodes, shards, elements) to plans.
// Nothing here communicates.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "tandem/comm/algorithms/summation_tree.h"
#include "tandem/core/thread_pool.h"

namespace tandem::dist {

struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t size() const { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

// The contiguous run of `rank` when L logical shards are dealt to `world_size` ranks: L / W each,
// the first L % W ranks one more.
Range shards_of(int rank, int world_size, int logical_shards);
int rank_of_shard(int shard, int world_size, int logical_shards);

// Part `part` of `parts` of `range`, cut at multiples of `chunk` (range.begin is one).
Range slice_of(const Range& range, int part, int parts, std::size_t chunk);

// The range of bucket number `bucket`, which is `range`, that `rank` sums: slice `rank`. With more
// ranks than chunks, when most slices are empty, it is slice `rank` − `bucket` (modulo
// `world_size`), so that over the buckets all ranks get about the same.
Range slice_of_bucket(const Range& range, std::size_t bucket, int rank, int world_size,
                      std::size_t chunk);

// How one rank sums its run of shards with few arenas. The shards come one after another, in order;
// the tree's additions inside the run are made as soon as both sides are there, like carries of a
// binary counter.
struct ShardStep {
  int arena = 0;  // where the shard's gradient is written
  std::vector<std::pair<int, int>>
      additions;       // (to, from): arena to += arena from, in this order, after the shard
  int completes = -1;  // index of the partial that is complete with it, or −1
};
struct ShardPlan {
  std::vector<ShardStep> steps;         // by shard of the run
  std::vector<comm::Subtree> partials;  // partial j ends up in arena j
  int num_arenas = 0;
};
ShardPlan plan_shards(const Range& run, int logical_shards);

// One value of each shard, added along the tree.
double sum_along_tree(std::span<const double> of_shards);

}  // namespace tandem::dist
