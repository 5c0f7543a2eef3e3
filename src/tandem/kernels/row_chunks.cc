#include "tandem/kernels/row_chunks.h"

#include "tandem/core/error.h"

namespace tandem::kernels {

void check_dropout(const Sequences& sequences, std::size_t columns, const Dropout& dropout) {
  static_cast<void>(dropout_mask(dropout, 0));  // checks p
  if (dropout.p == 0.0f) return;
  if (columns > 65536)
    raise<InvalidArgument>("dropout over {} columns; its counter holds 65536", columns);
  if (sequences.sample.size() != sequences.count()) {
    raise<InvalidArgument>("dropout needs the sample number of each of {} sequences, got {}",
                           sequences.count(), sequences.sample.size());
  }
  for (std::size_t i = 0; i < sequences.count(); ++i) {
    if (sequences.rows_of(i) > (std::size_t{1} << 17)) {
      raise<InvalidArgument>("sequence {} has {} rows; the dropout counter holds 131072", i,
                             sequences.rows_of(i));
    }
  }
}

}  // namespace tandem::kernels
