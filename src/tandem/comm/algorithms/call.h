// One call of a collective, as all algorithms see it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tandem/comm/algorithms/types.h"

namespace tandem::comm {

// `count` is in elements and per rank: those of the whole buffer for all_reduce, reduce and
// broadcast; of one rank's block for the others. Blocks lie in rank order.
struct Call {
  Operation operation = Operation::kBarrier;
  DataType type = DataType::kByte;
  ReduceOp op = ReduceOp::kNone;
  int root = 0;
  std::size_t count = 0;
  // Null if the rank contributes no data (broadcast and scatter, except at the root).
  const std::byte* in = nullptr;
  std::byte* out =
      nullptr;  // null if the rank receives nothing (reduce and gather, except at the root)

  std::size_t block_bytes() const { return count * size_of(type); }
  bool reduces() const {
    return operation == Operation::kAllReduce || operation == Operation::kReduce ||
           operation == Operation::kReduceScatter;
  }
  // Bytes that one rank of `size` contributes and receives, if it does.
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

// Message streams between two ranks of a communicator, separate from the stream of its collectives.
inline constexpr int kChannels = 4;

// "all_reduce #17 of 100 float32 (sum)"
std::string describe(const Call& call, std::uint64_t sequence);

// Error text for two ranks (named as in Peer::describe()) that made different calls at one point of
// their sequences.
std::string disagreement(const std::string& one, const std::string& called,
                         const std::string& other, const std::string& called_by_other);

// A hash of all calls of a communicator up to this one, whose number is included. Buffer contents
// are not. After one difference the hashes of two ranks stay different (except with probability
// 2^-64).
std::uint64_t hash_of_calls(std::uint64_t before, const Call& call, std::uint64_t sequence);
// The start of such a sequence of hashes, derived from an earlier one and a number.
std::uint64_t mix(std::uint64_t hash, std::uint64_t value);

}  // namespace tandem::comm
