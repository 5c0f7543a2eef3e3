// Blocking collectives, messages and groups of the C interface.
#include <utility>

#include "tandem/comm/c/calls.h"

namespace tandem::comm::c {
namespace {

// A message whose wait is here, or at the end of the open group.
void finish_message(tdmComm_t comm, Request request) {
  if (comm->group_depth > 0) {
    comm->messages.push_back(std::move(request));
  } else {
    comm->communicator->wait(request);
  }
}

void run_all(Communicator& communicator, const std::vector<Call>& calls) {
  for (const Call& call : calls) communicator.call(call);
}

}  // namespace
}  // namespace tandem::comm::c

using namespace tandem::comm::c;

tdmResult_t tdmBarrier(tdmComm_t comm) {
  return guarded(comm, [&] { communicator_of(comm).barrier(); });
}

tdmResult_t tdmAllReduce(const void* send, void* recv, size_t count, tdmDataType_t type,
                         tdmRedOp_t op, tdmComm_t comm) {
  return guarded(comm, [&] {
    auto& communicator = communicator_of(comm);
    communicator.call(all_reduce_call(communicator, send, recv, count, type, op));
  });
}

tdmResult_t tdmReduce(const void* send, void* recv, size_t count, tdmDataType_t type, tdmRedOp_t op,
                      int root, tdmComm_t comm) {
  return guarded(comm, [&] {
    auto& communicator = communicator_of(comm);
    communicator.call(reduce_call(communicator, send, recv, count, type, op, root));
  });
}

tdmResult_t tdmReduceScatter(const void* send, void* recv, size_t recvcount, tdmDataType_t type,
                             tdmRedOp_t op, tdmComm_t comm) {
  return guarded(comm, [&] {
    auto& communicator = communicator_of(comm);
    communicator.call(reduce_scatter_call(communicator, send, recv, recvcount, type, op));
  });
}

tdmResult_t tdmAllGather(const void* send, void* recv, size_t sendcount, tdmDataType_t type,
                         tdmComm_t comm) {
  return guarded(comm, [&] {
    auto& communicator = communicator_of(comm);
    communicator.call(all_gather_call(communicator, send, recv, sendcount, type));
  });
}

tdmResult_t tdmBroadcast(const void* send, void* recv, size_t count, tdmDataType_t type, int root,
                         tdmComm_t comm) {
  return guarded(comm, [&] {
    auto& communicator = communicator_of(comm);
    communicator.call(broadcast_call(communicator, send, recv, count, type, root));
  });
}

tdmResult_t tdmAllToAll(const void* send, void* recv, size_t count, tdmDataType_t type,
                        tdmComm_t comm) {
  return guarded(comm, [&] {
    auto& communicator = communicator_of(comm);
    communicator.call(all_to_all_call(communicator, send, recv, count, type));
  });
}

tdmResult_t tdmGather(const void* send, void* recv, size_t sendcount, tdmDataType_t type, int root,
                      tdmComm_t comm) {
  return guarded(comm, [&] {
    auto& communicator = communicator_of(comm);
    communicator.call(gather_call(communicator, send, recv, sendcount, type, root));
  });
}

tdmResult_t tdmScatter(const void* send, void* recv, size_t recvcount, tdmDataType_t type, int root,
                       tdmComm_t comm) {
  return guarded(comm, [&] {
    auto& communicator = communicator_of(comm);
    communicator.call(scatter_call(communicator, send, recv, recvcount, type, root));
  });
}

tdmResult_t tdmAllGatherV(const void* send, void* recv, const size_t* recvcounts,
                          const size_t* displs, tdmDataType_t type, tdmComm_t comm) {
  return guarded(comm, [&] {
    auto& communicator = communicator_of(comm);
    run_all(communicator, all_gather_v_calls(communicator, send, recv, recvcounts, displs, type));
  });
}

tdmResult_t tdmReduceScatterV(const void* send, const size_t* sendcounts, const size_t* displs,
                              void* recv, tdmDataType_t type, tdmRedOp_t op, tdmComm_t comm) {
  return guarded(comm, [&] {
    auto& communicator = communicator_of(comm);
    run_all(communicator,
            reduce_scatter_v_calls(communicator, send, sendcounts, displs, recv, type, op));
  });
}

tdmResult_t tdmAllToAllV(const void* send, const size_t* sendcounts, const size_t* sdispls,
                         void* recv, const size_t* recvcounts, const size_t* rdispls,
                         tdmDataType_t type, tdmComm_t comm) {
  return guarded(comm, [&] {
    auto& communicator = communicator_of(comm);
    require_no_group(comm, "tdmAllToAllV");
    for (const auto& part : start_all_to_all_v(communicator, send, sendcounts, sdispls, recv,
                                               recvcounts, rdispls, type))
      communicator.wait(part);
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
