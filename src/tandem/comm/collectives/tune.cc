// Measures at the start the sizes at which the table of algorithms changes (algorithms/tuning.h).
#include <algorithm>
#include <optional>
#include <vector>

#include "tandem/comm/algorithms/slot_bytes.h"
#include "tandem/comm/algorithms/tuning.h"
#include "tandem/comm/collectives/communicator_state.h"
#include "tandem/core/error.h"

namespace tandem::comm {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kNodeSizes[] = {2048, 4096, 8192, 16384};
constexpr int kNodeRepetitions = 25;
constexpr std::size_t kNetworkSizes[] = {1024, 4096, 8192, 16384, 65536, 262144};
constexpr int kNetworkRepetitions = 5;

double tuning_seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// One set of sizes, measured in the same steps on all participating ranks. `run(few, bytes)`
// performs the operation with one of the two algorithms; `agree(value)` returns the first rank's
// value on all ranks.
struct Series {
  std::span<const std::size_t> sizes;
  int repetitions;
  FunctionRef<void(bool few, std::size_t bytes)> run;
  FunctionRef<std::int64_t(std::int64_t value)> agree;

  // Empty: the time was over before two sizes were measured.
  std::optional<std::size_t> measure(std::size_t otherwise, double budget) const {
    const Clock::time_point start = Clock::now();
    std::vector<Measured> measured;
    for (const std::size_t bytes : sizes) {
      std::vector<double> seconds[2];
      for (int i = 0; i <= repetitions; ++i) {
        for (const bool few : {true, false}) {
          const Clock::time_point begin = Clock::now();
          run(few, bytes);
          if (i > 0)
            seconds[few ? 0 : 1].push_back(tuning_seconds_since(begin));  // the first run warms up
        }
      }
      measured.push_back({bytes, median(seconds[0]), median(seconds[1])});
      // Sizes grow: the next one takes at least as long as this one.
      const double used = tuning_seconds_since(start);
      const double last = used / static_cast<double>(measured.size());
      if (agree(used + last < budget ? 1 : 0) == 0) break;
    }
    const auto limit = static_cast<std::int64_t>(choose_limit(measured, otherwise));
    const std::int64_t agreed = agree(measured.size() < 2 ? -1 : limit);
    if (agreed < 0) return std::nullopt;
    return static_cast<std::size_t>(agreed);
  }
};

// Few bytes through slots, many through the ring, among the ranks of a node.
std::optional<std::size_t> measure_node(Communicator::State& state, double budget) {
  const auto describe = [] { return std::string("measuring at the start"); };
  const auto drive = [&](CommTask& task) { state.drive(task, describe, state.options.timeout); };
  std::vector<float> data(kSlotBytes / sizeof(float));
  std::vector<float> sums(data.size());
  std::vector<Subtree> leaves;
  for (int i = 0; i < state.channel->size(); ++i) leaves.push_back({i, i + 1, i});
  const SumProgram program = sum_program(0, state.channel->size(), leaves);
  NodeReduction reduction;
  reduction.how = {DataType::kFloat32, ReduceOp::kSum};
  reduction.programs = std::span(&program, 1);
  const NodeContext context{*state.channel, *state.kernels, 0};
  const auto run = [&](bool few, std::size_t bytes) {
    const Call call{Operation::kAllReduce,
                    DataType::kFloat32,
                    ReduceOp::kSum,
                    0,
                    bytes / sizeof(float),
                    reinterpret_cast<const std::byte*>(data.data()),
                    reinterpret_cast<std::byte*>(sums.data())};
    if (few) {
      SlotTask task(context, call, reduction);
      drive(task);
    } else {
      LargeTask task(context, call, reduction);
      drive(task);
    }
  };
  const auto agree = [&](std::int64_t value) {
    auto* const bytes = reinterpret_cast<std::byte*>(&value);
    SlotTask task(context,
                  {Operation::kBroadcast, DataType::kInt64, ReduceOp::kNone, 0, 1, bytes, bytes},
                  NodeReduction{});
    drive(task);
    return value;
  };
  return Series{kNodeSizes, kNodeRepetitions, run, agree}.measure(state.limits.slot_bytes, budget);
}

// Few rounds against few bytes, between the nodes.
std::optional<std::size_t> measure_network(Communicator& communicator, Limits& limits,
                                           double budget) {
  const std::size_t otherwise = limits.short_bytes;
  std::vector<float> data(*std::rbegin(kNetworkSizes) / sizeof(float));
  const auto run = [&](bool few, std::size_t bytes) {
    limits.short_bytes = few ? SIZE_MAX : 0;
    communicator.all_reduce(std::span(data).first(bytes / sizeof(float)), ReduceOp::kMax);
  };
  const auto agree = [&](std::int64_t value) {
    communicator.broadcast(std::span(&value, 1), 0);
    return value;
  };
  const auto limit =
      Series{kNetworkSizes, kNetworkRepetitions, run, agree}.measure(otherwise, budget);
  limits.short_bytes = limit.value_or(otherwise);
  return limit;
}

}  // namespace

void Communicator::State::tune(Communicator& communicator) {
  // A rank without a core of its own would measure the scheduler.
  const std::int64_t asked = options.tuning.count();
  std::int64_t facts[] = {may_spin ? asked : 0, asked, -options.worker.count};
  communicator.all_reduce(std::span<std::int64_t>(facts), ReduceOp::kMin);
  worker_asked = facts[2] < 0;
  if (facts[1] == 0) {
    tuning = "fixed; measuring them at the start is off (TANDEM_COMM_TUNING)";
    return;
  }
  if (facts[0] == 0) {
    tuning = "fixed; a node has more ranks than cores, so measuring would mean nothing";
    return;
  }
  const Clock::time_point start = Clock::now();
  const bool network = nodes.size() > 1 && aligned;
  const double budget = static_cast<double>(facts[0]) * 1e-3 / (network ? 2 : 1);
  std::string measured;
  if (channel) {
    if (const auto limit = measure_node(*this, budget)) {
      limits.slot_bytes = *limit;
      measured = "inside the node";
    }
  }
  if (network && measure_network(communicator, limits, budget))
    measured += measured.empty() ? "between nodes" : " and between nodes";
  tuning = measured.empty() ? fmt::format("fixed; measuring was given up after {:.1f} ms",
                                          tuning_seconds_since(start) * 1e3)
                            : fmt::format("measured {} at the start in {:.1f} ms", measured,
                                          tuning_seconds_since(start) * 1e3);
}

}  // namespace tandem::comm
