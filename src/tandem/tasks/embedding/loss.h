/** What every loss of embeddings is: a function of the embeddings of one group of rows.
 *
 * A group is the micro-batch of one logical shard, or all rows of a step when embeddings are gathered over ranks. The loss is
 * computed in two passes, so that ranks can share the work: statistics of the rows that this rank owns, then, when the statistics
 * of all rows are known, the gradient of these rows. Sums have an order that is fixed by global row and column. The results are the
 * same bits for any split into ranges and any number of threads. */
#pragma once

#include <cstdint>
#include <span>

#include "tandem/core/thread_pool.h"

namespace tandem::tasks::embedding {

/** The embeddings and labels of a group. Views; the caller keeps the memory. */
struct EmbeddedRows {
  std::int64_t rows = 0;
  std::int64_t columns = 0;       // text columns: anchor, positive, negatives; or sentence 1 and 2
  std::int64_t width = 0;         // components of an embedding
  std::span<const float> values;  // [columns, rows, width]
  std::span<const float> labels;  // [rows, labels per row]; empty when the data has no label
};

/** Rows [begin, end) of a group. */
struct RowRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

class EmbeddingLoss {
 public:
  virtual ~EmbeddingLoss() = default;

  /** f32 numbers per row that every rank needs of every row before gradients can be computed; 0 when there are none. */
  virtual std::int64_t statistics_per_row(const EmbeddedRows& group) const = 0;

  /** Overwrites `statistics` [range, statistics_per_row] with those of the rows of `range`. */
  virtual void row_statistics(const EmbeddedRows& group, RowRange range, std::span<float> statistics,
                              ThreadPool& threads) const = 0;

  /** The loss over all rows of the group, from `statistics` [rows, statistics_per_row] of all of them.
   * Overwrites `gradient` [columns, range, width] with the loss's gradient by the embeddings of the rows of `range`. */
  virtual double loss_and_gradient(const EmbeddedRows& group, std::span<const float> statistics, RowRange range,
                                   std::span<float> gradient, ThreadPool& threads) const = 0;
};

}  // namespace tandem::tasks::embedding
