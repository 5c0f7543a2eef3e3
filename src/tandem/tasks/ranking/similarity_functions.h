// The similarity functions of sentence-transformers by name.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "tandem/tasks/ranking/pair_functions.h"

namespace tandem::tasks::ranking {

enum class Similarity { kCosine, kDot, kEuclidean, kManhattan };

struct SimilarityFunction {
  Similarity similarity;
  std::string_view name;  // "cosine", in keys of metrics
  const PairFunction* pair;
  bool is_distance = false;  // less is more similar
};

// In the order of sentence-transformers: cosine, dot, euclidean, manhattan.
std::span<const SimilarityFunction> similarity_functions();

const SimilarityFunction& similarity_function(Similarity similarity);

// Throws ConfigError, which lists the names, for another one.
const SimilarityFunction& similarity_function(std::string_view name);

// Embeddings [texts, width]. A view.
struct Embeddings {
  std::span<const float> values;
  std::size_t width = 0;
  std::size_t texts() const { return width == 0 ? 0 : values.size() / width; }
  std::span<const float> of(std::size_t text) const { return values.subspan(text * width, width); }
};

// The similarity of a[i] and b[i], rounded to f32; a distance is negated, so that more is better.
std::vector<float> pair_scores(const SimilarityFunction& function, const Embeddings& a,
                               const Embeddings& b);

}  // namespace tandem::tasks::ranking
