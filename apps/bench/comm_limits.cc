#include "apps/bench/comm_limits.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "apps/bench/comm_ranks.h"
#include "apps/bench/measure.h"
#include "tandem/comm/node/copy_bytes.h"
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

// The shape of an operation: `elements` are cut into slices, or are one block of several.
struct Shape {
  std::size_t elements = 0;
  std::size_t blocks = 1;  // in each thread's buffer
  std::size_t inputs = 0;  // blocks that each thread gives out of a buffer of its own
};

// The shared part of one measurement.
struct Stage {
  Stage(int threads, const Shape& shape, bool huge) : ranks(threads), elements(shape.elements) {
    const std::size_t block_bytes = elements * sizeof(float);
    for (int i = 0; i < threads; ++i) {
      buffers.push_back(std::make_unique<Pages>(shape.blocks * block_bytes + 64, huge));
      inputs.push_back(std::make_unique<Pages>(shape.inputs * block_bytes + 64, huge));
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
  float* buffer(int i) const { return floats(buffers, i); }
  float* block(int owner, int i) const {
    return buffer(owner) + static_cast<std::size_t>(i) * elements;
  }
  float* input(int owner, int i = 0) const {
    return floats(inputs, owner) + static_cast<std::size_t>(i) * elements;
  }
  // Piece for (or, own: for all) `reader` in the ring of `owner`.
  float* cell(int owner, std::uint32_t band, int reader) const {
    return floats(rings, owner) +
           ((band % kDepth) * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(reader)) *
               kPiece;
  }
  std::size_t cut(int i) const {
    return elements / 16 * static_cast<std::size_t>(i) / static_cast<std::size_t>(ranks) * 16 +
           (i == ranks ? elements % 16 : 0);
  }
  std::size_t longest_slice() const {
    std::size_t longest = 0;
    for (int i = 0; i < ranks; ++i) longest = std::max(longest, cut(i + 1) - cut(i));
    return longest;
  }
  template <class Visit>
  void for_others(int me, Visit visit) const {
    for (int other = 0; other < ranks; ++other) {
      if (other != me) visit(other);
    }
  }
  // All threads leave at about the same time.
  void line_up(int me, std::uint32_t round) {
    starts[static_cast<std::size_t>(me)].value.store(round, std::memory_order_seq_cst);
    for (const Counter& one : starts) reach(one, round);
  }
  void wait_for_room(int reader, std::uint32_t band) const {
    reach(consumed[static_cast<std::size_t>(reader)], band + 1 - kDepth);
  }

  int ranks;
  std::size_t elements;
  std::vector<std::unique_ptr<Pages>> buffers;
  std::vector<std::unique_ptr<Pages>> inputs;
  std::vector<std::unique_ptr<Pages>> rings;
  std::vector<Counter> starts, staged, reduced, consumed;
  kernels::CombineKernels::Pair sum;

 private:
  static float* floats(const std::vector<std::unique_ptr<Pages>>& pages, int i) {
    return reinterpret_cast<float*>(pages[static_cast<std::size_t>(i)]->data());
  }
};

std::uint32_t pieces_of(std::size_t elements) {
  return static_cast<std::uint32_t>((elements + kPiece - 1) / kPiece);
}

void copy(float* to, const float* from, std::size_t elements) {
  comm::copy_bytes(reinterpret_cast<std::byte*>(to), reinterpret_cast<const std::byte*>(from),
                   elements * sizeof(float));
}

void sum_directly(Stage& stage, int me, std::uint32_t) {
  // The sum stays in the L1 cache until all copies are written.
  constexpr std::size_t kBlock = 1024;
  const std::size_t end = stage.cut(me + 1);
  for (std::size_t i = stage.cut(me); i < end; i += kBlock) {
    const std::size_t length = std::min(kBlock, end - i);
    for (int other = 1; other < stage.ranks; ++other) {
      stage.sum(length, stage.buffer(0) + i, stage.buffer(other) + i, stage.buffer(0) + i);
    }
    for (int other = 1; other < stage.ranks; ++other) {
      copy(stage.buffer(other) + i, stage.buffer(0) + i, length);
    }
  }
}

void broadcast_directly(Stage& stage, int me, std::uint32_t) {
  const std::size_t begin = stage.cut(me);
  for (int other = 1; other < stage.ranks; ++other)
    copy(stage.buffer(other) + begin, stage.buffer(0) + begin, stage.cut(me + 1) - begin);
}

void gather_directly(Stage& stage, int me, std::uint32_t) {
  for (int i = 0; i < stage.ranks; ++i) copy(stage.block(me, i), stage.input(i), stage.elements);
}

void exchange_directly(Stage& stage, int me, std::uint32_t) {
  for (int i = 0; i < stage.ranks; ++i)
    copy(stage.block(me, i), stage.input(i, me), stage.elements);
}

void sum_staged(Stage& stage, int me, std::uint32_t base) {
  const auto own = static_cast<std::size_t>(me);
  const std::uint32_t bands = pieces_of(stage.longest_slice());
  const auto piece = [&](int slice, std::uint32_t band) {
    const std::size_t begin = std::min(stage.cut(slice + 1), stage.cut(slice) + band * kPiece);
    return std::pair(begin, std::min(kPiece, stage.cut(slice + 1) - begin));
  };
  for (std::uint32_t step = 0; step < bands + 2; ++step) {
    if (step < bands) {
      stage.for_others(me, [&](int other) {
        stage.wait_for_room(other, base + step);
        const auto [begin, length] = piece(other, step);
        copy(stage.cell(me, base + step, other), stage.buffer(me) + begin, length);
      });
      stage.staged[own].value.store(base + step + 1, std::memory_order_release);
    }
    if (step >= 1 && step - 1 < bands) {
      const std::uint32_t band = step - 1;
      const auto [begin, length] = piece(me, band);
      float* result = stage.buffer(me) + begin;
      stage.for_others(me, [&, length = length](int other) {
        reach(stage.staged[static_cast<std::size_t>(other)], base + band + 1);
        stage.sum(length, result, stage.cell(other, base + band, me), result);
      });
      copy(stage.cell(me, base + band, me), result, length);
      stage.reduced[own].value.store(base + band + 1, std::memory_order_release);
    }
    if (step >= 2) {
      const std::uint32_t band = step - 2;
      stage.for_others(me, [&](int other) {
        reach(stage.reduced[static_cast<std::size_t>(other)], base + band + 1);
        const auto [begin, length] = piece(other, band);
        copy(stage.buffer(me) + begin, stage.cell(other, base + band, other), length);
      });
      stage.consumed[own].value.store(base + band + 1, std::memory_order_release);
    }
  }
}

// Blocks in pieces through the rings: step by step a thread gives its part of a piece, then takes
// the others' parts of the piece before. The first `givers` threads give. The other threads wait
// for no room, and no thread waits for them.
template <class Give, class Take>
void in_pieces(Stage& stage, int me, std::uint32_t base, int givers, Give give, Take take) {
  const auto own = static_cast<std::size_t>(me);
  const std::uint32_t bands = pieces_of(stage.elements);
  const auto piece = [&](std::uint32_t band) {
    return std::pair(band * kPiece, std::min(kPiece, stage.elements - band * kPiece));
  };
  for (std::uint32_t step = 0; step < bands + 1; ++step) {
    if (step < bands && me < givers) {
      stage.for_others(me, [&](int other) { stage.wait_for_room(other, base + step); });
      const auto [begin, length] = piece(step);
      give(base + step, begin, length);
      stage.staged[own].value.store(base + step + 1, std::memory_order_release);
    }
    if (step >= 1) {
      const auto [begin, length] = piece(step - 1);
      stage.for_others(me, [&, begin = begin, length = length](int other) {
        if (other >= givers) return;
        reach(stage.staged[static_cast<std::size_t>(other)], base + step);
        take(other, base + step - 1, begin, length);
      });
      stage.consumed[own].value.store(base + step, std::memory_order_release);
    }
  }
}

// The first thread gives, the others take.
void broadcast_staged(Stage& stage, int me, std::uint32_t base) {
  in_pieces(
      stage, me, base, /*givers=*/1,
      [&](std::uint32_t band, std::size_t begin, std::size_t length) {
        copy(stage.cell(me, band, me), stage.buffer(me) + begin, length);
      },
      [&](int other, std::uint32_t band, std::size_t begin, std::size_t length) {
        copy(stage.buffer(me) + begin, stage.cell(other, band, other), length);
      });
}

// Every thread gives one block to all.
void gather_staged(Stage& stage, int me, std::uint32_t base) {
  in_pieces(
      stage, me, base, stage.ranks,
      [&](std::uint32_t band, std::size_t begin, std::size_t length) {
        const float* from = stage.input(me) + begin;
        copy(stage.cell(me, band, me), from, length);
        copy(stage.block(me, me) + begin, from, length);
      },
      [&](int other, std::uint32_t band, std::size_t begin, std::size_t length) {
        copy(stage.block(me, other) + begin, stage.cell(other, band, other), length);
      });
}

// Every thread gives a block to each, itself included.
void exchange_staged(Stage& stage, int me, std::uint32_t base) {
  in_pieces(
      stage, me, base, stage.ranks,
      [&](std::uint32_t band, std::size_t begin, std::size_t length) {
        stage.for_others(me, [&](int other) {
          copy(stage.cell(me, band, other), stage.input(me, other) + begin, length);
        });
        copy(stage.block(me, me) + begin, stage.input(me, me) + begin, length);
      },
      [&](int other, std::uint32_t band, std::size_t begin, std::size_t length) {
        copy(stage.block(me, other) + begin, stage.cell(other, band, me), length);
      });
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

bool has_comm_limits(comm::Operation operation) {
  return operation == comm::Operation::kAllReduce || operation == comm::Operation::kBroadcast ||
         operation == comm::Operation::kAllGather || operation == comm::Operation::kAllToAll;
}

CommLimits measure_comm_limits(comm::Operation operation, int threads,
                               const std::vector<int>& cores, std::size_t count, int rounds,
                               bool huge_pages) {
  const auto all = static_cast<std::size_t>(threads);
  const auto measure = [&](const Shape& shape, auto direct, auto staged) {
    Stage stage(threads, shape, huge_pages);
    const bool sliced = operation == comm::Operation::kAllReduce;
    const std::uint32_t bands = pieces_of(sliced ? stage.longest_slice() : count);
    return CommLimits{median_seconds(stage, cores, rounds, direct, 0),
                      median_seconds(stage, cores, rounds, staged, bands)};
  };
  switch (operation) {
    case comm::Operation::kAllToAll:
      return measure({count, all, all}, exchange_directly, exchange_staged);
    case comm::Operation::kAllGather:
      return measure({count, all, 1}, gather_directly, gather_staged);
    case comm::Operation::kBroadcast:
      return measure({.elements = count}, broadcast_directly, broadcast_staged);
    default:
      return measure({.elements = count}, sum_directly, sum_staged);
  }
}

}  // namespace tandem::apps::bench
