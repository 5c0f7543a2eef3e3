// Which values the inputs of the linear layers take: the f32 model runs over some training
// features, and every layer's input becomes a range for its 8 bits.
//
// Two passes over the same features, because the bins of a histogram need its ends: extremes first,
// then counts. Minima, maxima and integer counts do not depend on the order in which they are
// collected, so any number of ranks and threads finds the same ranges, bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/thread_pool.h"
#include "tandem/kernels/context.h"
#include "tandem/kernels/int8.h"
#include "tandem/nn/int8_linear.h"
#include "tandem/quant/linear_layers.h"
#include "tandem/tasks/task.h"

namespace tandem::quant {

// The smallest and the largest input of a layer; min <= 0 <= max, for 0 must be exact.
struct Extremes {
  float min = 0;
  float max = 0;
  friend bool operator==(const Extremes&, const Extremes&) = default;
};

// First pass. Layers that it was not made for pass unseen. `threads` and `layers` outlive it.
class ExtremesObserver final : public nn::LinearObserver {
 public:
  ExtremesObserver(ThreadPool& threads, const std::vector<LinearLayer>& layers);
  void saw(const nn::Linear& linear, std::size_t rows, const float* x) override;
  // Over all ranks, by layer. Collective. Throws DataError that names a layer whose input was not
  // finite; on every rank.
  std::vector<Extremes> reduce(comm::Communicator& communicator) const;

 private:
  ThreadPool& threads_;
  const std::vector<LinearLayer>& layers_;
  std::map<std::size_t, std::size_t> index_;  // weight offset -> layer
  std::vector<Extremes> extremes_;
};

// How often each of equally wide intervals from min to max was met. Bin b holds
// [min + b · width, min + (b + 1) · width); the last one also max.
struct Histogram {
  Extremes extremes;
  std::vector<std::int64_t> counts;
};

// Second pass: histograms between the extremes of the first. `threads` and `layers` outlive it.
class HistogramObserver final : public nn::LinearObserver {
 public:
  static constexpr std::size_t kBins = 2048;

  HistogramObserver(ThreadPool& threads, const std::vector<LinearLayer>& layers,
                    std::span<const Extremes> extremes);
  void saw(const nn::Linear& linear, std::size_t rows, const float* x) override;
  // Over all ranks, by layer. Collective.
  std::vector<Histogram> reduce(comm::Communicator& communicator) const;

 private:
  ThreadPool& threads_;
  std::map<std::size_t, std::size_t> index_;
  std::vector<Histogram> histograms_;
  std::vector<std::vector<std::int64_t>> counts_of_thread_;
};

// The range inside the histogram's extremes for which the squared error is least: values inside
// lose step² / 12 in the mean (rounding to a multiple of the step), values outside their distance
// from the range. The ends are sought on a grid of 128 points on each side of 0.
kernels::Int8Range least_error_range(const Histogram& histogram);

// The training features to calibrate with, and how many of them are computed together.
struct CalibrationSet {
  std::vector<std::uint32_t> features;
  std::size_t batch_size = 8;
};

// The first `count` features in the order in which training meets them: those of the first epoch's
// permutation. All of them when there are fewer.
CalibrationSet calibration_set(std::size_t num_features, std::size_t count, std::uint64_t seed,
                               std::size_t batch_size);

// Runs the model over the set without dropout; batch k is computed by rank k mod W. `weights` are
// f32 without an observer of their own. Features without training labels in the task are our bug.
void observe(const kernels::Context& context, comm::Communicator& communicator, tasks::Task& task,
             const nn::Weights& weights, const CalibrationSet& set, nn::LinearObserver& observer);

}  // namespace tandem::quant
