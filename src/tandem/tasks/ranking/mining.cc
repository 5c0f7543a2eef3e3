#include "tandem/tasks/ranking/mining.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tandem/core/error.h"
#include "tandem/tasks/ranking/sample_indices.h"

namespace tandem::tasks::ranking {
namespace {

bool is_positive(const Hit& hit, const MinedQuery& mined) {
  return std::find(mined.positives.begin(), mined.positives.end(), hit.document) !=
         mined.positives.end();
}

// Whether a filter leaves the candidate out; the first one that does counts it.
bool is_left_out(float score, float positive, const MiningOptions& options, MiningCounts& counts) {
  const auto f32 = [](double value) { return static_cast<float>(value); };
  const auto count = [](bool left_out, std::size_t& number) {
    number += left_out ? 1 : 0;
    return left_out;
  };
  if (options.absolute_margin &&
      count(score + f32(*options.absolute_margin) > positive, counts.absolute_margin))
    return true;
  if (options.relative_margin &&
      count(score > positive - std::abs(positive) * f32(*options.relative_margin),
            counts.relative_margin))
    return true;
  if (options.max_score && count(score > f32(*options.max_score), counts.max_score)) return true;
  return options.min_score && count(score < f32(*options.min_score), counts.min_score);
}

// `count` of the candidates, drawn without replacement, in their order.
std::vector<Hit> sampled(std::span<const Hit> candidates, std::size_t count,
                         std::uint64_t generator_seed) {
  std::vector<Hit> hits;
  for (const std::size_t i : sample_indices(candidates.size(), count, generator_seed))
    hits.push_back(candidates[i]);
  return hits;
}

}  // namespace

void check(const MiningOptions& options) {
  if (options.num_negatives < 1)
    throw ConfigError("--num_negatives: found 0, expected at least 1", /*usage=*/true);
  if (!options.range_max || *options.range_max >= options.range_min + options.num_negatives) return;
  throw ConfigError(
      fmt::format("--range_max: found {}, expected at least {} with --range_min {} and "
                  "--num_negatives {}",
                  *options.range_max, options.range_min + options.num_negatives, options.range_min,
                  options.num_negatives),
      /*usage=*/true);
}

std::size_t range_max_of(const MiningOptions& options, std::size_t max_positives) {
  if (options.range_max) return *options.range_max;
  const bool filters = options.absolute_margin || options.relative_margin || options.max_score;
  return options.range_min + options.num_negatives * (filters ? 10 : 1) + max_positives;
}

std::size_t candidates_of_query(const MiningOptions& options, std::size_t max_positives) {
  return range_max_of(options, max_positives) + max_positives;
}

std::vector<Hit> choose_negatives(std::span<const Hit> hits, const MinedQuery& mined,
                                  std::uint64_t query, std::size_t range_max,
                                  const MiningOptions& options, MiningCounts& counts) {
  const float positive =
      *std::min_element(mined.positive_scores.begin(), mined.positive_scores.end());
  std::vector<Hit> left;
  for (const Hit& hit : hits) {
    if (is_positive(hit, mined) && !options.include_positives) continue;
    if (!is_left_out(hit.score, positive, options, counts)) left.push_back(hit);
  }
  left.resize(std::min(left.size(), range_max));
  const std::size_t skipped = std::min(left.size(), options.range_min);
  left.erase(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(skipped));
  if (options.sampling == NegativeSampling::kRandom)
    return sampled(left, options.num_negatives, options.seed * 0x9E3779B97F4A7C15u + query);
  left.resize(std::min(left.size(), options.num_negatives));
  return left;
}

}  // namespace tandem::tasks::ranking
