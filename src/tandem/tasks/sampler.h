// The batches of an epoch, for losses in which it matters which rows are together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "tandem/tasks/task.h"

namespace tandem::tasks {

using Batches = std::vector<std::vector<std::uint32_t>>;

struct Sampler {
  // None: the batches are those of the trainer.
  std::function<Batches(const EpochRequest&)> batches = {};
  std::size_t epoch_rows = 0;  // rows of the batches of an epoch together
  // Task::num_train_batches(). None: epoch_rows cut into batches.
  std::function<std::size_t(const EpochRequest&)> count = {};

  explicit operator bool() const { return static_cast<bool>(batches); }
};

// Each batch as `parts` batches whose sizes differ by at most one; a batch with fewer rows is left
// out.
Batches split_batches(const Batches& batches, std::size_t parts);

}  // namespace tandem::tasks
