#include "tandem/tasks/ranking/similarity_functions.h"

#include <fmt/format.h>

#include <array>

#include "tandem/core/error.h"

namespace tandem::tasks::ranking {
namespace {

const std::array<SimilarityFunction, 4> kFunctions = {{
    {Similarity::kCosine, "cosine", &kCosinePair},
    {Similarity::kDot, "dot", &kDotPair},
    {Similarity::kEuclidean, "euclidean", &kEuclideanPair, /*is_distance=*/true},
    {Similarity::kManhattan, "manhattan", &kManhattanPair, /*is_distance=*/true},
}};

}  // namespace

std::span<const SimilarityFunction> similarity_functions() { return kFunctions; }

const SimilarityFunction& similarity_function(Similarity similarity) {
  return kFunctions[static_cast<std::size_t>(similarity)];
}

const SimilarityFunction& similarity_function(std::string_view name) {
  for (const SimilarityFunction& function : kFunctions)
    if (function.name == name) return function;
  throw ConfigError(
      fmt::format("unknown similarity function: found '{}', expected one of cosine, dot, "
                  "euclidean, manhattan",
                  name));
}

std::vector<float> pair_scores(const SimilarityFunction& function, const Embeddings& a,
                               const Embeddings& b) {
  TANDEM_CHECK(a.width == b.width && a.texts() == b.texts());
  std::vector<float> scores(a.texts());
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const auto value = static_cast<float>(function.pair->value(a.of(i), b.of(i)));
    scores[i] = function.is_distance ? -value : value;
  }
  return scores;
}

}  // namespace tandem::tasks::ranking
