#include "tandem/tasks/reranking/in_batch_pass.h"

#include <algorithm>
#include <numeric>

namespace tandem::tasks::reranking {

std::size_t InBatchPass::plan(const RowTexts& rows, std::size_t max_tokens,
                              const InBatchCapacity& capacity) {
  pairs_.set_texts(rows.texts, rows.frame, max_tokens);
  std::size_t passages = 0;
  for (std::size_t i = 0; i < rows.rows(); ++i)
    passages = std::max<std::size_t>(passages, rows.begins[i + 1] - rows.begins[i]);
  const std::size_t of_row =
      passages + most_in_batch_negatives(options_, capacity.batch_size, passages);
  const std::size_t most = capacity.batch_size * of_row;
  const std::size_t longest = pairs_.longest(rows.rows());
  indices_.reserve(most);
  samples_.reserve(most);
  logits_.reserve(most * outputs_);
  const bool keep = models::is_training(capacity.kind) &&
                    (capacity.mini_batch_size == 0 || most <= capacity.mini_batch_size);
  const std::size_t of_pieces = pieces_.plan({.kind = capacity.kind,
                                              .precision = capacity.precision,
                                              .tokens = most * longest,
                                              .texts = most,
                                              .longest = longest,
                                              .keep = keep});
  return of_pieces + most * outputs_ * sizeof(float);
}

BatchSize InBatchPass::load(const RowTexts& rows, std::span<const std::uint32_t> indices,
                            bool draws, std::uint64_t first_sample) {
  std::vector<std::size_t> own{0};    // the first passage of each row in `passages`
  std::vector<std::size_t> passages;  // passages of all rows
  for (const std::uint32_t row : indices) {
    for (std::uint32_t i = rows.begins[row]; i < rows.begins[row + 1]; ++i)
      passages.push_back(rows.rows() + i);
    own.push_back(passages.size());
  }
  pieces_.forget();  // the same numbers may mean other pairs
  pairs_.clear();
  begins_.assign(1, 0);
  samples_.clear();
  for (std::size_t k = 0; k < indices.size(); ++k) {
    const auto add = [&](std::size_t passage) {
      samples_.push_back(dropout_key(first_sample + k, pairs_.size() - begins_.back()));
      pairs_.add(indices[k], passages[passage]);
    };
    for (std::size_t i = own[k]; i < own[k + 1]; ++i) add(i);
    if (draws) {
      const std::uint64_t key = epoch_ * rows.rows() + indices[k];
      for (const std::size_t i : in_batch_negatives(options_, own, k, key)) add(i);
    }
    begins_.push_back(pairs_.size());
  }
  indices_.resize(pairs_.size());
  std::iota(indices_.begin(), indices_.end(), 0);
  logits_.resize(pairs_.size() * outputs_);
  return pieces_.load(pairs_, indices_, samples_);
}

std::span<const float> InBatchPass::forward(const kernels::Context& context,
                                            const nn::Weights& weights,
                                            const nn::DropoutStream& dropout) {
  pieces_.embed(context, weights, dropout, logits_);
  return logits_;
}

}  // namespace tandem::tasks::reranking
