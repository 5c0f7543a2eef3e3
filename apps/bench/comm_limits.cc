#include "apps/bench/comm_limits.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "apps/bench/comm_ranks.h"
#include "apps/bench/measure.h"
#include "tandem/kernels/combine.h"

namespace tandem::apps::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kPiece = 16384;  // f32: 64 KiB
constexpr std::uint32_t kDepth = 4;

struct alignas(64) Counter {
  std::atomic<std::uint32_t> value{0};
};

void reach(const Counter& counter, std::uint32_t value) {
  while (static_cast<std::int32_t>(counter.value.load(std::memory_order_acquire) - value) < 0) {
  }
}

// The shared part of one measurement.
struct Stage {
  explicit Stage(int threads, std::size_t count, bool huge) : ranks(threads), elements(count) {
    for (int i = 0; i < threads; ++i) {
      buffers.push_back(std::make_unique<Pages>(count * sizeof(float) + 64, huge));
      rings.push_back(std::make_unique<Pages>(
          kDepth * static_cast<std::size_t>(threads) * kPiece * sizeof(float), huge));
    }
    starts = std::vector<Counter>(static_cast<std::size_t>(threads));
    staged = std::vector<Counter>(static_cast<std::size_t>(threads));
    reduced = std::vector<Counter>(static_cast<std::size_t>(threads));
    consumed = std::vector<Counter>(static_cast<std::size_t>(threads));
    sum = kernels::select_combine(kernels::CpuFeatures::detect())
              .of(kernels::Element::kFloat32, kernels::Combine::kSum);
  }
  float* buffer(int i) const {
    return reinterpret_cast<float*>(buffers[static_cast<std::size_t>(i)]->data());
  }
  // Piece for (or, own: result of) `reader` in the ring of `owner`.
  float* cell(int owner, std::uint32_t band, int reader) const {
    return reinterpret_cast<float*>(rings[static_cast<std::size_t>(owner)]->data()) +
           ((band % kDepth) * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(reader)) *
               kPiece;
  }
  std::size_t cut(int i) const {
    return elements / 16 * static_cast<std::size_t>(i) / static_cast<std::size_t>(ranks) * 16 +
           (i == ranks ? elements % 16 : 0);
  }
  // All threads leave at about the same time.
  void line_up(int me, std::uint32_t round) {
    starts[static_cast<std::size_t>(me)].value.store(round, std::memory_order_seq_cst);
    for (const Counter& one : starts) reach(one, round);
  }

  int ranks;
  std::size_t elements;
  std::vector<std::unique_ptr<Pages>> buffers;
  std::vector<std::unique_ptr<Pages>> rings;
  std::vector<Counter> starts, staged, reduced, consumed;
  kernels::CombineKernels::Pair sum;
};

void direct(Stage& stage, int me, std::uint32_t) {
  constexpr std::size_t kBlock =
      1024;  // the sum stays in the L1 cache until all copies are written
  const std::size_t end = stage.cut(me + 1);
  for (std::size_t i = stage.cut(me); i < end; i += kBlock) {
    const std::size_t length = std::min(kBlock, end - i);
    for (int other = 1; other < stage.ranks; ++other) {
      stage.sum(length, stage.buffer(0) + i, stage.buffer(other) + i, stage.buffer(0) + i);
    }
    for (int other = 1; other < stage.ranks; ++other) {
      std::memcpy(stage.buffer(other) + i, stage.buffer(0) + i, length * sizeof(float));
    }
  }
}

void staged(Stage& stage, int me, std::uint32_t base) {
  const auto own = static_cast<std::size_t>(me);
  std::size_t longest = 0;
  for (int i = 0; i < stage.ranks; ++i)
    longest = std::max(longest, stage.cut(i + 1) - stage.cut(i));
  const auto bands = static_cast<std::uint32_t>((longest + kPiece - 1) / kPiece);
  const auto piece = [&](int slice, std::uint32_t band) {
    const std::size_t begin = std::min(stage.cut(slice + 1), stage.cut(slice) + band * kPiece);
    return std::pair(begin, std::min(kPiece, stage.cut(slice + 1) - begin));
  };
  const auto for_others = [&](auto visit) {
    for (int other = 0; other < stage.ranks; ++other) {
      if (other != me) visit(other);
    }
  };
  for (std::uint32_t step = 0; step < bands + 2; ++step) {
    if (step < bands) {
      for_others([&](int other) {
        reach(stage.consumed[static_cast<std::size_t>(other)], base + step + 1 - kDepth);
        const auto [begin, length] = piece(other, step);
        std::memcpy(stage.cell(me, base + step, other), stage.buffer(me) + begin,
                    length * sizeof(float));
      });
      stage.staged[own].value.store(base + step + 1, std::memory_order_release);
    }
    if (step >= 1 && step - 1 < bands) {
      const std::uint32_t band = step - 1;
      const auto [begin, length] = piece(me, band);
      float* result = stage.buffer(me) + begin;
      for_others([&, length = length](int other) {
        reach(stage.staged[static_cast<std::size_t>(other)], base + band + 1);
        stage.sum(length, result, stage.cell(other, base + band, me), result);
      });
      std::memcpy(stage.cell(me, base + band, me), result, length * sizeof(float));
      stage.reduced[own].value.store(base + band + 1, std::memory_order_release);
    }
    if (step >= 2) {
      const std::uint32_t band = step - 2;
      for_others([&](int other) {
        reach(stage.reduced[static_cast<std::size_t>(other)], base + band + 1);
        const auto [begin, length] = piece(other, band);
        std::memcpy(stage.buffer(me) + begin, stage.cell(other, base + band, other),
                    length * sizeof(float));
      });
      stage.consumed[own].value.store(base + band + 1, std::memory_order_release);
    }
  }
}

double median_seconds(Stage& stage, const std::vector<int>& cores, int rounds,
                      const std::function<void(Stage&, int, std::uint32_t)>& work,
                      std::uint32_t bands) {
  std::vector<std::vector<double>> seconds(static_cast<std::size_t>(stage.ranks));
  std::vector<std::thread> threads;
  for (Counter& one : stage.starts) one.value.store(0);
  for (int me = 0; me < stage.ranks; ++me) {
    threads.emplace_back([&, me] {
      pin_to_core(cores, me);
      for (int round = 0; round < rounds + 1; ++round) {
        stage.line_up(me, static_cast<std::uint32_t>(2 * round + 1));
        const auto start = Clock::now();
        work(stage, me, static_cast<std::uint32_t>(round) * bands);
        stage.line_up(me, static_cast<std::uint32_t>(2 * round + 2));  // all have their result
        const std::chrono::duration<double> taken = Clock::now() - start;
        if (round > 0) seconds[static_cast<std::size_t>(me)].push_back(taken.count());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<double> slowest = seconds[0];
  for (const auto& of_one : seconds) {
    for (std::size_t i = 0; i < slowest.size(); ++i) slowest[i] = std::max(slowest[i], of_one[i]);
  }
  return statistics(std::move(slowest)).median;
}

}  // namespace

CommLimits measure_comm_limits(int threads, const std::vector<int>& cores, std::size_t count,
                               int rounds, bool huge_pages) {
  Stage stage(threads, count, huge_pages);
  std::size_t longest = 0;
  for (int i = 0; i < threads; ++i) longest = std::max(longest, stage.cut(i + 1) - stage.cut(i));
  CommLimits limits;
  limits.direct = median_seconds(stage, cores, rounds, direct, 0);
  limits.staged = median_seconds(stage, cores, rounds, staged,
                                 static_cast<std::uint32_t>((longest + kPiece - 1) / kPiece));
  return limits;
}

}  // namespace tandem::apps::bench
