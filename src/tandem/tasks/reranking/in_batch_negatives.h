// In-batch negatives of cross-encoders: pairs of a query with passages of the other rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tandem/tasks/text_classification/text_features.h"
#include "tandem/tasks/token_sequences.h"

namespace tandem::tasks::reranking {

struct InBatchOptions {
  std::optional<std::size_t> num_negatives = 4;  // drawn for each query; none: all passages
  std::uint64_t seed = 42;
};

// Negatives of `row` among the passages of a batch, whose row i has the passages [begins[i],
// begins[i + 1]): passages of other rows, drawn without replacement, or all if they are no more
// than the options ask for. Ascending. `key` and the seed decide what is drawn.
std::vector<std::size_t> in_batch_negatives(const InBatchOptions& options,
                                            std::span<const std::size_t> begins, std::size_t row,
                                            std::uint64_t key);

// The most negatives that a row gets in a batch of `rows` rows of up to `passages` passages.
std::size_t most_in_batch_negatives(const InBatchOptions& options, std::size_t rows,
                                    std::size_t passages);

// Pairs of texts that have been tokenized one by one, framed and cut as build_text_features() does.
class ComposedPairs final : public TokenSequences {
 public:
  // `texts` are features of single texts that were not cut. They must outlive the pairs. `frame` is
  // that of a pair.
  void set_texts(const text_classification::TextFeatures& texts,
                 const text::SequenceTemplate& frame, std::size_t max_tokens);
  void clear() { pairs_.clear(); }
  // Appends the pair of two texts.
  void add(std::size_t first, std::size_t second);
  // Tokens of the longest pair of one of the texts before `begin_second` and one from there on.
  std::size_t longest(std::size_t begin_second) const;

  std::size_t size() const override { return pairs_.size(); }
  std::size_t num_real_tokens(std::size_t i) const override {
    return frame_.tokens_of_pair(pairs_[i].first_tokens + pairs_[i].second_tokens);
  }
  std::size_t max_seq_length() const override { return max_tokens_; }
  std::int32_t pad_token_id() const override { return texts_->pad_token_id(); }
  void append_tokens(std::size_t i, std::vector<std::int32_t>& ids,
                     std::vector<std::int32_t>& types) const override;

 private:
  struct Pair {
    std::size_t first = 0, second = 0;                // texts
    std::size_t first_tokens = 0, second_tokens = 0;  // tokens kept of each
  };
  const text_classification::TextFeatures* texts_ = nullptr;
  text::SequenceTemplate frame_;
  std::size_t max_tokens_ = 0;
  std::vector<Pair> pairs_;
};

}  // namespace tandem::tasks::reranking
