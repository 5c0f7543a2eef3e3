// Which sample is in which batch: torch.randperm's permutation and accelerate's rule to deal
// batches to shards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace tandem::data {

// The permutation of 0 … num_samples−1 that torch.randperm draws next from the generator. Throws
// InvalidArgument for num_samples >= 2^32 / 20, where torch would switch to another algorithm.
std::vector<std::uint32_t> permutation(std::size_t num_samples, std::mt19937& generator);

// The permutation of 0 … num_samples−1 in epoch `epoch`: torch.randperm with a fresh mt19937 seeded
// seed + epoch, which is what accelerate's SeedableRandomSampler draws. Throws what permutation()
// throws.
std::vector<std::uint32_t> epoch_permutation(std::size_t num_samples, std::uint64_t seed,
                                             std::uint64_t epoch);

// 0, 1, …, num_samples−1: evaluation.
std::vector<std::uint32_t> sequential_order(std::size_t num_samples);

// The permutation `order` with samples of similar length side by side, as transformers'
// get_length_grouped_indices makes it (--group_by_length): cut into runs of 50 batches (fewer when
// there are few samples), each sorted by descending length, ties in order; then the first sample of
// all changes places with the longest one. lengths[sample]; batch_size counts the samples of one
// rank's update.
std::vector<std::uint32_t> group_by_length(std::vector<std::uint32_t> order,
                                           std::span<const std::uint32_t> lengths,
                                           std::size_t batch_size);

// One epoch's samples cut into batches of batch_size, dealt round-robin to num_shards logical
// shards (BatchSamplerShard): shard i gets batches i, i + L, i + 2L, …. With several shards, what
// is missing in the last round is taken cyclically from the start of the order, so that every shard
// has equally many full batches; a single shard keeps a short last batch. drop_last leaves out the
// incomplete batch, and the incomplete round. Without even_batches nothing is taken: the last shard
// of the last round has a short batch.
class EpochBatches {
 public:
  // Throws InvalidArgument if batch_size or num_shards is 0, or a shard would have no sample in the
  // last round.
  EpochBatches(std::vector<std::uint32_t> order, std::size_t batch_size, std::size_t num_shards = 1,
               bool drop_last = false, bool even_batches = true);

  // Batches that a sampler has made, of any sizes, dealt round-robin as above: `rounds` of one
  // batch for each shard. Where the batches are too few they are repeated from the first one;
  // further batches are left out. Throws InvalidArgument without a batch, and for an empty one.
  EpochBatches(std::span<const std::vector<std::uint32_t>> batches, std::size_t num_shards,
               std::size_t rounds);

  // Deals the samples of each round (one batch of every shard) anew, so that all shards have about
  // the same work: the most expensive first, each to the shard that has least so far and still
  // room, equal ones to the lowest. A round keeps its samples and every batch its size; only the
  // rank that computes them changes. cost[sample] >= 0, in any unit. Rounds that are incomplete
  // stay as they are, and so does everything with one shard.
  void balance(std::span<const float> cost);

  // Batches per shard.
  std::size_t size() const { return steps_; }
  // The samples of batch `step` of shard `shard`. Valid while this object lives.
  std::span<const std::uint32_t> batch(std::size_t step, std::size_t shard) const;
  // How many leading samples of that batch are not repetitions from the start of the order;
  // evaluation drops the rest.
  std::size_t num_unique(std::size_t step, std::size_t shard) const;

 private:
  std::vector<std::uint32_t> order_;  // followed by the repetitions of the last round
  std::size_t num_samples_;
  std::size_t batch_size_;
  std::size_t num_shards_;
  std::size_t steps_;
  // Begin of each batch of a batch sampler in order_, and the end of the last one; otherwise empty.
  std::vector<std::size_t> begins_;
};

}  // namespace tandem::data
