// Operands of the benches: named models, batches, random values, and comparisons.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/bfloat16.h"
#include "tandem/core/buffer.h"
#include "tandem/core/thread_pool.h"
#include "tandem/kernels/dropout.h"
#include "tandem/kernels/sequences.h"
#include "tandem/models/encoder/model_config.h"

namespace tandem::apps::bench {

// "minilm", "distilbert", "bert-base", "bert-large", "deberta-v3-xsmall", "deberta-v3-small",
// "deberta-v3-base", "deberta-v3-large", "modernbert-base", "modernbert-large",
// "mpnet-base", "roberta-base", "xlm-roberta-base", "electra-small", "electra-base".
std::vector<std::string> model_names();
// The architecture behind a name. Throws InvalidArgument for another one.
models::ModelConfig named_model(std::string_view name);
// named_model(), or the config.json of a directory, of one of the families `known`. Throws
// ConfigError for what is neither.
models::ModelConfig model_of(const std::string& name,
                             std::span<const models::Family* const> known = models::families());

// Where the lengths of a batch come from: "padded", "squad", "sst2".
std::vector<std::string> length_names();
// Tokens of `count` sequences of at most `seq`.
//   padded: all have `seq`.
//   squad:  features of SQuAD v1.1 at a length of 384, 45.6 % of that on average.
//   sst2:   sentences of SST-2, 23.3 on average.
// The last two are 24 quantiles of the training set's distribution in an order in which every 12
// have its mean; longer ones are cut. Throws InvalidArgument for another name.
std::vector<std::uint32_t> named_lengths(std::string_view name, std::size_t count, std::size_t seq);
// For --lengths.
inline constexpr const char* kLengthsHelp =
    "padded: all sequences have --seq tokens; squad, sst2: as long as those of SQuAD or SST-2, not "
    "padded";

// Sequences one after another, without padding.
class Batch {
 public:
  explicit Batch(const std::vector<std::uint32_t>& lengths);
  kernels::Sequences sequences() const { return {row_begin_, key_count_, sample_}; }
  std::size_t rows() const { return row_begin_.back(); }
  // Pairs of a query row and a key.
  double pairs() const;

 private:
  std::vector<std::uint32_t> row_begin_, key_count_;
  std::vector<std::uint64_t> sample_;
};

// Memory as the trainer has it: huge pages where the system gives them.
template <class T>
class Array {
 public:
  Array() = default;
  explicit Array(std::size_t count) : buffer_(count * sizeof(T)), size_(count) {}
  // Uniform in [-1, 1), the same for the same seed. Every page is written, so that no bench counts
  // page faults.
  static Array random(ThreadPool& threads, std::size_t count, std::uint64_t seed) {
    Array x(count);
    constexpr std::size_t kChunk = 65536;
    threads.parallel_for(num_chunks(count, kChunk), [&](std::size_t chunk, int) {
      const std::size_t end = std::min(count, (chunk + 1) * kChunk);
      for (std::size_t i = chunk * kChunk; i < end; ++i) {
        const std::uint64_t bits = kernels::splitmix64((seed << 40) + i) >> 40;
        x.data()[i] = to_storage<T>(static_cast<float>(bits) / 8388608.0f - 1.0f);
      }
    });
    return x;
  }

  T* data() const { return buffer_.as<T>().data(); }
  std::size_t size() const { return size_; }
  std::span<const T> span() const { return {data(), size_}; }

 private:
  Buffer buffer_;
  std::size_t size_ = 0;
};

inline constexpr double kFloatEpsilon = 0x1p-24;  // half a unit in the last place of 1

// The largest |got - want| as a share of `bound` and one rounding of the storage type; infinite for
// a NaN on one side.
template <class T>
double worst_error(std::span<const T> got, std::span<const T> want, double bound) {
  constexpr double kStorageEpsilon = std::is_same_v<T, float> ? 0x1p-23 : 0x1p-7;
  double worst = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double g = to_float(got[i]);
    const double w = to_float(want[i]);
    if (g == w) continue;
    const double error = std::abs(g - w) / (bound + kStorageEpsilon * std::abs(w));
    if (std::isnan(error)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, error);
  }
  return worst;
}

template <class T>
double largest_magnitude(std::span<const T> x) {
  double most = 0;
  for (const T e : x) most = std::max(most, std::abs(static_cast<double>(to_float(e))));
  return most;
}

}  // namespace tandem::apps::bench
