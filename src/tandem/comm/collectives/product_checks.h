// For tests: checks every operation of a communicator against values computed here, element by
// element, exactly.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "tandem/comm/collectives/test_ranks.h"
#include "tandem/comm/memory.h"

namespace tandem::comm::testing {

// Numbers with exact sums and small products in every type and in any order: a few ones and twos.
template <class T>
T number(double x) {
  if constexpr (std::is_same_v<T, bfloat16>) return to_bfloat16(static_cast<float>(x));
  if constexpr (std::is_same_v<T, float16>) return to_float16(static_cast<float>(x));
  if constexpr (std::is_same_v<T, std::byte>) return static_cast<std::byte>(x);
  if constexpr (std::is_arithmetic_v<T>) return static_cast<T>(x);
}

// Element i of a buffer is pattern[i % kPeriod]. Neither the tested sizes nor the pieces of the
// library (powers of two) are multiples of it.
inline constexpr std::size_t kPeriod = 11;
template <class T>
using Pattern = std::array<T, kPeriod>;

inline double raw_value(int rank, std::size_t i) {
  return static_cast<double>((i * 7 + static_cast<std::size_t>(rank) * 5) % kPeriod);
}

inline double value_for(int rank, std::size_t i, ReduceOp op) {
  const double x = raw_value(rank, i);
  return op == ReduceOp::kProduct ? (x > 7 ? 2.0 : 1.0) : x;
}

template <class T>
Pattern<T> values_of(int rank, ReduceOp op = ReduceOp::kNone) {
  Pattern<T> pattern;
  for (std::size_t i = 0; i < kPeriod; ++i) pattern[i] = number<T>(value_for(rank, i, op));
  return pattern;
}

// The reduction of `size` ranks for element i: exact in f64, then rounded to the type (needed here
// only for averages).
template <class T>
T reduced_value(int size, std::size_t i, ReduceOp op) {
  double result = op == ReduceOp::kProduct ? 1.0 : op == ReduceOp::kMin ? 1e9 : 0.0;
  for (int r = 0; r < size; ++r) {
    const double x = value_for(r, i, op);
    if (op == ReduceOp::kProduct) result *= x;
    if (op == ReduceOp::kMin) result = std::min(result, x);
    if (op == ReduceOp::kMax) result = std::max(result, x);
    if (op == ReduceOp::kSum || op == ReduceOp::kAverage) result += x;
  }
  if (op != ReduceOp::kAverage) return number<T>(result);
  if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<long>(result) / size);
  if constexpr (std::is_same_v<T, double>) return result / size;
  return number<T>(static_cast<double>(static_cast<float>(result) / static_cast<float>(size)));
}

template <class T>
Pattern<T> reduced_values(int size, ReduceOp op) {
  Pattern<T> pattern;
  for (std::size_t i = 0; i < kPeriod; ++i) pattern[i] = reduced_value<T>(size, i, op);
  return pattern;
}

// `data` as elements [first, first + data.size()) of a buffer.
template <class T>
void fill(std::span<T> data, const Pattern<T>& pattern, std::size_t first = 0) {
  std::size_t at = first % kPeriod;
  for (T& x : data) {
    x = pattern[at];
    at = at + 1 == kPeriod ? 0 : at + 1;
  }
}

template <class T>
void require_equal(std::span<const T> found, const Pattern<T>& pattern, std::size_t first,
                   const std::string& what) {
  std::size_t at = first % kPeriod;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (std::memcmp(&found[i], &pattern[at], sizeof(T)) != 0)
      throw std::runtime_error(fmt::format("{}: element {} of {}", what, i, found.size()));
    at = at + 1 == kPeriod ? 0 : at + 1;
  }
}

// Buffers of one rank: from the heap, or from the communicator.
template <class T>
class Buffers {
 public:
  Buffers(Communicator& comm, bool shared, std::size_t count) {
    if (shared) {
      memory_ = mem_alloc(comm, 2 * (count * sizeof(T) + 64));
      in = memory_.as<T>().first(count);
      const std::size_t offset = (count * sizeof(T) + 63) / 64 * 64 / sizeof(T);
      out = memory_.as<T>().subspan(offset, count);
    } else {
      heap_.resize(2 * count);
      in = std::span(heap_).first(count);
      out = std::span(heap_).last(count);
    }
  }
  std::span<T> in, out;

 private:
  CommunicatorMemory memory_;
  std::vector<T> heap_;
};

// All roots if that is cheap or useful, else one that differs from case to case.
template <class T>
std::vector<int> roots_for(int size, std::size_t count, std::size_t which) {
  if (count > 17 && !(count == 4096 && std::is_same_v<T, float>))
    return {static_cast<int>(which % static_cast<std::size_t>(size))};
  std::vector<int> roots;
  for (int root = 0; root < size; ++root) roots.push_back(root);
  return roots;
}

template <class T>
std::string name_of_case(std::string_view operation, std::size_t count) {
  return fmt::format("{} of {} {}", operation, count, name_of(DataTypeOf<T>::kValue));
}

// all_reduce and reduce, out of place and in place.
template <class T>
void check_reductions(Communicator& comm, bool shared, std::size_t count, ReduceOp op) {
  const Pattern<T> own = values_of<T>(comm.rank(), op);
  const Pattern<T> sums = reduced_values<T>(comm.size(), op);
  const auto what = [&](const char* operation) {
    return name_of_case<T>(fmt::format("{} ({})", operation, name_of(op)), count);
  };
  Buffers<T> buffers(comm, shared, count);
  fill(buffers.in, own);
  comm.all_reduce(std::span<const T>(buffers.in), buffers.out, op);
  require_equal<T>(buffers.out, sums, 0, what("all_reduce"));
  for (const int root : roots_for<T>(comm.size(), count, count + static_cast<std::size_t>(op))) {
    std::fill(buffers.out.begin(), buffers.out.end(), T{});
    comm.reduce(std::span<const T>(buffers.in), buffers.out, op, root);
    if (comm.rank() == root) require_equal<T>(buffers.out, sums, 0, what("reduce"));
    fill(buffers.out, own);
    comm.reduce(std::span<const T>(buffers.out), buffers.out, op, root);
    require_equal<T>(buffers.out, comm.rank() == root ? sums : own, 0, what("reduce in place"));
  }
  comm.all_reduce(buffers.in, op);
  require_equal<T>(buffers.in, sums, 0, what("all_reduce in place"));
}

// Out of place and in place; `count` elements for each rank.
template <class T>
void check_reduce_scatter(Communicator& comm, bool shared, std::size_t count, ReduceOp op) {
  const std::size_t first = static_cast<std::size_t>(comm.rank()) * count;
  const Pattern<T> sums = reduced_values<T>(comm.size(), op);
  const std::string what = name_of_case<T>(fmt::format("reduce_scatter ({})", name_of(op)), count);
  Buffers<T> buffers(comm, shared, count * static_cast<std::size_t>(comm.size()));
  fill(buffers.in, values_of<T>(comm.rank(), op));
  comm.reduce_scatter(std::span<const T>(buffers.in), buffers.out.first(count), op);
  require_equal<T>(buffers.out.first(count), sums, first, what);
  const auto own = buffers.in.subspan(first, count);
  comm.reduce_scatter(std::span<const T>(buffers.in), own, op);
  require_equal<T>(own, sums, first, what + " in place");
}

// Every operation that only moves data, for one root after the other.
template <class T>
class MoveChecks {
 public:
  MoveChecks(Communicator& comm, bool shared, std::size_t count)
      : comm_(comm),
        count_(count),
        ranks_(static_cast<std::size_t>(comm.size())),
        buffers_(comm, shared, count * ranks_) {}

  void run() {
    all_gather();
    const auto roots = roots_for<T>(comm_.size(), count_, count_);
    for (const int root : roots) broadcast(root);
    for (const int root : roots) gather(root);
    for (const int root : roots) scatter(root);
    all_to_all();
    comm_.barrier();
  }

 private:
  std::span<T> in() { return buffers_.in; }
  std::span<T> out() { return buffers_.out; }
  std::span<T> block(std::span<T> all, int rank) {
    return all.subspan(static_cast<std::size_t>(rank) * count_, count_);
  }
  // Other ranks may still read memory of the communicator.
  void clear_out() {
    comm_.barrier();
    std::fill(out().begin(), out().end(), T{});
    comm_.barrier();
  }
  void require_gathered(std::string_view operation) {
    for (int r = 0; r < comm_.size(); ++r)
      require_equal<T>(block(out(), r), values_of<T>(r), 0, name_of_case<T>(operation, count_));
  }
  // Block b of rank r: the values of rank r · size + b.
  Pattern<T> between(int from, int to) { return values_of<T>(from * comm_.size() + to); }
  void fill_blocks() {
    for (int to = 0; to < comm_.size(); ++to) fill(block(in(), to), between(comm_.rank(), to));
  }

  void broadcast(int root) {
    fill(in().first(count_), values_of<T>(comm_.rank()));
    comm_.broadcast(in().first(count_), root);
    require_equal<T>(in().first(count_), values_of<T>(root), 0,
                     name_of_case<T>("broadcast", count_));
  }
  void all_gather() {
    fill(in().first(count_), values_of<T>(comm_.rank()));
    clear_out();
    comm_.all_gather(std::span<const T>(in().first(count_)), out());
    require_gathered("all_gather");
    clear_out();
    fill(block(out(), comm_.rank()), values_of<T>(comm_.rank()));
    comm_.all_gather(std::span<const T>(block(out(), comm_.rank())), out());
    require_gathered("all_gather in place");
  }
  void gather(int root) {
    const bool takes = comm_.rank() == root;
    fill(in().first(count_), values_of<T>(comm_.rank()));
    clear_out();
    comm_.gather(std::span<const T>(in().first(count_)), takes ? out() : std::span<T>(), root);
    if (takes) require_gathered("gather");
    clear_out();
    fill(block(out(), comm_.rank()), values_of<T>(comm_.rank()));
    comm_.gather(std::span<const T>(block(out(), comm_.rank())), takes ? out() : std::span<T>(),
                 root);
    if (takes) require_gathered("gather in place");
  }
  void scatter(int root) {
    fill_blocks();
    std::fill(out().begin(), out().end(), T{});
    comm_.scatter(std::span<const T>(in()), out().first(count_), root);
    require_equal<T>(out().first(count_), between(root, comm_.rank()), 0,
                     name_of_case<T>("scatter", count_));
    comm_.barrier();
    const auto own = block(in(), comm_.rank());
    comm_.scatter(comm_.rank() == root ? std::span<const T>(in()) : std::span<const T>(), own,
                  root);
    require_equal<T>(own, between(root, comm_.rank()), 0,
                     name_of_case<T>("scatter in place", count_));
    comm_.barrier();
  }
  void all_to_all() {
    fill_blocks();
    clear_out();
    comm_.all_to_all(std::span<const T>(in()), out());
    for (int from = 0; from < comm_.size(); ++from)
      require_equal<T>(block(out(), from), between(from, comm_.rank()), 0,
                       name_of_case<T>("all_to_all", count_));
  }

  Communicator& comm_;
  std::size_t count_;
  std::size_t ranks_;
  Buffers<T> buffers_;
};

template <class T>
void check_moves(Communicator& comm, bool shared, std::size_t count) {
  MoveChecks<T>(comm, shared, count).run();
}

inline constexpr ReduceOp kReductions[] = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin,
                                           ReduceOp::kMax, ReduceOp::kProduct};

}  // namespace tandem::comm::testing
