#include "tandem/tasks/embedding/no_duplicates.h"

#include <algorithm>
#include <list>
#include <memory>

#include "tandem/data/epoch_order.h"

namespace tandem::tasks::embedding {
namespace {

// The batches of one order, of up to `size` rows.
class Greedy {
 public:
  Greedy(std::span<const std::uint32_t> values, std::size_t columns)
      : values_(values),
        columns_(columns),
        rows_(values.size() / columns),
        last_batch_(values.empty() ? 0 : *std::max_element(values.begin(), values.end()) + 1, 0) {}

  Batches batches(std::span<const std::uint32_t> order, std::size_t size) {
    std::list<std::uint32_t> left(order.begin(), order.end());
    Batches all;
    while (!left.empty()) {
      std::vector<std::uint32_t>& batch = all.emplace_back();
      for (auto row = left.begin(); row != left.end() && batch.size() < size;) {
        if (occurs(*row, all.size())) {
          ++row;
          continue;
        }
        batch.push_back(*row);
        row = left.erase(row);
      }
    }
    return all;
  }

 private:
  // Whether a text of the row is in batch `number`, counted from 1; if not, they are from now on.
  bool occurs(std::uint32_t row, std::size_t number) {
    for (std::size_t column = 0; column < columns_; ++column)
      if (last_batch_[values_[column * rows_ + row]] == number) return true;
    for (std::size_t column = 0; column < columns_; ++column)
      last_batch_[values_[column * rows_ + row]] = number;
    return false;
  }

  std::span<const std::uint32_t> values_;
  std::size_t columns_, rows_;
  std::vector<std::size_t> last_batch_;  // by text: the number of the batch that has it
};

// Each batch as `parts` batches whose sizes differ by at most one; a batch with fewer rows is left
// out.
Batches split(const Batches& batches, std::size_t parts) {
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

}  // namespace

Sampler no_duplicates(std::vector<std::uint32_t> values, std::size_t columns, bool over_shards) {
  const auto shared = std::make_shared<const std::vector<std::uint32_t>>(std::move(values));
  return [shared, columns, over_shards](const EpochRequest& request) {
    const auto order = data::epoch_permutation(shared->size() / columns, 0, request.epoch);
    Greedy greedy(*shared, columns);
    if (!over_shards) return greedy.batches(order, request.batch_size);
    return split(greedy.batches(order, request.batch_size * request.shards), request.shards);
  };
}

}  // namespace tandem::tasks::embedding
