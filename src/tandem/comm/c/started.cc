// Operations that are started, and waits for them.
#include <chrono>
#include <thread>
#include <utility>

#include "tandem/comm/c/calls.h"

struct tdmRequest {
  tdmComm* comm = nullptr;
  std::vector<tandem::comm::Request> parts;
  std::unique_ptr<tandem::comm::c::PostedSend> sent;
  std::shared_ptr<tandem::comm::c::PostedReceive> posted;
  int* source = nullptr;
  std::chrono::steady_clock::time_point waited_since{};  // zero: no thread has waited
};

namespace tandem::comm::c {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// Longest time for which a wait excludes other threads.
constexpr microseconds kTurn{200};

// Starts what `start(request)` starts.
template <class Start>
tdmResult_t started(tdmComm_t comm, tdmRequest_t* request, const char* function, Start start) {
  return guarded(comm, [&] {
    communicator_of(comm);
    require_not_null(request, "request");
    const EntryLock::Entry inside(*comm->entry_lock);
    require_no_group(comm, function);
    auto made = std::make_unique<tdmRequest>();
    made->comm = comm;
    start(*made);
    *request = made.release();
  });
}

// The request whose completion comes next; null: for messages of any rank.
const Request* next_part(const tdmRequest& request) {
  for (const Request& part : request.parts) {
    if (!part.done()) return &part;
  }
  if (request.sent != nullptr)
    return request.sent->head.done() ? &request.sent->body : &request.sent->head;
  if (request.posted->peer >= 0) return &request.comm->mailbox->next_of(request.posted->peer);
  return nullptr;
}

bool has_ended(const tdmRequest& request) {
  for (const Request& part : request.parts) {
    if (!part.done()) return false;
  }
  return (request.sent == nullptr || request.sent->done()) &&
         (request.posted == nullptr || request.posted->done);
}

// Moves as much as possible without waiting.
void advance(const tdmRequest& request) {
  Communicator& communicator = *request.comm->communicator;
  Mailbox& mailbox = *request.comm->mailbox;
  if (request.posted != nullptr || mailbox.expects_something()) {
    mailbox.advance();
    if (has_ended(request)) return;
    communicator.progress();
    mailbox.advance();
  }
}

// One part of a wait; returns whether the request has ended.
bool take_turn(const tdmRequest& request, const Turn& turn) {
  const EntryLock::Entry inside(*request.comm->entry_lock);
  if (has_ended(request)) return true;
  advance(request);
  if (has_ended(request)) return true;
  Communicator& communicator = *request.comm->communicator;
  if (const Request* part = next_part(request); part != nullptr) {
    communicator.wait_a_turn(*part, turn);
  } else {
    communicator.check_wait(turn.since, -1, "a message of any rank");
    communicator.progress(turn.max_wait);
  }
  request.comm->mailbox->advance();
  return has_ended(request);
}

bool wait_for(tdmRequest& request, microseconds max_wait, milliseconds limit) {
  const Clock::time_point start = Clock::now();
  if (request.waited_since == Clock::time_point{}) request.waited_since = start;
  while (true) {
    const auto left = max_wait - std::chrono::duration_cast<microseconds>(Clock::now() - start);
    const microseconds turn = std::min(std::max(left, microseconds(0)), kTurn);
    if (take_turn(request, {request.waited_since, limit, turn})) return true;
    if (left.count() <= 0) return false;
    for (int i = 0; i < 100 && request.comm->entry_lock->is_wanted(); ++i)
      std::this_thread::yield();
  }
}

// The common part of waits: `wait` returns whether the request has ended.
template <class Wait>
tdmResult_t end_of(tdmRequest_t* request, int* ended, Wait wait) {
  if (request == nullptr || *request == nullptr) {
    if (ended != nullptr) *ended = 1;
    return request == nullptr ? guarded(nullptr, [] { require_not_null(nullptr, "request"); })
                              : tdmSuccess;
  }
  bool done = true;  // a failure ends the request too
  const tdmResult_t result = guarded((*request)->comm, [&] { done = wait(**request); });
  if (ended != nullptr) *ended = done ? 1 : 0;
  if (!done) return result;
  const std::unique_ptr<tdmRequest> gone(std::exchange(*request, nullptr));
  if (gone->posted != nullptr) {
    const EntryLock::Entry inside(*gone->comm->entry_lock);
    gone->comm->mailbox->forget(gone->posted);
    if (gone->posted->done && gone->source != nullptr) *gone->source = gone->posted->source;
  }
  return result;
}

milliseconds limit_of(const tdmRequest& request, int limit_ms) {
  if (limit_ms == TDM_UNDEFINED) return request.comm->communicator->options().timeout;
  if (limit_ms < 0) raise<InvalidArgument>("limit_ms is {}, expected at least 0", limit_ms);
  return milliseconds(limit_ms);
}

std::vector<Request> start_all(Communicator& communicator, const std::vector<Call>& calls) {
  std::vector<Request> parts;
  for (const Call& call : calls) parts.push_back(communicator.start(call));
  return parts;
}

void check_tag(int tag, int least) {
  if (tag < least) raise<InvalidArgument>("the tag is {}, expected at least {}", tag, least);
}

}  // namespace
}  // namespace tandem::comm::c

using namespace tandem::comm::c;

tdmResult_t tdmIBarrier(tdmComm_t comm, tdmRequest_t* request) {
  return started(comm, request, "tdmIBarrier", [&](tdmRequest& made) {
    made.parts.push_back(comm->communicator->start(barrier_call()));
  });
}

tdmResult_t tdmIAllReduce(const void* send, void* recv, size_t count, tdmDataType_t type,
                          tdmRedOp_t op, tdmComm_t comm, tdmRequest_t* request) {
  return started(comm, request, "tdmIAllReduce", [&](tdmRequest& made) {
    auto& communicator = *comm->communicator;
    made.parts.push_back(
        communicator.start(all_reduce_call(communicator, send, recv, count, type, op)));
  });
}

tdmResult_t tdmIReduce(const void* send, void* recv, size_t count, tdmDataType_t type,
                       tdmRedOp_t op, int root, tdmComm_t comm, tdmRequest_t* request) {
  return started(comm, request, "tdmIReduce", [&](tdmRequest& made) {
    auto& communicator = *comm->communicator;
    made.parts.push_back(
        communicator.start(reduce_call(communicator, send, recv, count, type, op, root)));
  });
}

tdmResult_t tdmIReduceScatter(const void* send, void* recv, size_t recvcount, tdmDataType_t type,
                              tdmRedOp_t op, tdmComm_t comm, tdmRequest_t* request) {
  return started(comm, request, "tdmIReduceScatter", [&](tdmRequest& made) {
    auto& communicator = *comm->communicator;
    made.parts.push_back(
        communicator.start(reduce_scatter_call(communicator, send, recv, recvcount, type, op)));
  });
}

tdmResult_t tdmIAllGather(const void* send, void* recv, size_t sendcount, tdmDataType_t type,
                          tdmComm_t comm, tdmRequest_t* request) {
  return started(comm, request, "tdmIAllGather", [&](tdmRequest& made) {
    auto& communicator = *comm->communicator;
    made.parts.push_back(
        communicator.start(all_gather_call(communicator, send, recv, sendcount, type)));
  });
}

tdmResult_t tdmIBroadcast(const void* send, void* recv, size_t count, tdmDataType_t type, int root,
                          tdmComm_t comm, tdmRequest_t* request) {
  return started(comm, request, "tdmIBroadcast", [&](tdmRequest& made) {
    auto& communicator = *comm->communicator;
    made.parts.push_back(
        communicator.start(broadcast_call(communicator, send, recv, count, type, root)));
  });
}

tdmResult_t tdmIAllToAll(const void* send, void* recv, size_t count, tdmDataType_t type,
                         tdmComm_t comm, tdmRequest_t* request) {
  return started(comm, request, "tdmIAllToAll", [&](tdmRequest& made) {
    auto& communicator = *comm->communicator;
    made.parts.push_back(
        communicator.start(all_to_all_call(communicator, send, recv, count, type)));
  });
}

tdmResult_t tdmIGather(const void* send, void* recv, size_t sendcount, tdmDataType_t type, int root,
                       tdmComm_t comm, tdmRequest_t* request) {
  return started(comm, request, "tdmIGather", [&](tdmRequest& made) {
    auto& communicator = *comm->communicator;
    made.parts.push_back(
        communicator.start(gather_call(communicator, send, recv, sendcount, type, root)));
  });
}

tdmResult_t tdmIScatter(const void* send, void* recv, size_t recvcount, tdmDataType_t type,
                        int root, tdmComm_t comm, tdmRequest_t* request) {
  return started(comm, request, "tdmIScatter", [&](tdmRequest& made) {
    auto& communicator = *comm->communicator;
    made.parts.push_back(
        communicator.start(scatter_call(communicator, send, recv, recvcount, type, root)));
  });
}

tdmResult_t tdmIAllGatherV(const void* send, void* recv, const size_t* recvcounts,
                           const size_t* displs, tdmDataType_t type, tdmComm_t comm,
                           tdmRequest_t* request) {
  return started(comm, request, "tdmIAllGatherV", [&](tdmRequest& made) {
    auto& communicator = *comm->communicator;
    made.parts = start_all(communicator,
                           all_gather_v_calls(communicator, send, recv, recvcounts, displs, type));
  });
}

tdmResult_t tdmIReduceScatterV(const void* send, const size_t* sendcounts, const size_t* displs,
                               void* recv, tdmDataType_t type, tdmRedOp_t op, tdmComm_t comm,
                               tdmRequest_t* request) {
  return started(comm, request, "tdmIReduceScatterV", [&](tdmRequest& made) {
    auto& communicator = *comm->communicator;
    made.parts = start_all(communicator, reduce_scatter_v_calls(communicator, send, sendcounts,
                                                                displs, recv, type, op));
  });
}

tdmResult_t tdmIAllToAllV(const void* send, const size_t* sendcounts, const size_t* sdispls,
                          void* recv, const size_t* recvcounts, const size_t* rdispls,
                          tdmDataType_t type, tdmComm_t comm, tdmRequest_t* request) {
  return started(comm, request, "tdmIAllToAllV", [&](tdmRequest& made) {
    auto& communicator = *comm->communicator;
    made.parts = start_all_to_all_v(communicator, send, sendcounts, sdispls, recv, recvcounts,
                                    rdispls, type);
  });
}

tdmResult_t tdmISend(const void* send, size_t count, tdmDataType_t type, int peer, int tag,
                     tdmComm_t comm, tdmRequest_t* request) {
  return started(comm, request, "tdmISend", [&](tdmRequest& made) {
    const auto call = message_of(*comm->communicator, count, type, peer);
    check_tag(tag, 0);
    const auto* data = static_cast<const std::byte*>(buffer_if(true, send, call, "send"));
    made.sent = comm->mailbox->send(data, call.type, count, peer, tag);
  });
}

tdmResult_t tdmIRecv(void* recv, size_t count, tdmDataType_t type, int peer, int tag, int* source,
                     tdmComm_t comm, tdmRequest_t* request) {
  return started(comm, request, "tdmIRecv", [&](tdmRequest& made) {
    auto& communicator = *comm->communicator;
    const auto call = message_of(communicator, count, type, peer == TDM_ANY_SOURCE ? 0 : peer);
    check_tag(tag, TDM_ANY_TAG);
    if (peer == communicator.rank()) {
      tandem::raise<tandem::InvalidArgument>("receive: rank {} cannot receive from itself", peer);
    }
    made.posted = std::make_shared<PostedReceive>();
    made.posted->peer = peer;
    made.posted->tag = tag;
    made.posted->type = call.type;
    made.posted->count = count;
    made.posted->data = static_cast<std::byte*>(buffer_if(true, recv, call, "recv"));
    made.source = source;
    comm->mailbox->receive(made.posted);
  });
}

tdmResult_t tdmWait(tdmRequest_t* request) {
  return end_of(request, nullptr, [](tdmRequest& one) {
    const auto limit = limit_of(one, TDM_UNDEFINED);
    while (!wait_for(one, std::chrono::seconds(1), limit)) {
    }
    return true;
  });
}

tdmResult_t tdmTest(tdmRequest_t* request, int* ended) {
  return end_of(request, ended, [&](tdmRequest& one) {
    require_not_null(ended, "ended");
    const EntryLock::Entry inside(*one.comm->entry_lock);
    if (!has_ended(one)) {
      one.comm->communicator->progress();
      one.comm->mailbox->advance();
    }
    return has_ended(one);
  });
}

tdmResult_t tdmWaitFor(tdmRequest_t* request, int timeout_us, int limit_ms, int* ended) {
  return end_of(request, ended, [&](tdmRequest& one) {
    require_not_null(ended, "ended");
    return wait_for(one, microseconds(std::max(timeout_us, 0)), limit_of(one, limit_ms));
  });
}
