#include "apps/bench/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "tandem/core/error.h"

namespace tandem::apps::bench {
namespace {

constexpr double kRoundSeconds = 0.02;
constexpr std::size_t kStreamChunk = 65536;  // elements

std::vector<double> rates_of(const Samples& samples, double work, bool share) {
  std::vector<double> rates(samples.seconds.size());
  for (std::size_t i = 0; i < rates.size(); ++i) {
    rates[i] = work / samples.seconds[i] / (share ? samples.peaks[i] : 1.0);
  }
  return rates;
}

void keep_counted(const Rounds& rounds, Samples& samples) {
  Samples kept;
  for (std::size_t i = 0; i < samples.seconds.size(); ++i) {
    if (!rounds.counts(i)) continue;
    kept.seconds.push_back(samples.seconds[i]);
    kept.peaks.push_back(samples.peaks[i]);
  }
  samples = std::move(kept);
}

}  // namespace

Statistics statistics(std::vector<double> values) {
  TANDEM_CHECK(!values.empty(), "no values");
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return {.median = (values[(n - 1) / 2] + values[n / 2]) / 2,
          .min = values.front(),
          .max = values.back()};
}

double percentile(std::vector<double> values, double percent) {
  TANDEM_CHECK(!values.empty(), "no values");
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(percent / 100 * static_cast<double>(values.size()));
  const auto index = static_cast<std::size_t>(std::max(1.0, rank)) - 1;
  return values[std::min(index, values.size() - 1)];
}

Statistics Samples::rates(double work) const { return statistics(rates_of(*this, work, false)); }
Statistics Samples::shares(double work) const { return statistics(rates_of(*this, work, true)); }

double seconds_of(FunctionRef<void()> work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void Rounds::add(bool undisturbed) {
  of_round_.push_back(undisturbed);
  undisturbed_ += undisturbed ? 1 : 0;
}

std::vector<Samples> measure(Rounds& rounds, FunctionRef<Calibration()> calibrate,
                             std::span<const std::function<void()>> works) {
  std::vector<Samples> samples(works.size());
  std::vector<int> repetitions;
  for (const auto& work : works) {
    work();  // memory, scratch, caches
    const double once = std::max(seconds_of(work), 1e-9);
    repetitions.push_back(static_cast<int>(std::clamp(std::ceil(kRoundSeconds / once), 1.0, 1e5)));
  }
  Calibration before = calibrate();
  while (rounds.more()) {
    bool undisturbed = before.undisturbed;
    for (std::size_t turn = 0; turn < works.size(); ++turn) {
      // Every other round the other way round, so that none always comes first.
      const std::size_t i = rounds.made() % 2 == 0 ? turn : works.size() - 1 - turn;
      const double seconds = seconds_of([&] {
        for (int n = 0; n < repetitions[i]; ++n) works[i]();
      });
      const Calibration after = calibrate();
      samples[i].seconds.push_back(seconds / repetitions[i]);
      samples[i].peaks.push_back((before.rate + after.rate) / 2);
      undisturbed = undisturbed && after.undisturbed;
      before = after;
    }
    rounds.add(undisturbed);
  }
  for (Samples& one : samples) keep_counted(rounds, one);
  return samples;
}

std::vector<Samples> measure(int rounds, std::span<const std::function<void()>> works) {
  Rounds all(rounds, rounds);
  return measure(
      all, [] { return Calibration{.rate = 1}; }, works);
}

Streams::Streams(const kernels::Context& context, std::size_t elements)
    : threads_(context.threads),
      loops_(kernels::stream_loops(kernels::CpuFeatures::detect())),
      elements_(align_up(elements, kStreamChunk)),
      halves_(elements_ * sizeof(bfloat16)) {
  for (Buffer& array : arrays_) array = Buffer(elements_ * sizeof(float));
  // Written once: pages that were never written are all the same page of zeros.
  rate(0, [&](std::size_t first, std::size_t count) {
    for (Buffer& array : arrays_) {
      std::fill_n(array.as<float>().data() + first, count, 1.0f);
    }
    std::fill_n(halves_.as<bfloat16>().data() + first, count, bfloat16{});
  });
}

double Streams::rate(double bytes, FunctionRef<void(std::size_t first, std::size_t count)> pass) {
  return bytes / seconds_of([&] {
           threads_.parallel_for(elements_ / kStreamChunk, [&](std::size_t chunk, int) {
             pass(chunk * kStreamChunk, kStreamChunk);
           });
         });
}

double Streams::read() {
  return rate(4.0 * sizeof(float) * static_cast<double>(elements_),
              [&](std::size_t first, std::size_t count) {
                for (Buffer& array : arrays_) {
                  loops_.read(count, array.as<float>().data() + first);
                }
              });
}

double Streams::copy() {
  return rate(4.0 * sizeof(float) * static_cast<double>(elements_),
              [&](std::size_t first, std::size_t count) {
                for (const int from : {0, 2}) {
                  loops_.copy(count, arrays_[from].as<float>().data() + first,
                              arrays_[from + 1].as<float>().data() + first);
                }
              });
}

double Streams::update(bool with_copy) {
  return rate((with_copy ? 30.0 : 28.0) * static_cast<double>(elements_),
              [&](std::size_t first, std::size_t count) {
                const auto at = [&](int i) { return arrays_[i].as<float>().data() + first; };
                loops_.update(count, at(0), at(1), at(2), at(3),
                              with_copy ? halves_.as<bfloat16>().data() + first : nullptr);
              });
}

}  // namespace tandem::apps::bench
