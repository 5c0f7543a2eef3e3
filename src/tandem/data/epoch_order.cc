#include "tandem/data/epoch_order.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "tandem/core/error.h"

namespace tandem::data {

// Fisher-Yates as aten's randperm_cpu writes it: position i swaps with one of the N − i positions
// from i on.
std::vector<std::uint32_t> permutation(std::size_t num_samples, std::mt19937& generator) {
  if (num_samples >= std::numeric_limits<std::uint32_t>::max() / 20) {
    raise<InvalidArgument>("cannot shuffle {} samples: at most {} are supported", num_samples,
                           std::numeric_limits<std::uint32_t>::max() / 20 - 1);
  }
  std::vector<std::uint32_t> order = sequential_order(num_samples);
  for (std::size_t i = 0; i + 1 < num_samples; ++i) {
    const std::size_t z = generator() % (num_samples - i);
    std::swap(order[i], order[i + z]);
  }
  return order;
}

std::vector<std::uint32_t> epoch_permutation(std::size_t num_samples, std::uint64_t seed,
                                             std::uint64_t epoch) {
  std::mt19937 generator(static_cast<std::uint32_t>(seed + epoch));  // torch keeps the low 32 bits
  return permutation(num_samples, generator);
}

std::vector<std::uint32_t> sequential_order(std::size_t num_samples) {
  std::vector<std::uint32_t> order(num_samples);
  std::iota(order.begin(), order.end(), 0u);
  return order;
}

std::vector<std::uint32_t> group_by_length(std::vector<std::uint32_t> order,
                                           std::span<const std::uint32_t> lengths,
                                           std::size_t batch_size) {
  if (order.empty()) return order;
  const auto longer = [&](std::uint32_t a, std::uint32_t b) { return lengths[a] > lengths[b]; };
  const std::size_t batches = std::clamp<std::size_t>(order.size() / (batch_size * 4), 1, 50);
  const std::size_t run = batches * batch_size;
  std::size_t longest = 0;  // the first of the runs that begins with the longest sample
  for (std::size_t begin = 0; begin < order.size(); begin += run) {
    const auto first = order.begin() + static_cast<std::ptrdiff_t>(begin);
    const std::size_t count = std::min(run, order.size() - begin);
    std::stable_sort(first, first + static_cast<std::ptrdiff_t>(count), longer);
    if (longer(order[begin], order[longest])) longest = begin;
  }
  std::swap(order[0], order[longest]);
  return order;
}

EpochBatches::EpochBatches(std::vector<std::uint32_t> order, std::size_t batch_size,
                           std::size_t num_shards, bool drop_last, bool even_batches)
    : order_(std::move(order)),
      num_samples_(order_.size()),
      batch_size_(batch_size),
      num_shards_(num_shards),
      steps_(0) {
  if (batch_size == 0 || num_shards == 0) {
    raise<InvalidArgument>("batch size {} and {} shards: both must be at least 1", batch_size,
                           num_shards);
  }
  const std::size_t round = batch_size * num_shards;
  steps_ = drop_last ? num_samples_ / round : (num_samples_ + round - 1) / round;
  if (drop_last || num_shards == 1) return;
  if (!even_batches) {
    if (num_samples_ + batch_size_ <= steps_ * round) {
      raise<InvalidArgument>(
          "{} samples in batches of {}: not every one of {} shards has one in the "
          "last round",
          num_samples_, batch_size, num_shards);
    }
    return;
  }
  order_.reserve(steps_ * round);
  for (std::size_t i = 0; order_.size() < steps_ * round; ++i) {
    order_.push_back(order_[i]);  // cyclic: the repetitions are repeated when there are few samples
  }
}

EpochBatches::EpochBatches(std::span<const std::vector<std::uint32_t>> batches,
                           std::size_t num_shards, std::size_t rounds)
    : num_samples_(0), batch_size_(0), num_shards_(num_shards), steps_(rounds) {
  if (batches.empty() || num_shards == 0)
    raise<InvalidArgument>("{} batches for {} shards: both must be at least 1", batches.size(),
                           num_shards);
  for (std::size_t k = 0; k < rounds * num_shards; ++k) {
    const std::vector<std::uint32_t>& batch = batches[k % batches.size()];
    if (batch.empty()) raise<InvalidArgument>("batch {} of the sampler is empty", k);
    begins_.push_back(order_.size());
    order_.insert(order_.end(), batch.begin(), batch.end());
    if (k < batches.size()) num_samples_ = order_.size();
    batch_size_ = std::max(batch_size_, batch.size());
  }
  begins_.push_back(order_.size());
}

// Greedy, longest processing time first (Graham 1969), with as many places per shard as a batch
// has.
void EpochBatches::balance(std::span<const float> cost) {
  if (num_shards_ == 1 || !begins_.empty()) return;
  struct Load {
    double cost = 0;
    std::size_t samples = 0;
  };
  const std::size_t round = batch_size_ * num_shards_;
  std::vector<std::uint32_t> samples(round);
  std::vector<Load> loads(num_shards_);
  for (std::size_t begin = 0; begin + round <= order_.size(); begin += round) {
    const std::span dealt = std::span(order_).subspan(begin, round);
    std::copy(dealt.begin(), dealt.end(), samples.begin());
    std::stable_sort(samples.begin(), samples.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return cost[a] > cost[b]; });
    std::fill(loads.begin(), loads.end(), Load{});
    for (const std::uint32_t sample : samples) {
      const auto least =
          std::min_element(loads.begin(), loads.end(), [&](const Load& a, const Load& b) {
            if ((a.samples == batch_size_) != (b.samples == batch_size_))
              return b.samples == batch_size_;
            return a.cost < b.cost;
          });
      const auto shard = static_cast<std::size_t>(least - loads.begin());
      dealt[shard * batch_size_ + least->samples++] = sample;
      least->cost += cost[sample];
    }
  }
}

std::span<const std::uint32_t> EpochBatches::batch(std::size_t step, std::size_t shard) const {
  TANDEM_CHECK(step < steps_ && shard < num_shards_, "batch {} of shard {}", step, shard);
  if (!begins_.empty()) {
    const std::size_t k = step * num_shards_ + shard;
    return std::span(order_).subspan(begins_[k], begins_[k + 1] - begins_[k]);
  }
  const std::size_t begin = (step * num_shards_ + shard) * batch_size_;
  return std::span(order_).subspan(begin, std::min(batch_size_, order_.size() - begin));
}

std::size_t EpochBatches::num_unique(std::size_t step, std::size_t shard) const {
  const auto [begin, size] = [&]() -> std::pair<std::size_t, std::size_t> {
    const std::size_t k = step * num_shards_ + shard;
    if (begins_.empty()) return {k * batch_size_, batch_size_};
    return {begins_[k], begins_[k + 1] - begins_[k]};
  }();
  if (begin >= num_samples_) return 0;
  return std::min(size, num_samples_ - begin);
}

}  // namespace tandem::data
