// Converts the arguments of the C interface's collectives to calls of the communicator. All
// functions throw InvalidArgument for invalid arguments. Internal.
#pragma once

#include <vector>

#include "tandem/comm/c/handle.h"

namespace tandem::comm::c {

DataType type_of(tdmDataType_t type);
ReduceOp op_of(tdmRedOp_t op);

// A collective whose buffers are set and checked; `count` as in Call.
Call barrier_call();
Call all_reduce_call(const Communicator& communicator, const void* send, void* recv, size_t count,
                     tdmDataType_t type, tdmRedOp_t op);
Call reduce_call(const Communicator& communicator, const void* send, void* recv, size_t count,
                 tdmDataType_t type, tdmRedOp_t op, int root);
Call reduce_scatter_call(const Communicator& communicator, const void* send, void* recv,
                         size_t count, tdmDataType_t type, tdmRedOp_t op);
Call all_gather_call(const Communicator& communicator, const void* send, void* recv, size_t count,
                     tdmDataType_t type);
// Copies `send` to `recv` at the root.
Call broadcast_call(const Communicator& communicator, const void* send, void* recv, size_t count,
                    tdmDataType_t type, int root);
Call all_to_all_call(const Communicator& communicator, const void* send, void* recv, size_t count,
                     tdmDataType_t type);
Call gather_call(const Communicator& communicator, const void* send, void* recv, size_t count,
                 tdmDataType_t type, int root);
Call scatter_call(const Communicator& communicator, const void* send, void* recv, size_t count,
                  tdmDataType_t type, int root);

// One broadcast per rank; copies `send` to its block of `recv`.
std::vector<Call> all_gather_v_calls(const Communicator& communicator, const void* send, void* recv,
                                     const size_t* counts, const size_t* displs,
                                     tdmDataType_t type);
// One reduce per rank.
std::vector<Call> reduce_scatter_v_calls(const Communicator& communicator, const void* send,
                                         const size_t* counts, const size_t* displs, void* recv,
                                         tdmDataType_t type, tdmRedOp_t op);
// Starts one message per rank, in both directions, and copies this rank's own block.
std::vector<Request> start_all_to_all_v(Communicator& communicator, const void* send,
                                        const size_t* sendcounts, const size_t* sdispls, void* recv,
                                        const size_t* recvcounts, const size_t* rdispls,
                                        tdmDataType_t type);

// A call for one message, used for its checks; `root` is the peer.
Call message_of(const Communicator& communicator, size_t count, tdmDataType_t type, int peer);
// A buffer that this rank reads or writes, or null if it does neither.
template <class T>
T* buffer_if(bool used, T* buffer, const Call& call, const char* name) {
  if (!used) return nullptr;
  if (buffer == nullptr && call.count > 0) {
    raise<InvalidArgument>("{} of {} elements: the argument '{}' is null", name_of(call.operation),
                           call.count, name);
  }
  return buffer;
}

}  // namespace tandem::comm::c
