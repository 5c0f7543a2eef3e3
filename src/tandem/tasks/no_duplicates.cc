#include "tandem/tasks/no_duplicates.h"

#include <algorithm>
#include <memory>
#include <queue>
#include <set>
#include <unordered_map>
#include <utility>

#include "tandem/data/epoch_order.h"

namespace tandem::tasks {
namespace {

// The batches of one order, of up to `size` rows. A row that is passed over waits for a text of the
// batch that it has too, and is looked at again only when a later batch is without this text and
// the rows before it that wait for the same text are gone. Many rows with one text therefore cost
// no more than rows without.
class Greedy {
 public:
  Greedy(std::span<const std::uint32_t> values, std::size_t columns)
      : values_(values),
        columns_(columns),
        rows_(values.size() / columns),
        last_batch_(values.empty() ? 0 : *std::max_element(values.begin(), values.end()) + 1, 0) {}

  Batches batches(std::span<const std::uint32_t> order, std::size_t size) {
    Batches all;
    std::uint32_t next = 0;  // position of the first row that no batch has looked at
    while (next < order.size() || !heads_.empty()) {
      std::vector<std::uint32_t>& batch = all.emplace_back();
      // All rows that wait come before `next`.
      while (batch.size() < size && !heads_.empty()) {
        const auto [position, text] = *heads_.begin();
        leave_queue(text);
        try_row(position, order[position], all.size(), batch);
        if (last_batch_[text] != all.size()) show_head(text);
      }
      for (; batch.size() < size && next < order.size(); ++next)
        try_row(next, order[next], all.size(), batch);
      for (const std::uint32_t row : batch) {
        for (std::size_t column = 0; column < columns_; ++column) show_head(text_of(row, column));
      }
    }
    return all;
  }

 private:
  using Queue = std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>>;

  std::uint32_t text_of(std::uint32_t row, std::size_t column) const {
    return values_[column * rows_ + row];
  }

  // Puts the row into the batch `number`, counted from 1, or into the queue of a text.
  void try_row(std::uint32_t position, std::uint32_t row, std::size_t number,
               std::vector<std::uint32_t>& batch) {
    for (std::size_t column = 0; column < columns_; ++column) {
      const std::uint32_t text = text_of(row, column);
      if (last_batch_[text] == number) return waiting_[text].push(position);
    }
    for (std::size_t column = 0; column < columns_; ++column) {
      const std::uint32_t text = text_of(row, column);
      last_batch_[text] = number;
      hide_head(text);
    }
    batch.push_back(row);
  }

  void show_head(std::uint32_t text) {
    const auto queue = waiting_.find(text);
    if (queue != waiting_.end()) heads_.emplace(queue->second.top(), text);
  }
  void hide_head(std::uint32_t text) {
    const auto queue = waiting_.find(text);
    if (queue != waiting_.end()) heads_.erase({queue->second.top(), text});
  }
  void leave_queue(std::uint32_t text) {
    hide_head(text);
    const auto queue = waiting_.find(text);
    queue->second.pop();
    if (queue->second.empty()) waiting_.erase(queue);
  }

  std::span<const std::uint32_t> values_;
  std::size_t columns_, rows_;
  std::vector<std::size_t> last_batch_;  // by text: the number of the batch that has it
  std::unordered_map<std::uint32_t, Queue> waiting_;  // by text: positions in the order
  // Position and text of the first row of each queue whose text is not in the batch.
  std::set<std::pair<std::uint32_t, std::uint32_t>> heads_;
};

}  // namespace

Sampler no_duplicates(std::vector<std::uint32_t> values, std::size_t columns, bool over_shards) {
  const std::size_t rows = values.size() / columns;
  const auto shared = std::make_shared<const std::vector<std::uint32_t>>(std::move(values));
  const auto batches = [shared, columns, rows, over_shards](const EpochRequest& request) {
    const auto order = data::epoch_permutation(rows, 0, request.epoch);
    Greedy greedy(*shared, columns);
    if (!over_shards) return greedy.batches(order, request.batch_size);
    return split_batches(greedy.batches(order, request.batch_size * request.shards),
                         request.shards);
  };
  return {batches, rows};
}

}  // namespace tandem::tasks
