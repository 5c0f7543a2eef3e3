#include <algorithm>

#include "tandem/core/error.h"
#include "tandem/tasks/question_answering/features.h"

namespace tandem::question_answering {
namespace {

void append_sequence(const FeatureSet& features, std::size_t i, std::size_t rows,
                     BatchRows& batch) {
  const std::size_t begin = batch.input_ids.size();
  std::vector<std::int32_t>& ids = batch.input_ids;
  text::append_sequence(features.frame(), features.question_tokens(i), features.window_tokens(i),
                        ids, batch.token_type_ids);
  const std::size_t real = ids.size() - begin;
  rows = std::max(rows, real);
  ids.resize(begin + rows, features.frame().pad_id);
  batch.token_type_ids.resize(begin + rows, 0);
  batch.row_begin.push_back(static_cast<std::uint32_t>(ids.size()));
  batch.key_count.push_back(static_cast<std::uint32_t>(real));
  batch.start_positions.push_back(features[i].start_position);
  batch.end_positions.push_back(features[i].end_position);
}

}  // namespace

std::size_t padded_sequence_rows(const FeatureSet& features, std::span<const std::uint32_t> indices,
                                 Padding padding) {
  if (padding == Padding::kNone) return 0;
  if (padding == Padding::kMaxSeqLength) return features.max_seq_length();
  std::size_t longest = 0;
  for (const std::uint32_t i : indices) longest = std::max(longest, features.num_real_tokens(i));
  return longest;
}

std::size_t batch_rows(const FeatureSet& features, std::span<const std::uint32_t> indices,
                       Padding padding) {
  if (padding != Padding::kNone) {
    return indices.size() * padded_sequence_rows(features, indices, padding);
  }
  std::size_t rows = 0;
  for (const std::uint32_t i : indices) rows += features.num_real_tokens(i);
  return rows;
}

void reserve(BatchRows& batch, std::size_t rows, std::size_t sequences) {
  batch.input_ids.reserve(rows);
  batch.token_type_ids.reserve(rows);
  batch.row_begin.reserve(sequences + 1);
  batch.key_count.reserve(sequences);
  batch.start_positions.reserve(sequences);
  batch.end_positions.reserve(sequences);
}

void fill_batch(const FeatureSet& features, std::span<const std::uint32_t> indices, Padding padding,
                BatchRows& batch) {
  batch.input_ids.clear();
  batch.token_type_ids.clear();
  batch.row_begin.assign(1, 0);
  batch.key_count.clear();
  batch.start_positions.clear();
  batch.end_positions.clear();
  const std::size_t rows = padded_sequence_rows(features, indices, padding);
  for (const std::uint32_t i : indices) {
    TANDEM_CHECK(i < features.size(), "feature {} of {}", i, features.size());
    append_sequence(features, i, rows, batch);
  }
}

}  // namespace tandem::question_answering
