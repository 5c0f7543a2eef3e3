// The loss of a group of rows that lies in the memory of one rank: statistics and gradient in one
// call.
#pragma once

#include <span>
#include <vector>

#include "tandem/tasks/embedding/loss.h"

namespace tandem::tasks::embedding {

// Memory of the statistics, kept from call to call.
class GroupLoss {
 public:
  // The loss over all rows; overwrites `gradient` [columns, rows, width].
  double compute(const EmbeddingLoss& loss, const EmbeddedRows& group, std::span<float> gradient,
                 const kernels::Context& context) {
    const RowRange all{0, group.rows};
    statistics_.resize(group.rows * loss.statistics_per_row(group));
    if (!statistics_.empty()) loss.row_statistics(group, all, statistics_, context);
    return loss.loss_and_gradient(group, statistics_, all, gradient, context);
  }

 private:
  std::vector<float> statistics_;
};

}  // namespace tandem::tasks::embedding
