// A long run of mixed operations, each verified, after which memory and descriptors are unchanged.
//
//   comm_soak_test [--operations=N] [--ranks=N]
//
// The suite runs a short one; docs/results/archive.md has the figures of 1,000,000.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <random>

#include "support/sanitizers.h"
#include "tandem/comm/collectives/test_ranks.h"
#include "tandem/comm/memory.h"
#include "tandem/core/bfloat16.h"
#include "tandem/core/float16.h"
#include "tandem/core/memory_usage.h"

namespace tandem::comm {
namespace {

struct Settings {
  std::uint64_t operations = 6000;
  int ranks = 0;  // 0: 2 and 4
};

Settings& settings() {
  static Settings value;
  return value;
}

constexpr std::size_t kMaxCount = 300000;  // elements of a buffer, over all ranks

void require(bool condition, const std::string& what) {
  if (!condition) throw DataError(what);
}

// The same operations in the same order on all ranks, because all use the same generator.
class Soak {
 public:
  explicit Soak(Communicator& comm) : comm_(comm) {
    for (auto* buffer : {&in_, &out_}) buffer->resize(kMaxCount * sizeof(double));
  }

  std::uint64_t done() const { return done_; }

  void step() {
    switch (pick(7)) {
      case 0:
        return step_of<float>();
      case 1:
        return step_of<double>();
      case 2:
        return step_of<std::int32_t>();
      case 3:
        return step_of<std::int64_t>();
      case 4:
        return step_of<std::uint8_t>();
      case 5:
        return step_of<bfloat16>();
      default:
        return step_of<float16>();
    }
  }

 private:
  std::size_t pick(std::size_t below) { return random_() % below; }

  // Most are small, because most errors are in the protocol and not in the bytes.
  std::size_t pick_count() {
    const std::size_t kind = pick(1000);
    const std::size_t limit = kind < 700 ? 65 : kind < 950 ? 4100 : kind < 995 ? 40000 : kMaxCount;
    return pick(limit) / static_cast<std::size_t>(comm_.size());
  }

  ReduceOp pick_op() {
    constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax,
                                 ReduceOp::kProduct};
    return kOps[pick(std::size(kOps))];
  }

  // 1 to 4: sums and products of up to four ranks are exact in every type.
  int value(int rank, std::size_t i) const {
    return 1 + static_cast<int>((i + 3 * static_cast<std::size_t>(rank) + done_) % 4);
  }

  int combined(ReduceOp op, std::size_t i) const {
    int result = value(0, i);
    for (int r = 1; r < comm_.size(); ++r) {
      const int other = value(r, i);
      result = op == ReduceOp::kSum   ? result + other
               : op == ReduceOp::kMin ? std::min(result, other)
               : op == ReduceOp::kMax ? std::max(result, other)
                                      : result * other;
    }
    return result;
  }

  template <class T>
  static T as(int value) {
    if constexpr (std::is_same_v<T, bfloat16>) {
      return to_bfloat16(static_cast<float>(value));
    } else if constexpr (std::is_same_v<T, float16>) {
      return to_float16(static_cast<float>(value));
    } else {
      return static_cast<T>(value);
    }
  }

  template <class T>
  std::span<T> in(std::size_t count) {
    return {reinterpret_cast<T*>(in_.data()), count};
  }
  template <class T>
  std::span<T> out(std::size_t count) {
    return {reinterpret_cast<T*>(out_.data()), count};
  }

  template <class T>
  void fill(std::span<T> data) {
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = as<T>(value(comm_.rank(), i));
  }

  template <class T, class Expected>
  void check(std::span<const T> data, const char* operation, Expected expected) {
    for (std::size_t i = 0; i < data.size(); ++i) {
      const T wanted = as<T>(expected(i));
      require(std::memcmp(&data[i], &wanted, sizeof wanted) == 0,
              fmt::format("operation {} ({} of {}): element {}", done_, operation, data.size(), i));
    }
  }

  template <class T>
  void step_of() {
    const std::size_t kind = pick(200);
    if (kind == 0) return memory<T>();
    if (kind == 1) return part<T>();
    switch (kind % 11) {
      case 0:
        return comm_.barrier(), void(++done_);
      case 1:
        return broadcast<T>();
      case 2:
        return reduce<T>();
      case 3:
        return reduce_scatter<T>();
      case 4:
        return all_gather<T>(false);
      case 5:
        return all_gather<T>(true);
      case 6:
        return scatter<T>();
      case 7:
        return all_to_all<T>();
      case 8:
        return ring<T>();
      case 9:
        return several<T>();
      default:
        return all_reduce<T>();
    }
  }

  template <class T>
  void all_reduce() {
    const std::size_t n = pick_count();
    const ReduceOp op = pick_op();
    const bool in_place = pick(2) == 0;
    fill(in<T>(n));
    const std::span<T> result = in_place ? in<T>(n) : out<T>(n);
    comm_.all_reduce(std::span<const T>(in<T>(n)), result, op);
    check<T>(result, "all_reduce", [&](std::size_t i) { return combined(op, i); });
    ++done_;
  }

  template <class T>
  void reduce() {
    const std::size_t n = pick_count();
    const ReduceOp op = pick_op();
    const int root = static_cast<int>(pick(size()));
    fill(in<T>(n));
    comm_.reduce(std::span<const T>(in<T>(n)), out<T>(n), op, root);
    if (root == comm_.rank())
      check<T>(out<T>(n), "reduce", [&](std::size_t i) { return combined(op, i); });
    ++done_;
  }

  template <class T>
  void reduce_scatter() {
    const std::size_t n = pick_count();
    const ReduceOp op = pick_op();
    const auto first = static_cast<std::size_t>(comm_.rank()) * n;
    fill(in<T>(n * size()));
    comm_.reduce_scatter(std::span<const T>(in<T>(n * size())), out<T>(n), op);
    check<T>(out<T>(n), "reduce_scatter", [&](std::size_t i) { return combined(op, first + i); });
    ++done_;
  }

  template <class T>
  void all_gather(bool to_root) {
    const std::size_t n = pick_count();
    const int root = static_cast<int>(pick(size()));
    fill(in<T>(n));
    if (to_root) {
      comm_.gather(std::span<const T>(in<T>(n)), out<T>(n * size()), root);
    } else {
      comm_.all_gather(std::span<const T>(in<T>(n)), out<T>(n * size()));
    }
    if (!to_root || root == comm_.rank()) {
      check<T>(out<T>(n * size()), to_root ? "gather" : "all_gather",
               [&](std::size_t i) { return value(static_cast<int>(i / n), i % n); });
    }
    ++done_;
  }

  template <class T>
  void broadcast() {
    const std::size_t n = pick_count();
    const int root = static_cast<int>(pick(size()));
    fill(in<T>(n));
    comm_.broadcast(in<T>(n), root);
    check<T>(in<T>(n), "broadcast", [&](std::size_t i) { return value(root, i); });
    ++done_;
  }

  template <class T>
  void scatter() {
    const std::size_t n = pick_count();
    const int root = static_cast<int>(pick(size()));
    const auto first = static_cast<std::size_t>(comm_.rank()) * n;
    fill(in<T>(n * size()));
    comm_.scatter(std::span<const T>(in<T>(n * size())), out<T>(n), root);
    check<T>(out<T>(n), "scatter", [&](std::size_t i) { return value(root, first + i); });
    ++done_;
  }

  template <class T>
  void all_to_all() {
    const std::size_t n = pick_count();
    const auto first = static_cast<std::size_t>(comm_.rank()) * n;
    fill(in<T>(n * size()));
    comm_.all_to_all(std::span<const T>(in<T>(n * size())), out<T>(n * size()));
    check<T>(out<T>(n * size()), "all_to_all",
             [&](std::size_t i) { return value(static_cast<int>(i / n), first + i % n); });
    ++done_;
  }

  template <class T>
  void ring() {
    const std::size_t n = pick_count();
    const int channel = static_cast<int>(pick(Communicator::kChannels));
    const int next = (comm_.rank() + 1) % comm_.size();
    const int before = (comm_.rank() + comm_.size() - 1) % comm_.size();
    fill(in<T>(n));
    const Request sent = comm_.start_send(std::span<const T>(in<T>(n)), next, channel);
    comm_.receive(out<T>(n), before, channel);
    comm_.wait(sent);
    check<T>(out<T>(n), "send", [&](std::size_t i) { return value(before, i); });
    ++done_;
  }

  // Three operations in progress at once, or as a group.
  template <class T>
  void several() {
    const std::size_t n = pick_count() / 3;
    const bool group = pick(2) == 0;
    fill(in<T>(3 * n));
    std::vector<Request> requests;
    if (group) comm_.group_begin();
    for (std::size_t i = 0; i < 3; ++i)
      requests.push_back(comm_.start_all_reduce(in<T>(3 * n).subspan(i * n, n), ReduceOp::kSum));
    if (group) comm_.group_end();
    for (const Request& request : requests) comm_.wait(request);
    check<T>(in<T>(3 * n), "started all_reduce",
             [&](std::size_t i) { return combined(ReduceOp::kSum, i); });
    done_ += 3;
  }

  template <class T>
  void memory() {
    const std::size_t n = pick_count();
    const CommunicatorMemory memory = mem_alloc(comm_, n * sizeof(T));
    const std::span<T> data = memory.as<T>();
    fill(data);
    comm_.all_reduce(data, ReduceOp::kSum);
    check<T>(data, "all_reduce in place",
             [&](std::size_t i) { return combined(ReduceOp::kSum, i); });
    comm_.barrier();  // the others may still read it
    done_ += 2;
  }

  template <class T>
  void part() {
    const std::size_t n = pick_count();
    const int colors = 1 + static_cast<int>(pick(2));
    const auto part = comm_.split(comm_.rank() % colors, comm_.rank());
    fill(in<T>(n));
    part->all_reduce(in<T>(n), ReduceOp::kMax);
    check<T>(in<T>(n), "all_reduce of a part", [&](std::size_t i) {
      int most = 0;
      for (int r = comm_.rank() % colors; r < comm_.size(); r += colors)
        most = std::max(most, value(r, i));
      return most;
    });
    part->close();
    done_ += 2;
  }

  std::size_t size() const { return static_cast<std::size_t>(comm_.size()); }

  Communicator& comm_;
  std::mt19937_64 random_{20261122};
  std::uint64_t done_ = 0;
  std::vector<std::byte> in_;
  std::vector<std::byte> out_;
};

struct Use {
  std::size_t resident = 0;
  std::size_t descriptors = 0;
};

Use use_of(Communicator& comm) {
  comm.barrier();
  const MemoryUsage memory = memory_usage();
  return {memory.own() + memory.shared, testing::open_descriptors()};
}

// The results of a rank are returned as the message of an exception.
class Report : public Error {
 public:
  using Error::Error;
  int exit_code() const noexcept override { return 0; }
};

// Pages of the shared staging and of the allocator that are touched for the first time; a leak of
// 100 bytes per operation would be ten times as much in a long run.
constexpr std::size_t kSteady = std::size_t{4} << 20;

void soak(Communicator& comm) {
  Soak soak(comm);
  const std::uint64_t total = settings().operations;
  const auto start = std::chrono::steady_clock::now();
  while (soak.done() < total / 10) soak.step();
  const Use early = use_of(comm);
  while (soak.done() < total) soak.step();
  const Use late = use_of(comm);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::string text = fmt::format(
      "{} operations in {:.0f} s; at 10 % {} KiB resident and {} descriptors, at the end {} KiB "
      "and "
      "{}",
      soak.done(), seconds, early.resident / 1024, early.descriptors, late.resident / 1024,
      late.descriptors);
  require(early.descriptors == late.descriptors, text);
  // Sanitizers keep freed memory for a while, and a shadow of all touched memory.
  if (!tandem::testing::kSanitized) require(late.resident <= early.resident + kSteady, text);
  comm.barrier();
  comm.close();
  throw Report(text);
}

void run(int ranks, const testing::OptionsOf& options) {
  const auto ended = testing::run_processes(ranks, soak, options);
  for (std::size_t rank = 0; rank < ended.size(); ++rank) {
    EXPECT_TRUE(ended[rank].exited_with(0)) << "rank " << rank << ": " << ended[rank].output;
    if (settings().operations > Settings().operations)
      std::cout << "rank " << rank << ": " << ended[rank].output << std::endl;
  }
}

TEST(Soak, OneNode) {
  for (const int ranks : {2, 4}) {
    if (settings().ranks == 0 || settings().ranks == ranks) run(ranks, testing::test_options);
  }
}

TEST(Soak, TwoNodes) {
  const auto options = [](int rank) {
    Options result = testing::test_options(rank);
    result.node_id = std::string(1, rank % 2 == 0 ? 'a' : 'b');
    return result;
  };
  for (const int ranks : {2, 4}) {
    if (settings().ranks == 0 || settings().ranks == ranks) run(ranks, options);
  }
}

}  // namespace
}  // namespace tandem::comm

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    unsigned long long value = 0;
    if (std::sscanf(argv[i], "--operations=%llu", &value) == 1) {
      tandem::comm::settings().operations = value;
    } else if (std::sscanf(argv[i], "--ranks=%llu", &value) == 1) {
      tandem::comm::settings().ranks = static_cast<int>(value);
    }
  }
  return RUN_ALL_TESTS();
}
