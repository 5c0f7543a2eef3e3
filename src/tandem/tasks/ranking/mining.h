// Hard negatives: documents that a bi-encoder finds near a query and that are not its answers, as
// sentence-transformers' mine_hard_negatives chooses them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tandem/tasks/ranking/search.h"

namespace tandem::tasks::ranking {

enum class NegativeSampling { kTop, kRandom };

struct MiningOptions {
  std::size_t range_min = 0;                  // the nearest candidates to skip
  std::optional<std::size_t> range_max = {};  // the last candidate to look at
  std::optional<double> max_score = {};
  std::optional<double> min_score = {};
  // A negative is at least this much less similar than the query's least similar positive.
  std::optional<double> absolute_margin = {};
  std::optional<double> relative_margin = {};  // a fraction of that similarity
  std::size_t num_negatives = 3;
  bool include_positives = false;  // among the candidates: for the evaluation of rerankers
  NegativeSampling sampling = NegativeSampling::kTop;
  std::uint64_t seed = 42;  // seed of kRandom
};

// A query with the documents that answer it.
struct MinedQuery {
  std::vector<std::size_t> positives;  // documents; at least one
  std::vector<float> positive_scores;
};

// Throws ConfigError if range_min, range_max and num_negatives contradict each other.
void check(const MiningOptions& options);

// The nearest documents of a query that are looked at, when a query has at most `max_positives`.
std::size_t candidates_of_query(const MiningOptions& options, std::size_t max_positives);

// Numbers of candidates that each filter left out.
struct MiningCounts {
  std::size_t absolute_margin = 0, relative_margin = 0, max_score = 0, min_score = 0;
};

// The negatives of a query, the most similar first: at most num_negatives. `hits`: what a search
// found, the most similar first. `query` is its number, the key of random sampling. Scores are
// compared in f32, as there.
std::vector<Hit> choose_negatives(std::span<const Hit> hits, const MinedQuery& mined,
                                  std::uint64_t query, std::size_t range_max,
                                  const MiningOptions& options, MiningCounts& counts);

// options.range_max, or its default: enough candidates for num_negatives behind `max_positives`.
std::size_t range_max_of(const MiningOptions& options, std::size_t max_positives);

}  // namespace tandem::tasks::ranking
