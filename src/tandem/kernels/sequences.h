// How the rows of a batch are grouped into sequences.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tandem::kernels {

// Sequences packed one after another: rows of sequence i are [row_begin[i], row_begin[i+1]);
// row_begin has count() + 1 entries and starts with 0. The first key_count[i] of its rows are real
// tokens; the rest (padded mode only) are pad rows, which are computed like any other row but never
// attended to. sample[i] is the sequence's index in the global batch, the part of the dropout key
// that makes a mask independent of how a batch is split over ranks; it may be empty when no
// operation drops.
struct Sequences {
  std::span<const std::uint32_t> row_begin;
  std::span<const std::uint32_t> key_count;
  std::span<const std::uint64_t> sample;

  std::size_t count() const { return key_count.size(); }
  std::size_t rows() const { return row_begin.empty() ? 0 : row_begin.back(); }
  std::size_t rows_of(std::size_t i) const { return row_begin[i + 1] - row_begin[i]; }
};

// The sequence that holds `row` (binary search).
std::size_t sequence_of_row(const Sequences& sequences, std::size_t row);

// Throws InvalidArgument when the spans disagree: sizes, row_begin not increasing from 0, key_count
// outside [1, rows_of(i)].
void check_sequences(const Sequences& sequences);

// The sequences from the most work of attention (rows x keys) to the least, equal ones in their
// order:
// handed out so, the last ones to finish are short, and the threads end together. Writes count()
// indices; allocates nothing.
void order_longest_first(const Sequences& sequences, std::span<std::uint32_t> order);

}  // namespace tandem::kernels
