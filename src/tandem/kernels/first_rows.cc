#include "tandem/kernels/first_rows.h"

#include <algorithm>

#include "tandem/kernels/kernel_tables.h"
#include "tandem/kernels/row_chunks.h"

namespace tandem::kernels {

template <class T>
void gather_first_rows(const Context&, const Sequences& sequences, std::size_t columns, const T* x,
                       T* y) {
  check_sequences(sequences);
  for (std::size_t i = 0; i < sequences.count(); ++i) {
    std::copy_n(x + sequences.row_begin[i] * columns, columns, y + i * columns);
  }
}

template <class T>
void spread_first_rows(const Sequences& sequences, std::size_t columns, T* grad) {
  check_sequences(sequences);
  // From the last to the first: a sequence has at least one row, so row i goes behind none of those
  // that are still to move, and the zeros behind it cover none of them.
  for (std::size_t i = sequences.count(); i-- > 0;) {
    T* const rows = grad + sequences.row_begin[i] * columns;
    const T* const from = grad + i * columns;
    std::copy_backward(from, from + columns, rows + columns);
    std::fill_n(rows + columns, (sequences.rows_of(i) - 1) * columns, T{});
  }
}

template void gather_first_rows(const Context&, const Sequences&, std::size_t, const float*,
                                float*);
template void gather_first_rows(const Context&, const Sequences&, std::size_t, const bfloat16*,
                                bfloat16*);
template void spread_first_rows(const Sequences&, std::size_t, float*);
template void spread_first_rows(const Sequences&, std::size_t, bfloat16*);

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
