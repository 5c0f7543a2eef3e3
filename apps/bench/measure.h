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

// Times all of `works` alternately, the calibrator between any two. One untimed execution comes
// first; a round executes as often as it takes to fill 20 ms.
std::vector<Samples> measure(int rounds, FunctionRef<double()> calibrate,
                             std::span<const std::function<void()>> works);

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
