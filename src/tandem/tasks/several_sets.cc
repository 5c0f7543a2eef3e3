#include "tandem/tasks/several_sets.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/data/epoch_order.h"

namespace tandem::tasks {
namespace {

// The batches of one data set, made when they are asked for: the generator is shared.
class SetBatches {
 public:
  SetBatches(const SampledSet& set, const EpochRequest& request) : set_(set), request_(request) {
    request_.epoch = 0;
  }

  // Empty behind the last batch.
  std::vector<std::uint32_t> next(std::mt19937& generator) {
    if (set_.sampler) {
      if (made_ == 0) make_all();
      return made_ < batches_.size() ? batches_[made_++] : std::vector<std::uint32_t>();
    }
    if (made_++ == 0) order_ = data::permutation(set_.rows, generator);
    const std::size_t size = std::min(request_.batch_size, order_.size() - begin_);
    const auto from = order_.begin() + static_cast<std::ptrdiff_t>(begin_);
    begin_ += size;
    if (size < request_.batch_size) data::permutation(set_.rows, generator);
    return {from, from + static_cast<std::ptrdiff_t>(size)};
  }

 private:
  void make_all() {
    batches_ = set_.sampler.batches(request_);
    if (request_.drop_last)
      std::erase_if(batches_, [&](const auto& one) { return one.size() < request_.batch_size; });
  }

  const SampledSet& set_;
  EpochRequest request_;
  std::size_t made_ = 0;
  Batches batches_;                   // of the sampler
  std::vector<std::uint32_t> order_;  // without a sampler
  std::size_t begin_ = 0;
};

class SeveralSets {
 public:
  SeveralSets(std::vector<SampledSet> sets, SetOrder order, bool over_shards)
      : sets_(std::move(sets)), order_(order), over_shards_(over_shards) {}

  std::size_t num_batches(const EpochRequest& request) const {
    return num_rounds(counts(request)) * parts(request);
  }

  Batches batches(const EpochRequest& request) const {
    std::mt19937 generator(static_cast<std::uint32_t>(request.seed + request.epoch));
    EpochRequest of_set = request;
    of_set.batch_size *= parts(request);
    of_set.shards = 1;
    std::vector<SetBatches> streams;
    for (const SampledSet& set : sets_) streams.emplace_back(set, of_set);
    Batches all;
    for (const std::uint32_t set : order(counts(request), generator)) {
      std::vector<std::uint32_t> batch = streams[set].next(generator);
      if (batch.empty()) continue;
      for (std::uint32_t& row : batch) row += first_row(set);
      all.push_back(std::move(batch));
    }
    return parts(request) == 1 ? all : split_batches(all, parts(request));
  }

 private:
  std::size_t parts(const EpochRequest& request) const { return over_shards_ ? request.shards : 1; }

  // Batches of each data set, before they are split.
  std::vector<std::size_t> counts(const EpochRequest& request) const {
    const std::size_t size = request.batch_size * parts(request);
    std::vector<std::size_t> counts;
    for (const SampledSet& set : sets_) {
      const bool has_short = !request.drop_last && set.rows % size >= parts(request);
      counts.push_back(set.rows / size + (has_short ? 1 : 0));
    }
    return counts;
  }

  std::size_t num_rounds(const std::vector<std::size_t>& counts) const {
    if (order_ == SetOrder::kRoundRobin)
      return *std::min_element(counts.begin(), counts.end()) * counts.size();
    return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  }

  // The data set of each batch.
  std::vector<std::uint32_t> order(const std::vector<std::size_t>& counts,
                                   std::mt19937& generator) const {
    std::vector<std::uint32_t> order(num_rounds(counts));
    if (order_ == SetOrder::kRoundRobin) {
      for (std::size_t i = 0; i < order.size(); ++i)
        order[i] = static_cast<std::uint32_t>(i % counts.size());
      return order;
    }
    std::vector<std::uint32_t> sets;
    for (std::uint32_t set = 0; set < counts.size(); ++set)
      sets.insert(sets.end(), counts[set], set);
    const std::vector<std::uint32_t> drawn = data::permutation(sets.size(), generator);
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = sets[drawn[i]];
    return order;
  }

  std::uint32_t first_row(std::size_t set) const {
    std::size_t first = 0;
    for (std::size_t before = 0; before < set; ++before) first += sets_[before].rows;
    return static_cast<std::uint32_t>(first);
  }

  std::vector<SampledSet> sets_;
  SetOrder order_;
  bool over_shards_;
};

}  // namespace

SetOrder set_order_named(std::string_view name) {
  if (name == "proportional") return SetOrder::kProportional;
  if (name == "round_robin") return SetOrder::kRoundRobin;
  raise<ConfigError>(
      "--multi_dataset_batch_sampler: found '{}', expected proportional or round_robin", name);
}

Sampler several_sets(std::vector<SampledSet> sets, SetOrder order, bool over_shards) {
  std::size_t rows = 0;
  for (const SampledSet& set : sets) rows += set.rows;
  const auto all = std::make_shared<const SeveralSets>(std::move(sets), order, over_shards);
  return {.batches = [all](const EpochRequest& request) { return all->batches(request); },
          .epoch_rows = rows,
          .count = [all](const EpochRequest& request) { return all->num_batches(request); }};
}

}  // namespace tandem::tasks
