// The input of a model: the token rows of all sequences, one sequence after another.
//
// Without padding a sequence owns exactly its real tokens. In padded mode it owns more rows than it
// has keys: the pad rows are computed like any other query, but no query attends to them. So both
// modes are one code path, without masks in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tandem/kernels/sequences.h"

namespace tandem::nn {

struct PackedBatch {
  // Per row.
  std::vector<std::int32_t> input_ids;
  std::vector<std::int32_t> token_type_ids;  // ignored by models without token types
  // Per sequence i: its rows are [row_begin[i], row_begin[i + 1]), the first key_count[i] of them
  // real tokens; sample[i] is its index in the global batch, the key of its dropout masks.
  std::vector<std::uint32_t> row_begin{0};
  std::vector<std::uint32_t> key_count;
  std::vector<std::uint64_t> sample;
  // The first tokens of each sequence that a pooling leaves out, those of a prompt; empty: none.
  std::vector<std::uint32_t> unpooled;

  std::size_t rows() const { return input_ids.size(); }
  std::size_t num_sequences() const { return key_count.size(); }
  // A view for the kernels, valid until the batch changes.
  kernels::Sequences sequences() const { return {row_begin, key_count, sample}; }

  // Empties the batch; memory is kept for the next one.
  void clear();
  // Makes room, so that append() of up to this much does not allocate.
  void reserve(std::size_t rows, std::size_t num_sequences);
  // Appends a sequence of `ids` (token types from `types`, or all 0 when that is empty), padded to
  // `padded_rows` rows with `pad_id` and type 0; padded_rows = 0: no padding. Throws
  // InvalidArgument if ids is empty or longer than padded_rows, or types has another length.
  void append(std::span<const std::int32_t> ids, std::span<const std::int32_t> types,
              std::uint64_t global_sample, std::size_t padded_rows = 0, std::int32_t pad_id = 0);
};

}  // namespace tandem::nn
