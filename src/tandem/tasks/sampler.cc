#include "tandem/tasks/sampler.h"

namespace tandem::tasks {

Batches split_batches(const Batches& batches, std::size_t parts) {
  Batches all;
  for (const auto& batch : batches) {
    if (batch.size() < parts) continue;
    for (std::size_t part = 0; part < parts; ++part) {
      const auto begin = batch.begin() + static_cast<std::ptrdiff_t>(part * batch.size() / parts);
      const auto end =
          batch.begin() + static_cast<std::ptrdiff_t>((part + 1) * batch.size() / parts);
      all.emplace_back(begin, end);
    }
  }
  return all;
}

}  // namespace tandem::tasks
