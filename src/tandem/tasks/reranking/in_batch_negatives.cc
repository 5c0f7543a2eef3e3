#include "tandem/tasks/reranking/in_batch_negatives.h"

#include <algorithm>

#include "tandem/tasks/ranking/sample_indices.h"

namespace tandem::tasks::reranking {

std::vector<std::size_t> in_batch_negatives(const InBatchOptions& options,
                                            std::span<const std::size_t> begins, std::size_t row,
                                            std::uint64_t key) {
  const std::size_t own = begins[row + 1] - begins[row];
  const std::size_t others = begins.back() - own;
  constexpr std::uint64_t kSpread = 0x9E3779B97F4A7C15u;
  std::vector<std::size_t> negatives = ranking::sample_indices(
      others, options.num_negatives.value_or(others), (options.seed * kSpread + key) * kSpread);
  for (std::size_t& index : negatives)
    if (index >= begins[row]) index += own;
  return negatives;
}

std::size_t most_in_batch_negatives(const InBatchOptions& options, std::size_t rows,
                                    std::size_t passages) {
  const std::size_t others = rows == 0 ? 0 : (rows - 1) * passages;
  return std::min(others, options.num_negatives.value_or(others));
}

void ComposedPairs::set_texts(const text_classification::TextFeatures& texts,
                              const text::SequenceTemplate& frame, std::size_t max_tokens) {
  texts_ = &texts;
  frame_ = frame;
  max_tokens_ = max_tokens;
  pairs_.clear();
}

void ComposedPairs::add(std::size_t first, std::size_t second) {
  const auto [first_tokens, second_tokens] =
      text::truncate_longest_first(texts_->text(first).size(), texts_->text(second).size(),
                                   max_tokens_ - frame_.special_tokens_of_pair());
  pairs_.push_back({first, second, first_tokens, second_tokens});
}

std::size_t ComposedPairs::longest(std::size_t begin_second) const {
  std::size_t of_first = 0, of_second = 0;
  for (std::size_t i = 0; i < texts_->size(); ++i) {
    std::size_t& most = i < begin_second ? of_first : of_second;
    most = std::max(most, texts_->text(i).size());
  }
  return std::min(max_tokens_, of_first + of_second + frame_.special_tokens_of_pair());
}

void ComposedPairs::append_tokens(std::size_t i, std::vector<std::int32_t>& ids,
                                  std::vector<std::int32_t>& types) const {
  const Pair& pair = pairs_[i];
  text::append_sequence(frame_, texts_->text(pair.first).first(pair.first_tokens),
                        texts_->text(pair.second).first(pair.second_tokens), ids, types);
}

}  // namespace tandem::tasks::reranking
