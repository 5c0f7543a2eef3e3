#include "tandem/comm/c/calls.h"

#include <cstring>
#include <limits>

namespace tandem::comm::c {

DataType type_of(tdmDataType_t type) {
  switch (type) {
    case tdmInt8:
      return DataType::kInt8;
    case tdmUint8:
      return DataType::kUint8;
    case tdmInt32:
      return DataType::kInt32;
    case tdmInt64:
      return DataType::kInt64;
    case tdmUint64:
      return DataType::kUint64;
    case tdmFloat16:
      return DataType::kFloat16;
    case tdmFloat32:
      return DataType::kFloat32;
    case tdmFloat64:
      return DataType::kFloat64;
    case tdmBfloat16:
      return DataType::kBfloat16;
  }
  raise<InvalidArgument>("{} is not a data type (tdmDataType_t)", static_cast<int>(type));
}

ReduceOp op_of(tdmRedOp_t op) {
  switch (op) {
    case tdmSum:
      return ReduceOp::kSum;
    case tdmProd:
      return ReduceOp::kProduct;
    case tdmMax:
      return ReduceOp::kMax;
    case tdmMin:
      return ReduceOp::kMin;
    case tdmAvg:
      return ReduceOp::kAverage;
  }
  raise<InvalidArgument>("{} is not a reduction (tdmRedOp_t)", static_cast<int>(op));
}

void check_rank(const Communicator& communicator, const char* name, int rank) {
  if (rank < 0 || rank >= communicator.size()) {
    raise<InvalidArgument>("the {} is {}, expected a rank of 0 to {}", name, rank,
                           communicator.size() - 1);
  }
}

namespace {

// tdmSend and tdmRecv use stream 0, the mailbox stream 1.
constexpr int kStream = 2;

// A call whose counts fit into memory; buffers are set by set_buffers().
Call call_of(const Communicator& communicator, Operation operation, size_t count,
             tdmDataType_t type, ReduceOp op, int root) {
  const Call call{operation, type_of(type), op, root, count, nullptr, nullptr};
  check_rank(communicator, "root", root);
  const std::size_t most = std::numeric_limits<std::ptrdiff_t>::max() / size_of(call.type) /
                           static_cast<std::size_t>(communicator.size());
  if (count > most) {
    raise<InvalidArgument>("{} of {} elements for each of {} ranks is more than memory can hold",
                           name_of(operation), count, communicator.size());
  }
  return call;
}

// A collective of `send` and `recv`, either of which this rank may leave unused.
Call with_buffers(Call call, const void* send, bool sends, void* recv, bool receives) {
  call.in = static_cast<const std::byte*>(buffer_if(sends, send, call, "send"));
  call.out = static_cast<std::byte*>(buffer_if(receives, recv, call, "recv"));
  return call;
}

// Positions of all ranks' blocks in one buffer, in bytes.
class Blocks {
 public:
  Blocks(const Communicator& communicator, const size_t* counts, const size_t* displs,
         tdmDataType_t type)
      : counts_(counts), displs_(displs), bytes_(size_of(type_of(type))) {
    require_not_null(counts, "counts");
    const auto ranks = static_cast<std::size_t>(communicator.size());
    const std::size_t most = std::numeric_limits<std::ptrdiff_t>::max() / bytes_ / ranks;
    for (std::size_t r = 0; r < ranks; ++r) {
      if (counts[r] > most || (displs != nullptr && displs[r] > most)) {
        raise<InvalidArgument>("the block of rank {} has {} elements{}: more than memory can hold",
                               r, counts[r],
                               displs == nullptr ? "" : fmt::format(" at {}", displs[r]));
      }
    }
  }
  std::size_t count(int rank) const { return counts_[rank]; }
  std::size_t offset(int rank) const {
    if (displs_ != nullptr) return displs_[rank] * bytes_;
    std::size_t elements = 0;
    for (int r = 0; r < rank; ++r) elements += counts_[r];
    return elements * bytes_;
  }
  std::size_t bytes(int rank) const { return count(rank) * bytes_; }

 private:
  const size_t* counts_;
  const size_t* displs_;
  std::size_t bytes_;
};

void copy_block(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

}  // namespace

Call barrier_call() { return {}; }

Call all_reduce_call(const Communicator& communicator, const void* send, void* recv, size_t count,
                     tdmDataType_t type, tdmRedOp_t op) {
  return with_buffers(call_of(communicator, Operation::kAllReduce, count, type, op_of(op), 0), send,
                      true, recv, true);
}

Call reduce_call(const Communicator& communicator, const void* send, void* recv, size_t count,
                 tdmDataType_t type, tdmRedOp_t op, int root) {
  return with_buffers(call_of(communicator, Operation::kReduce, count, type, op_of(op), root), send,
                      true, recv, communicator.rank() == root);
}

Call reduce_scatter_call(const Communicator& communicator, const void* send, void* recv,
                         size_t count, tdmDataType_t type, tdmRedOp_t op) {
  return with_buffers(call_of(communicator, Operation::kReduceScatter, count, type, op_of(op), 0),
                      send, true, recv, true);
}

Call all_gather_call(const Communicator& communicator, const void* send, void* recv, size_t count,
                     tdmDataType_t type) {
  return with_buffers(call_of(communicator, Operation::kAllGather, count, type, ReduceOp::kNone, 0),
                      send, true, recv, true);
}

Call broadcast_call(const Communicator& communicator, const void* send, void* recv, size_t count,
                    tdmDataType_t type, int root) {
  const Call call =
      call_of(communicator, Operation::kBroadcast, count, type, ReduceOp::kNone, root);
  buffer_if(true, recv, call, "recv");
  if (communicator.rank() == root) {
    buffer_if(true, send, call, "send");
    copy_block(recv, send, call.block_bytes());
  }
  return with_buffers(call, recv, true, recv, true);
}

Call all_to_all_call(const Communicator& communicator, const void* send, void* recv, size_t count,
                     tdmDataType_t type) {
  return with_buffers(call_of(communicator, Operation::kAllToAll, count, type, ReduceOp::kNone, 0),
                      send, true, recv, true);
}

Call gather_call(const Communicator& communicator, const void* send, void* recv, size_t count,
                 tdmDataType_t type, int root) {
  return with_buffers(call_of(communicator, Operation::kGather, count, type, ReduceOp::kNone, root),
                      send, true, recv, communicator.rank() == root);
}

Call scatter_call(const Communicator& communicator, const void* send, void* recv, size_t count,
                  tdmDataType_t type, int root) {
  return with_buffers(
      call_of(communicator, Operation::kScatter, count, type, ReduceOp::kNone, root), send,
      communicator.rank() == root, recv, true);
}

std::vector<Call> all_gather_v_calls(const Communicator& communicator, const void* send, void* recv,
                                     const size_t* counts, const size_t* displs,
                                     tdmDataType_t type) {
  const Blocks blocks(communicator, counts, displs, type);
  std::vector<Call> calls;
  for (int root = 0; root < communicator.size(); ++root) {
    calls.push_back(call_of(communicator, Operation::kBroadcast, blocks.count(root), type,
                            ReduceOp::kNone, root));
    buffer_if(true, recv, calls.back(), "recv");
    auto* block = recv == nullptr ? nullptr : static_cast<std::byte*>(recv) + blocks.offset(root);
    if (communicator.rank() == root) {
      buffer_if(true, send, calls.back(), "send");
      copy_block(block, send, blocks.bytes(root));
    }
    calls.back().in = calls.back().out = block;
  }
  return calls;
}

std::vector<Call> reduce_scatter_v_calls(const Communicator& communicator, const void* send,
                                         const size_t* counts, const size_t* displs, void* recv,
                                         tdmDataType_t type, tdmRedOp_t op) {
  const Blocks blocks(communicator, counts, displs, type);
  std::vector<Call> calls;
  for (int root = 0; root < communicator.size(); ++root) {
    Call call =
        call_of(communicator, Operation::kReduce, blocks.count(root), type, op_of(op), root);
    buffer_if(true, send, call, "send");
    const auto* block =
        send == nullptr ? nullptr : static_cast<const std::byte*>(send) + blocks.offset(root);
    calls.push_back(with_buffers(call, block, true, recv, communicator.rank() == root));
  }
  return calls;
}

std::vector<Request> start_all_to_all_v(Communicator& communicator, const void* send,
                                        const size_t* sendcounts, const size_t* sdispls, void* recv,
                                        const size_t* recvcounts, const size_t* rdispls,
                                        tdmDataType_t type) {
  const Blocks out(communicator, sendcounts, sdispls, type);
  const Blocks in(communicator, recvcounts, rdispls, type);
  const int own = communicator.rank();
  if (out.count(own) != in.count(own)) {
    raise<InvalidArgument>("all_to_all: this rank sends itself {} elements and expects {}",
                           out.count(own), in.count(own));
  }
  const auto block = [&](auto* buffer, const Blocks& blocks, int rank, const char* name) {
    buffer_if(true, buffer, message_of(communicator, blocks.count(rank), type, rank), name);
    return std::span(buffer == nullptr ? nullptr : buffer + blocks.offset(rank),
                     blocks.bytes(rank));
  };
  const auto* from = static_cast<const std::byte*>(send);
  auto* to = static_cast<std::byte*>(recv);
  for (int r = 0; r < communicator.size(); ++r) {
    block(from, out, r, "send");
    block(to, in, r, "recv");
  }
  std::vector<Request> parts{communicator.start(barrier_call())};
  copy_block(block(to, in, own, "recv").data(), block(from, out, own, "send").data(),
             out.bytes(own));
  for (int step = 1; step < communicator.size(); ++step) {
    const int source = (own - step + communicator.size()) % communicator.size();
    parts.push_back(communicator.start_receive_bytes(block(to, in, source, "recv"), type_of(type),
                                                     in.count(source), source, kStream));
  }
  for (int step = 1; step < communicator.size(); ++step) {
    const int target = (own + step) % communicator.size();
    parts.push_back(communicator.start_send_bytes(block(from, out, target, "send"), type_of(type),
                                                  out.count(target), target, kStream));
  }
  return parts;
}

Call message_of(const Communicator& communicator, size_t count, tdmDataType_t type, int peer) {
  check_rank(communicator, "peer", peer);
  return call_of(communicator, Operation::kSend, count, type, ReduceOp::kNone, peer);
}

}  // namespace tandem::comm::c
