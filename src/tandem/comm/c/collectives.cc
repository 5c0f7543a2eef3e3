// Collectives, messages and groups of the C interface: checks the arguments and hands them to the
// communicator.
#include <cstring>
#include <limits>
#include <utility>

#include "tandem/comm/c/handle.h"

namespace tandem::comm::c {
namespace {

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

// A buffer that this rank reads or writes, or null where it does neither.
template <class T>
T* buffer_if(bool used, T* buffer, const Call& call, const char* name) {
  if (!used) return nullptr;
  if (buffer == nullptr && call.count > 0) {
    raise<InvalidArgument>("{} of {} elements: the argument '{}' is null", name_of(call.operation),
                           call.count, name);
  }
  return buffer;
}

// Runs a collective of `send` and `recv`, which this rank uses or not.
void run(Communicator& communicator, Call call, const void* send, bool sends, void* recv,
         bool receives) {
  call.in = static_cast<const std::byte*>(buffer_if(sends, send, call, "send"));
  call.out = static_cast<std::byte*>(buffer_if(receives, recv, call, "recv"));
  communicator.call(call);
}

// ---- messages ----

// A message that is waited for here, or at the end of the open group.
void finish_message(tdmComm_t comm, Request request) {
  if (comm->group_depth > 0) {
    comm->messages.push_back(std::move(request));
  } else {
    comm->communicator->wait(request);
  }
}

Call message_of(const Communicator& communicator, size_t count, tdmDataType_t type, int peer) {
  check_rank(communicator, "peer", peer);
  return call_of(communicator, Operation::kSend, count, type, ReduceOp::kNone, peer);
}

}  // namespace
}  // namespace tandem::comm::c

using namespace tandem::comm::c;
using tandem::comm::Operation;
using tandem::comm::ReduceOp;

tdmResult_t tdmBarrier(tdmComm_t comm) {
  return guarded(comm, [&] { communicator_of(comm).barrier(); });
}

tdmResult_t tdmAllReduce(const void* send, void* recv, size_t count, tdmDataType_t type,
                         tdmRedOp_t op, tdmComm_t comm) {
  return guarded(comm, [&] {
    auto& communicator = communicator_of(comm);
    run(communicator, call_of(communicator, Operation::kAllReduce, count, type, op_of(op), 0), send,
        true, recv, true);
  });
}

tdmResult_t tdmReduce(const void* send, void* recv, size_t count, tdmDataType_t type, tdmRedOp_t op,
                      int root, tdmComm_t comm) {
  return guarded(comm, [&] {
    auto& communicator = communicator_of(comm);
    run(communicator, call_of(communicator, Operation::kReduce, count, type, op_of(op), root), send,
        true, recv, communicator.rank() == root);
  });
}

tdmResult_t tdmReduceScatter(const void* send, void* recv, size_t recvcount, tdmDataType_t type,
                             tdmRedOp_t op, tdmComm_t comm) {
  return guarded(comm, [&] {
    auto& communicator = communicator_of(comm);
    run(communicator,
        call_of(communicator, Operation::kReduceScatter, recvcount, type, op_of(op), 0), send, true,
        recv, true);
  });
}

tdmResult_t tdmAllGather(const void* send, void* recv, size_t sendcount, tdmDataType_t type,
                         tdmComm_t comm) {
  return guarded(comm, [&] {
    auto& communicator = communicator_of(comm);
    run(communicator,
        call_of(communicator, Operation::kAllGather, sendcount, type, ReduceOp::kNone, 0), send,
        true, recv, true);
  });
}

tdmResult_t tdmBroadcast(const void* send, void* recv, size_t count, tdmDataType_t type, int root,
                         tdmComm_t comm) {
  return guarded(comm, [&] {
    auto& communicator = communicator_of(comm);
    const auto call =
        call_of(communicator, Operation::kBroadcast, count, type, ReduceOp::kNone, root);
    buffer_if(true, recv, call, "recv");
    if (communicator.rank() == root) {
      buffer_if(true, send, call, "send");
      if (send != recv && count > 0) std::memcpy(recv, send, call.block_bytes());
    }
    run(communicator, call, recv, true, recv, true);
  });
}

tdmResult_t tdmAllToAll(const void* send, void* recv, size_t count, tdmDataType_t type,
                        tdmComm_t comm) {
  return guarded(comm, [&] {
    auto& communicator = communicator_of(comm);
    run(communicator, call_of(communicator, Operation::kAllToAll, count, type, ReduceOp::kNone, 0),
        send, true, recv, true);
  });
}

tdmResult_t tdmGather(const void* send, void* recv, size_t sendcount, tdmDataType_t type, int root,
                      tdmComm_t comm) {
  return guarded(comm, [&] {
    auto& communicator = communicator_of(comm);
    run(communicator,
        call_of(communicator, Operation::kGather, sendcount, type, ReduceOp::kNone, root), send,
        true, recv, communicator.rank() == root);
  });
}

tdmResult_t tdmScatter(const void* send, void* recv, size_t recvcount, tdmDataType_t type, int root,
                       tdmComm_t comm) {
  return guarded(comm, [&] {
    auto& communicator = communicator_of(comm);
    run(communicator,
        call_of(communicator, Operation::kScatter, recvcount, type, ReduceOp::kNone, root), send,
        communicator.rank() == root, recv, true);
  });
}

tdmResult_t tdmSend(const void* send, size_t count, tdmDataType_t type, int peer, tdmComm_t comm) {
  return guarded(comm, [&] {
    auto& communicator = communicator_of(comm);
    const auto call = message_of(communicator, count, type, peer);
    const auto* data = static_cast<const std::byte*>(buffer_if(true, send, call, "send"));
    finish_message(
        comm, communicator.start_send_bytes({data, call.block_bytes()}, call.type, count, peer));
  });
}

tdmResult_t tdmRecv(void* recv, size_t count, tdmDataType_t type, int peer, tdmComm_t comm) {
  return guarded(comm, [&] {
    auto& communicator = communicator_of(comm);
    const auto call = message_of(communicator, count, type, peer);
    auto* data = static_cast<std::byte*>(buffer_if(true, recv, call, "recv"));
    finish_message(
        comm, communicator.start_receive_bytes({data, call.block_bytes()}, call.type, count, peer));
  });
}

tdmResult_t tdmGroupBegin(tdmComm_t comm) {
  return guarded(comm, [&] {
    communicator_of(comm).group_begin();
    ++comm->group_depth;
  });
}

tdmResult_t tdmGroupEnd(tdmComm_t comm) {
  return guarded(comm, [&] {
    auto& communicator = communicator_of(comm);
    if (comm->group_depth == 0) tandem::raise<InvalidUsage>("tdmGroupEnd without tdmGroupBegin");
    --comm->group_depth;
    communicator.group_end();
    if (comm->group_depth > 0) return;
    const auto messages = std::exchange(comm->messages, {});
    for (const auto& message : messages) communicator.wait(message);
  });
}
