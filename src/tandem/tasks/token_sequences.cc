#include "tandem/tasks/token_sequences.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include "tandem/core/error.h"

namespace tandem::tasks {
namespace {

std::vector<std::uint32_t> sequential(std::size_t size) {
  std::vector<std::uint32_t> order(size);
  std::iota(order.begin(), order.end(), 0u);
  return order;
}

}  // namespace

Padding padding_of(std::optional<bool> pad_to_max_length) {
  if (!pad_to_max_length) return Padding::kNone;
  return *pad_to_max_length ? Padding::kMaxSeqLength : Padding::kLongestOfBatch;
}

std::size_t padded_sequence_rows(const TokenSequences& sequences,
                                 std::span<const std::uint32_t> indices, Padding padding) {
  if (padding == Padding::kNone) return 0;
  if (padding == Padding::kMaxSeqLength) return sequences.max_seq_length();
  std::size_t longest = 0;
  for (const std::uint32_t i : indices) longest = std::max(longest, sequences.num_real_tokens(i));
  return longest;
}

std::size_t batch_rows(const TokenSequences& sequences, std::span<const std::uint32_t> indices,
                       Padding padding) {
  if (padding != Padding::kNone) {
    return indices.size() * padded_sequence_rows(sequences, indices, padding);
  }
  std::size_t rows = 0;
  for (const std::uint32_t i : indices) rows += sequences.num_real_tokens(i);
  return rows;
}

std::size_t max_batch_rows(const TokenSequences& sequences, Padding padding,
                           std::size_t batch_size) {
  const std::size_t count = std::min(batch_size, sequences.size());
  if (padding == Padding::kMaxSeqLength) return count * sequences.max_seq_length();
  std::vector<std::size_t> lengths(sequences.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = sequences.num_real_tokens(i);
  const auto end = lengths.begin() + static_cast<std::ptrdiff_t>(count);
  std::partial_sort(lengths.begin(), end, lengths.end(), std::greater<>());
  if (count == 0) return 0;
  if (padding == Padding::kLongestOfBatch) return count * lengths.front();
  return std::accumulate(lengths.begin(), end, std::size_t{0});
}

void append_sequence(const TokenSequences& sequences, std::size_t i, std::size_t rows,
                     nn::PackedBatch& batch) {
  const std::size_t begin = batch.input_ids.size();
  sequences.append_tokens(i, batch.input_ids, batch.token_type_ids);
  const std::size_t real = batch.input_ids.size() - begin;
  rows = std::max(rows, real);
  batch.input_ids.resize(begin + rows, sequences.pad_token_id());
  batch.token_type_ids.resize(begin + rows, 0);
  batch.row_begin.push_back(static_cast<std::uint32_t>(batch.input_ids.size()));
  batch.key_count.push_back(static_cast<std::uint32_t>(real));
  const std::size_t unpooled = sequences.num_unpooled_tokens(i);
  if (unpooled == 0 && batch.unpooled.empty()) return;
  batch.unpooled.resize(batch.num_sequences(), 0);
  batch.unpooled.back() = static_cast<std::uint32_t>(unpooled);
}

void fill_batch(const TokenSequences& sequences, std::span<const std::uint32_t> indices,
                Padding padding, std::uint64_t first_sample, nn::PackedBatch& batch) {
  batch.clear();
  const std::size_t rows = padded_sequence_rows(sequences, indices, padding);
  for (const std::uint32_t i : indices) {
    TANDEM_CHECK(i < sequences.size(), "feature {} of {}", i, sequences.size());
    append_sequence(sequences, i, rows, batch);
  }
  batch.sample.resize(indices.size());
  std::iota(batch.sample.begin(), batch.sample.end(), first_sample);
}

std::vector<std::uint32_t> by_length(const TokenSequences& sequences) {
  std::vector<std::uint32_t> order = sequential(sequences.size());
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return sequences.num_real_tokens(a) > sequences.num_real_tokens(b);
  });
  return order;
}

std::vector<std::uint32_t> evaluation_order(const TokenSequences& sequences, Padding padding) {
  return padding == Padding::kNone ? by_length(sequences) : sequential(sequences.size());
}

Fingerprint::Fingerprint(const TokenSequences& sequences, Padding padding) {
  const std::array<std::uint64_t, 2> settings{static_cast<std::uint64_t>(padding),
                                              sequences.max_seq_length()};
  add(settings);
  constexpr std::size_t kReleased = 4096;  // sequences, some megabytes
  std::vector<std::int32_t> ids, types;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    ids.clear();
    types.clear();
    sequences.append_tokens(i, ids, types);
    add(std::array{ids.size()});
    add(ids);
    add(types);
    if (const std::size_t unpooled = sequences.num_unpooled_tokens(i); unpooled > 0)
      add(std::array{unpooled});
    if (i % kReleased == 0) sequences.release();
  }
}

std::string Fingerprint::text() const { return fmt::format("{:016x}", hash_); }

}  // namespace tandem::tasks
