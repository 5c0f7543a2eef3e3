#include "tandem/tasks/embedding/group_by_label.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <unordered_map>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/data/epoch_order.h"

namespace tandem::tasks::embedding {
namespace {

constexpr std::size_t kRowsOfTurn = 2;
constexpr std::size_t kSmallestBatch = 2 * kRowsOfTurn;  // two labels

using Groups = std::vector<std::vector<std::uint32_t>>;

// The rows of each label, in the order in which labels first occur, an even number of each.
Groups rows_by_label(std::span<const float> labels) {
  Groups all;
  std::unordered_map<float, std::size_t> numbers;
  for (std::uint32_t row = 0; row < labels.size(); ++row) {
    const std::size_t number = numbers.emplace(labels[row], all.size()).first->second;
    if (number == all.size()) all.emplace_back();
    all[number].push_back(row);
  }
  Groups groups;
  for (auto& rows : all) {
    rows.resize(rows.size() / kRowsOfTurn * kRowsOfTurn);
    if (!rows.empty()) groups.push_back(std::move(rows));
  }
  return groups;
}

// How many rows an epoch has: it ends when one label alone has rows left.
std::size_t rows_of_epoch(const Groups& groups) {
  std::vector<std::size_t> sizes;
  for (const auto& rows : groups) sizes.push_back(rows.size());
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  std::size_t sum = 0;
  for (const std::size_t size : sizes) sum += std::min(size, sizes[1]);
  return sum;
}

std::vector<std::uint32_t> permuted(std::span<const std::uint32_t> values,
                                    std::mt19937& generator) {
  std::vector<std::uint32_t> order = data::permutation(values.size(), generator);
  for (std::uint32_t& position : order) position = values[position];
  return order;
}

// The rows of an epoch in their order.
std::vector<std::uint32_t> stream(const Groups& groups, std::uint64_t epoch) {
  std::mt19937 generator(static_cast<std::uint32_t>(epoch));
  Groups queues;
  for (const auto& rows : groups) queues.push_back(permuted(rows, generator));
  std::vector<std::size_t> taken(queues.size(), 0);
  std::vector<std::uint32_t> labels = data::sequential_order(queues.size()), rows;
  while (labels.size() > 1) {
    labels = permuted(labels, generator);
    for (const std::uint32_t label : labels) {
      const auto next = queues[label].begin() + static_cast<std::ptrdiff_t>(taken[label]);
      rows.insert(rows.end(), next, next + kRowsOfTurn);
      taken[label] += kRowsOfTurn;
    }
    std::erase_if(labels,
                  [&](std::uint32_t label) { return taken[label] == queues[label].size(); });
  }
  return rows;
}

Batches cut(std::span<const std::uint32_t> rows, std::size_t size) {
  Batches batches;
  for (std::size_t begin = 0; begin < rows.size(); begin += size) {
    const auto batch = rows.subspan(begin, std::min(size, rows.size() - begin));
    if (batch.size() >= kSmallestBatch || batches.empty())
      batches.emplace_back(batch.begin(), batch.end());
  }
  return batches;
}

}  // namespace

Sampler group_by_label(std::span<const float> labels, bool over_shards) {
  const auto groups = std::make_shared<const Groups>(rows_by_label(labels));
  if (groups->size() < 2) {
    raise<DataError>(
        "--batch_sampler group_by_label: found {} label{} with two rows or more, expected at least "
        "2 of them; use another --batch_sampler or another --label_column",
        groups->size(), groups->size() == 1 ? "" : "s");
  }
  const auto batches = [groups, over_shards](const EpochRequest& request) {
    const std::vector<std::uint32_t> rows = stream(*groups, request.epoch);
    if (!over_shards) return cut(rows, request.batch_size);
    return split_batches(cut(rows, request.batch_size * request.shards), request.shards);
  };
  return {batches, rows_of_epoch(*groups)};
}

void check_batch_of_labels(std::size_t batch_size) {
  if (batch_size >= kSmallestBatch && batch_size % kRowsOfTurn == 0) return;
  raise<ConfigError>(
      "--batch_sampler group_by_label: found a batch of {} rows, expected an even number of at "
      "least {}; change --per_device_train_batch_size",
      batch_size, kSmallestBatch);
}

}  // namespace tandem::tasks::embedding
