#include "tandem/quant/calibration.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "tandem/core/error.h"
#include "tandem/data/epoch_order.h"

namespace tandem::quant {
namespace {

constexpr std::size_t kChunk = 65536;  // values that one task looks at

std::map<std::size_t, std::size_t> index_of(const std::vector<LinearLayer>& layers) {
  std::map<std::size_t, std::size_t> index;
  for (std::size_t i = 0; i < layers.size(); ++i) index.emplace(layers[i].linear.weight, i);
  return index;
}

// Calls visit(values, thread) for chunks of `x`.
void for_each_chunk(ThreadPool& threads, std::span<const float> x,
                    FunctionRef<void(std::span<const float>, int)> visit) {
  threads.parallel_for(num_chunks(x.size(), kChunk), [&](std::size_t chunk, int thread) {
    const std::size_t begin = chunk * kChunk;
    visit(x.subspan(begin, std::min(kChunk, x.size() - begin)), thread);
  });
}

// In lanes, so that the compiler can use vectors without changing an order. A NaN makes max
// infinite.
Extremes extremes_of(std::span<const float> values) {
  constexpr std::size_t kLanes = 16;
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  std::array<float, kLanes> min{}, max{};
  const auto take = [&](std::size_t lane, float v) {
    min[lane] = v < min[lane] ? v : min[lane];
    max[lane] = v <= max[lane] ? max[lane] : v;  // a NaN goes through, and stays at the next line
    max[lane] = max[lane] == max[lane] ? max[lane] : kInfinite;
  };
  std::size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) take(lane, values[i + lane]);
  }
  for (; i < values.size(); ++i) take(0, values[i]);
  return {*std::min_element(min.begin(), min.end()), *std::max_element(max.begin(), max.end())};
}

Extremes both(const Extremes& a, const Extremes& b) {
  return {std::min(a.min, b.min), std::max(a.max, b.max)};
}

}  // namespace

ExtremesObserver::ExtremesObserver(ThreadPool& threads, const std::vector<LinearLayer>& layers)
    : threads_(threads), layers_(layers), index_(index_of(layers)), extremes_(layers.size()) {}

void ExtremesObserver::saw(const nn::Linear& linear, std::size_t rows, const float* x) {
  const auto found = index_.find(linear.weight);
  if (found == index_.end()) return;
  std::vector<Extremes> of_thread(static_cast<std::size_t>(threads_.num_threads()));
  for_each_chunk(threads_, {x, rows * linear.in_features},
                 [&](std::span<const float> values, int thread) {
                   Extremes& mine = of_thread[static_cast<std::size_t>(thread)];
                   mine = both(mine, extremes_of(values));
                 });
  for (const Extremes& part : of_thread) {
    extremes_[found->second] = both(extremes_[found->second], part);
  }
}

std::vector<Extremes> ExtremesObserver::reduce(comm::Communicator& communicator) const {
  std::vector<float> min, max;
  for (const Extremes& one : extremes_) {
    min.push_back(one.min);
    max.push_back(one.max);
  }
  communicator.all_reduce(std::span<float>(min), comm::ReduceOp::kMin);
  communicator.all_reduce(std::span<float>(max), comm::ReduceOp::kMax);
  std::vector<Extremes> reduced;
  for (std::size_t i = 0; i < min.size(); ++i) {
    if (!std::isfinite(min[i]) || !std::isfinite(max[i])) {
      raise<DataError>(
          "calibration: the input of {} is not finite (NaN or infinite), so it has no range; "
          "expected a model that computes finite numbers in f32",
          layers_[i].modules.front().name);
    }
    reduced.push_back({min[i], max[i]});
  }
  return reduced;
}

HistogramObserver::HistogramObserver(ThreadPool& threads, const std::vector<LinearLayer>& layers,
                                     std::span<const Extremes> extremes)
    : threads_(threads),
      index_(index_of(layers)),
      counts_of_thread_(static_cast<std::size_t>(threads.num_threads())) {
  TANDEM_CHECK(extremes.size() == layers.size(), "{} extremes of {} layers", extremes.size(),
               layers.size());
  for (const Extremes& one : extremes) {
    histograms_.push_back({one, std::vector<std::int64_t>(kBins)});
  }
  for (auto& counts : counts_of_thread_) counts.resize(kBins);
}

void HistogramObserver::saw(const nn::Linear& linear, std::size_t rows, const float* x) {
  const auto found = index_.find(linear.weight);
  if (found == index_.end()) return;
  Histogram& histogram = histograms_[found->second];
  const float min = histogram.extremes.min;
  const float range = histogram.extremes.max - min;
  const float bins_per_unit = range > 0 ? static_cast<float>(kBins) / range : 0.0f;
  for_each_chunk(
      threads_, {x, rows * linear.in_features}, [&](std::span<const float> values, int thread) {
        auto& counts = counts_of_thread_[static_cast<std::size_t>(thread)];
        for (const float value : values) {
          const float bin =
              std::clamp((value - min) * bins_per_unit, 0.0f, static_cast<float>(kBins - 1));
          ++counts[static_cast<std::size_t>(bin)];
        }
      });
  for (auto& counts : counts_of_thread_) {
    for (std::size_t b = 0; b < kBins; ++b) histogram.counts[b] += std::exchange(counts[b], 0);
  }
}

std::vector<Histogram> HistogramObserver::reduce(comm::Communicator& communicator) const {
  std::vector<Histogram> reduced = histograms_;
  for (Histogram& histogram : reduced) {
    communicator.all_reduce(std::span<std::int64_t>(histogram.counts), comm::ReduceOp::kSum);
  }
  return reduced;
}

namespace {

// Sums over the first bins of a histogram, each value counted at the middle of its bin: how many,
// their sum, the sum of their squares.
struct Moments {
  double count = 0, sum = 0, squares = 0;

  Moments operator-(const Moments& other) const {
    return {count - other.count, sum - other.sum, squares - other.squares};
  }
  // Sum of (value − end)² over these values.
  double squared_distance(double end) const { return squares - 2 * end * sum + end * end * count; }
};

class HistogramError {
 public:
  explicit HistogramError(const Histogram& histogram)
      : min_(histogram.extremes.min),
        width_((static_cast<double>(histogram.extremes.max) - min_) /
               static_cast<double>(histogram.counts.size())) {
    Moments moments;
    before_.push_back(moments);
    for (std::size_t b = 0; b < histogram.counts.size(); ++b) {
      const double middle = min_ + (static_cast<double>(b) + 0.5) * width_;
      const auto count = static_cast<double>(histogram.counts[b]);
      moments.count += count;
      moments.sum += count * middle;
      moments.squares += count * middle * middle;
      before_.push_back(moments);
    }
  }

  // Squared error of the range [low, high] over all values.
  double of(double low, double high) const {
    const std::size_t first = bin_at(low), last = bin_at(high);
    const Moments left = before_[first];
    const Moments inside = before_[last] - left;
    const Moments right = before_.back() - before_[last];
    const double step = (high - low) / 255;
    return inside.count * step * step / 12 + left.squared_distance(low) +
           right.squared_distance(high);
  }

 private:
  std::size_t bin_at(double value) const {
    const double bin = std::nearbyint((value - min_) / width_);
    return static_cast<std::size_t>(std::clamp(bin, 0.0, static_cast<double>(before_.size() - 1)));
  }

  double min_, width_;
  std::vector<Moments> before_;  // [bins + 1]
};

}  // namespace

kernels::Int8Range least_error_range(const Histogram& histogram) {
  constexpr int kGrid = 128;
  const auto [min, max] = histogram.extremes;
  if (!(max > min)) return kernels::int8_range(min, max);
  const HistogramError error(histogram);
  Extremes best = histogram.extremes;
  double least = error.of(min, max);
  for (int i = min < 0 ? 1 : kGrid; i <= kGrid; ++i) {
    const float low = min * static_cast<float>(i) / kGrid;
    for (int k = max > 0 ? 1 : kGrid; k <= kGrid; ++k) {
      const float high = max * static_cast<float>(k) / kGrid;
      const double found = error.of(low, high);
      if (found < least) {
        least = found;
        best = {low, high};
      }
    }
  }
  return kernels::int8_range(best.min, best.max);
}

CalibrationSet calibration_set(std::size_t num_features, std::size_t count, std::uint64_t seed,
                               std::size_t batch_size) {
  CalibrationSet set{.features = data::epoch_permutation(num_features, seed, /*epoch=*/0),
                     .batch_size = batch_size};
  set.features.resize(std::min(count, num_features));
  return set;
}

void observe(const kernels::Context& context, comm::Communicator& communicator, tasks::Task& task,
             const nn::Weights& weights, const CalibrationSet& set, nn::LinearObserver& observer) {
  nn::Weights watched = weights;
  watched.observer = &observer;
  const std::span features(set.features);
  const auto world_size = static_cast<std::size_t>(communicator.size());
  task.plan_calibration(set.batch_size);
  for (std::size_t batch = static_cast<std::size_t>(communicator.rank());
       batch * set.batch_size < features.size(); batch += world_size) {
    const std::size_t begin = batch * set.batch_size;
    task.load_train_batch(
        features.subspan(begin, std::min(set.batch_size, features.size() - begin)), begin);
    task.forward(context, watched, {});
  }
}

}  // namespace tandem::quant
