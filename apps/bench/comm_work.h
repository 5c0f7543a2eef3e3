// One operation of `tandem bench comm` on one communicator: its buffers, the call on them, and the
// check of what arrives.
#pragma once

#include <cstddef>
#include <memory>

#include "apps/bench/comm_ranks.h"
#include "tandem/comm/communicator.h"
#include "tandem/comm/memory.h"

namespace tandem::apps::bench {

// Runs the call and waits for it. Operation::kSend: every rank sends to the next one and receives
// from the one before.
void perform(comm::Communicator& communicator, const comm::Call& call);

// The shape measured for every backend.
struct WorkShape {
  comm::Operation operation = comm::Operation::kAllReduce;
  comm::DataType type = comm::DataType::kFloat32;
  comm::ReduceOp reduction = comm::ReduceOp::kSum;
  std::size_t bytes = 0;  // bytes of the larger of its two buffers

  // Bytes of all buffers, including the space between them; 0 for barriers.
  std::size_t memory_bytes() const;
};

class Work {
 public:
  // The buffers lie in `pages` (memory_bytes() long, may be shared by works that do not run at the
  // same time), or if that is null in memory of the communicator.
  Work(comm::Communicator& communicator, const WorkShape& shape, std::shared_ptr<Pages> pages);
  const comm::Call& call() const { return call_; }
  std::size_t bytes() const;

  // Runs once on bytes that identify their sender, and checks every byte that arrived; the buffers
  // are zero afterwards. Sums: of rank + position, small enough to be exact in every type. Throws
  // Error.
  void verify(comm::Communicator& communicator);

 private:
  std::size_t out_count() const { return call_.out_bytes(size_) / comm::size_of(call_.type); }
  void fill();
  double expected(std::size_t i) const;
  double reduced(std::size_t i) const;
  double rounded(double x) const;
  double value_at(std::size_t i) const { return load(call_.out, i); }
  void store(std::byte* to, std::size_t i, double x) const;
  double load(const std::byte* from, std::size_t i) const;

  int size_;
  int rank_;
  comm::Call call_;
  comm::CommunicatorMemory memory_;
  std::shared_ptr<Pages> pages_;
};

}  // namespace tandem::apps::bench
