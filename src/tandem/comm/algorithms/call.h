// One call of a collective, as all algorithms see it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tandem/comm/algorithms/types.h"

namespace tandem::comm {

// `count` is in elements and per rank: of the whole buffer for all_reduce, reduce and broadcast; of
// one rank's block for the others. Blocks lie in rank order.
struct Call {
  Operation operation = Operation::kBarrier;
  DataType type = DataType::kByte;
  ReduceOp op = ReduceOp::kNone;
  int root = 0;
  std::size_t count = 0;
  // Null where the rank gives nothing (broadcast and scatter, except at the root).
  const std::byte* in = nullptr;
  std::byte* out = nullptr;  // null where it gets nothing (reduce and gather, except at the root)

  std::size_t block_bytes() const { return count * size_of(type); }
  bool reduces() const {
    return operation == Operation::kAllReduce || operation == Operation::kReduce ||
           operation == Operation::kReduceScatter;
  }
  // Bytes that one rank of `size` gives and gets, where it does.
  std::size_t in_bytes(int size) const {
    const bool blocks = operation == Operation::kReduceScatter ||
                        operation == Operation::kAllToAll || operation == Operation::kScatter;
    return block_bytes() * (blocks ? static_cast<std::size_t>(size) : 1);
  }
  std::size_t out_bytes(int size) const {
    const bool blocks = operation == Operation::kAllGather || operation == Operation::kGather ||
                        operation == Operation::kAllToAll;
    return block_bytes() * (blocks ? static_cast<std::size_t>(size) : 1);
  }
};

// Streams of messages between two ranks of a communicator, beside that of its collectives.
inline constexpr int kChannels = 4;

// "all_reduce #17 of 100 float32 (sum)"
std::string describe(const Call& call, std::uint64_t sequence);

// What two ranks (as Peer::describe() names them) called that should have called the same, as the
// text of the error.
std::string disagreement(const std::string& one, const std::string& called,
                         const std::string& other, const std::string& called_by_other);

// A hash of the calls of a communicator so far: of those before, and of this one with its number.
// Buffers do not enter it. Ranks whose calls differ once never agree again (but for a chance of
// 2^-64).
std::uint64_t hash_of_calls(std::uint64_t before, const Call& call, std::uint64_t sequence);
// The start of such a sequence of hashes, made of an earlier one and a number.
std::uint64_t mix(std::uint64_t hash, std::uint64_t value);

}  // namespace tandem::comm
