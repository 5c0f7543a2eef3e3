// Internal: loops over the rows of packed sequences, in chunks of a fixed number of rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tandem/kernels/context.h"
#include "tandem/kernels/dropout.h"
#include "tandem/kernels/sequences.h"

namespace tandem::kernels {

struct BatchRow {
  std::size_t index;          // in the batch
  std::uint32_t in_sequence;  // in its sequence: the row of the dropout counter
  DropoutMask mask;           // mask of its sequence
};

// Rows per chunk: enough to hide the cost of handing out a chunk, few enough for many cores.
inline constexpr std::size_t kRowChunk = 32;

// Throws InvalidArgument when the rows, columns or sample numbers do not fit the generator's
// counter.
void check_dropout(const Sequences& sequences, std::size_t columns, const Dropout& dropout);

// The mask of sequence i.
inline DropoutMask mask_of_sequence(const Sequences& sequences, const Dropout& dropout,
                                    std::size_t i) {
  return dropout.p == 0.0f ? DropoutMask{} : dropout_mask(dropout, sequences.sample[i]);
}

// Calls visit(BatchRow) for the rows of one chunk, in order.
template <class Visit>
void visit_chunk_rows(const Sequences& sequences, const Dropout& dropout, std::size_t chunk,
                      Visit visit) {
  const std::size_t end = std::min(sequences.rows(), (chunk + 1) * kRowChunk);
  std::size_t row = chunk * kRowChunk;
  for (std::size_t i = sequence_of_row(sequences, row); row < end; ++i) {
    const DropoutMask mask = mask_of_sequence(sequences, dropout, i);
    const std::size_t sequence_end = std::min<std::size_t>(end, sequences.row_begin[i + 1]);
    for (; row < sequence_end; ++row) {
      visit(BatchRow{row, static_cast<std::uint32_t>(row - sequences.row_begin[i]), mask});
    }
  }
}

// Calls visit(BatchRow, thread) for every row, chunks in parallel.
template <class Visit>
void for_each_row(const Context& ctx, const Sequences& sequences, std::size_t columns,
                  const Dropout& dropout, Visit visit) {
  check_sequences(sequences);
  check_dropout(sequences, columns, dropout);
  ctx.threads.parallel_for(num_chunks(sequences.rows(), kRowChunk), [&](std::size_t chunk,
                                                                        int thread) {
    visit_chunk_rows(sequences, dropout, chunk, [&](const BatchRow& row) { visit(row, thread); });
  });
}

}  // namespace tandem::kernels
