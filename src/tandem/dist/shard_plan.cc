#include "tandem/dist/shard_plan.h"

#include <algorithm>

namespace tandem::dist {
namespace {

// Plans tree(begin, end), whose sum is to end up in `arena`; arenas above it are free. Returns the
// highest arena used.
int plan_subtree(int begin, int end, int arena, int run_begin, std::vector<ShardStep>& steps) {
  if (end - begin == 1) {
    steps[static_cast<std::size_t>(begin - run_begin)].arena = arena;
    return arena;
  }
  const int middle = begin + comm::left_leaves(end - begin);
  const int left = plan_subtree(begin, middle, arena, run_begin, steps);
  const int right = plan_subtree(middle, end, arena + 1, run_begin, steps);
  // The inner additions are in the list already: deepest first.
  steps[static_cast<std::size_t>(end - 1 - run_begin)].additions.emplace_back(arena, arena + 1);
  return std::max(left, right);
}

}  // namespace

Range shards_of(int rank, int world_size, int logical_shards) {
  const int each = logical_shards / world_size;
  const int more = logical_shards % world_size;
  const int begin = rank * each + std::min(rank, more);
  return {static_cast<std::size_t>(begin),
          static_cast<std::size_t>(begin + each + (rank < more ? 1 : 0))};
}

int rank_of_shard(int shard, int world_size, int logical_shards) {
  const int each = logical_shards / world_size;
  const int more = logical_shards % world_size;
  const int in_long_runs = more * (each + 1);
  return shard < in_long_runs ? shard / (each + 1) : more + (shard - in_long_runs) / each;
}

Range slice_of(const Range& range, int part, int parts, std::size_t chunk) {
  const std::size_t chunks = num_chunks(range.size(), chunk);
  const auto cut = [&](int i) {
    const std::size_t at = chunks * static_cast<std::size_t>(i) / static_cast<std::size_t>(parts);
    return std::min(range.end, range.begin + at * chunk);
  };
  return {cut(part), cut(part + 1)};
}

Range slice_of_bucket(const Range& range, std::size_t bucket, int rank, int world_size,
                      std::size_t chunk) {
  const auto ranks = static_cast<std::size_t>(world_size);
  const std::size_t turn = ranks > num_chunks(range.size(), chunk) ? bucket % ranks : 0;
  const std::size_t part = (static_cast<std::size_t>(rank) + ranks - turn) % ranks;
  return slice_of(range, static_cast<int>(part), world_size, chunk);
}

ShardPlan plan_shards(const Range& run, int logical_shards) {
  const auto is_own = [&](int shard) {
    const auto s = static_cast<std::size_t>(shard);
    return run.begin <= s && s < run.end ? 1 : 0;
  };
  ShardPlan plan;
  for (const comm::Subtree& subtree : comm::owned_subtrees(logical_shards, is_own)) {
    if (subtree.owner == 1) plan.partials.push_back(subtree);
  }
  plan.steps.resize(run.size());
  for (std::size_t j = 0; j < plan.partials.size(); ++j) {
    const comm::Subtree& partial = plan.partials[j];
    const int highest = plan_subtree(partial.begin, partial.end, static_cast<int>(j),
                                     static_cast<int>(run.begin), plan.steps);
    plan.steps[static_cast<std::size_t>(partial.end) - 1 - run.begin].completes =
        static_cast<int>(j);
    plan.num_arenas = std::max(plan.num_arenas, highest + 1);
  }
  return plan;
}

double sum_along_tree(std::span<const double> of_shards) {
  if (of_shards.size() == 1) return of_shards[0];
  const auto left = static_cast<std::size_t>(comm::left_leaves(static_cast<int>(of_shards.size())));
  return sum_along_tree(of_shards.first(left)) + sum_along_tree(of_shards.subspan(left));
}

}  // namespace tandem::dist
