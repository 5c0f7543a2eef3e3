#include "tandem/kernels/first_rows.h"

#include <algorithm>

#include "tandem/kernels/kernel_tables.h"
#include "tandem/kernels/row_chunks.h"

namespace tandem::kernels {

void gather_first_rows(const Context&, const Sequences& sequences, std::size_t columns,
                       const float* x, float* y) {
  check_sequences(sequences);
  for (std::size_t i = 0; i < sequences.count(); ++i) {
    std::copy_n(x + sequences.row_begin[i] * columns, columns, y + i * columns);
  }
}

template <class T>
void keep_first_rows(const Sequences& sequences, std::size_t columns, T* x) {
  check_sequences(sequences);
  // Row i is behind none of those that are still to move: a sequence has at least one row.
  for (std::size_t i = 0; i < sequences.count(); ++i) {
    const T* const from = x + sequences.row_begin[i] * columns;
    std::copy(from, from + columns, x + i * columns);
  }
}

template void keep_first_rows(const Sequences&, std::size_t, float*);
template void keep_first_rows(const Sequences&, std::size_t, bfloat16*);

void scatter_first_rows(const Context& ctx, const Sequences& sequences, std::size_t columns,
                        const float* grad_y, float* grad_x) {
  check_sequences(sequences);
  ctx.threads.parallel_for(sequences.count(), [&](std::size_t i, int) {
    float* const rows = grad_x + sequences.row_begin[i] * columns;
    std::copy_n(grad_y + i * columns, columns, rows);
    std::fill_n(rows + columns, (sequences.rows_of(i) - 1) * columns, 0.0f);
  });
}

void dropout_first_rows(const Context& ctx, const Sequences& sequences, std::size_t columns,
                        const Dropout& dropout, const float* x, float* y) {
  check_sequences(sequences);
  check_dropout(sequences, columns, dropout);
  for (std::size_t i = 0; i < sequences.count(); ++i) {
    ctx.kernels.dropout->f32.forward(mask_of_sequence(sequences, dropout, i), 0, columns,
                                     x + i * columns, y + i * columns);
  }
}

}  // namespace tandem::kernels
