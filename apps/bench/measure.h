// How the benches measure: the thing timed and a calibrator run alternately on the same threads,
// and the ratio is taken per pair, so that a machine that is slow for a while is slow for both.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "tandem/core/buffer.h"
#include "tandem/core/thread_pool.h"
#include "tandem/kernels/context.h"
#include "tandem/kernels/peak.h"

namespace tandem::apps::bench {

struct Statistics {
  double median = 0;
  double min = 0;
  double max = 0;
};
// An even number of values has the mean of the middle two as its median.
Statistics statistics(std::vector<double> values);

// The smallest of `values` that at least `percent` of them do not exceed. `values` is not empty.
double percentile(std::vector<double> values, double percent);

// One thing timed, per round.
struct Samples {
  std::vector<double> seconds;  // seconds of one execution
  std::vector<double> peaks;    // the calibrator's rate: mean of before and after

  // Rates if each execution does `work` (FLOPs or bytes).
  Statistics rates(double work) const;
  Statistics shares(double work) const;  // rate / peak
};

double seconds_of(FunctionRef<void()> work);

struct Calibration {
  double rate = 0;
  bool undisturbed = true;  // false: others used the cores meanwhile
};

// Rounds that are made and those of them that count: all, or the undisturbed ones.
class Rounds {
 public:
  // With `at_most` > `wanted`, more rounds replace disturbed ones.
  Rounds(int wanted, int at_most) : wanted_(wanted), at_most_(at_most) {}
  bool more() const { return undisturbed_ < wanted_ && made() < at_most_; }
  void add(bool undisturbed);
  // Whether the i-th counts. If most of those that are wanted are missing, all do.
  bool counts(std::size_t i) const { return of_round_[i] || 2 * undisturbed_ < wanted_; }
  int made() const { return static_cast<int>(of_round_.size()); }
  int undisturbed() const { return undisturbed_; }
  bool enough() const { return undisturbed_ >= wanted_; }

 private:
  int wanted_;
  int at_most_;
  int undisturbed_ = 0;
  std::vector<bool> of_round_;
};

// Times all of `works` alternately, the calibrator between any two. One untimed execution comes
// first; a round executes as often as it takes to fill 20 ms. A round is disturbed if one of its
// calibrations was. Returns the rounds that count.
std::vector<Samples> measure(Rounds& rounds, FunctionRef<Calibration()> calibrate,
                             std::span<const std::function<void()>> works);
// Without a calibrator.
std::vector<Samples> measure(int rounds, std::span<const std::function<void()>> works);

// Bandwidth calibrators on arrays larger than the caches. Each call is one pass of some
// milliseconds on all threads of the context and returns bytes per second, read and written.
class Streams {
 public:
  // 4 arrays of `elements` f32 and one of bf16; elements is rounded up to whole chunks.
  Streams(const kernels::Context& context, std::size_t elements);
  double read();
  double copy();
  double update(bool with_copy);  // AdamW's traffic

 private:
  double rate(double bytes, FunctionRef<void(std::size_t first, std::size_t count)> pass);

  ThreadPool& threads_;
  const kernels::StreamLoops& loops_;
  std::size_t elements_;
  Buffer arrays_[4];
  Buffer halves_;
};

}  // namespace tandem::apps::bench
