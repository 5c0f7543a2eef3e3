// Operations of oneCCL's interface. Include oneapi/ccl.hpp.
//
// Each operation has a form for untyped buffers, with a datatype, and one for buffers of numbers.
// The communicator is followed by optional arguments in this order: a stream, attributes, and
// events. The operation starts after those events have completed. Counts are in elements.
#pragma once

#include <numeric>

#include "communicator.hpp"
#include "event.hpp"

namespace ccl {
namespace detail {

// The optional arguments after the communicator.
class options {
 public:
  options() = default;
  template <class... Rest>
  explicit options(const stream&, const Rest&... rest) : options(rest...) {}
  explicit options(const operation_attr& attr, const vector_class<event>& deps = {})
      : synchronous_(attr.get<operation_attr_id::synchronous>()) {
    for (const event& before : deps) before.wait();
  }

  // The event of the operation that `start(comm, &request)` starts; `finish` runs when it has
  // ended.
  template <class Start>
  event run(const communicator& comm, const Start& start, std::function<void()> finish = {}) const {
    tdmRequest_t request = nullptr;
    check(start(comm.handle().get(), &request), comm.handle().get());
    event made(comm.handle(), request, std::move(finish));
    if (synchronous_) made.wait();
    return made;
  }

 private:
  bool synchronous_ = false;
};

using counts = vector_class<std::size_t>;
using bytes = std::shared_ptr<vector_class<char>>;

inline std::size_t sum(const counts& each) {
  return std::accumulate(each.begin(), each.end(), std::size_t{0});
}
inline counts times(counts each, std::size_t factor) {
  for (std::size_t& one : each) one *= factor;
  return each;
}
inline void require_one_each(const counts& each, const communicator& comm, const char* function) {
  if (each.size() == static_cast<std::size_t>(comm.size())) return;
  throw invalid_argument(string_class(function) + ": found " + std::to_string(each.size()) +
                         " counts, expected one per rank, " + std::to_string(comm.size()));
}

// Copies blocks of `sizes` bytes into one buffer, and back.
inline bytes packed(const vector_class<void*>& blocks, const counts& sizes) {
  auto all = std::make_shared<vector_class<char>>(sum(sizes));
  char* to = all->data();
  for (std::size_t i = 0; i < blocks.size(); to += sizes[i++]) {
    if (sizes[i] > 0) std::memcpy(to, blocks[i], sizes[i]);
  }
  return all;
}
inline std::function<void()> unpack(bytes all, vector_class<void*> blocks, counts sizes) {
  return [all = std::move(all), blocks = std::move(blocks), sizes = std::move(sizes)] {
    const char* from = all->data();
    for (std::size_t i = 0; i < blocks.size(); from += sizes[i++]) {
      if (sizes[i] > 0) std::memcpy(blocks[i], from, sizes[i]);
    }
  };
}
template <class T>
vector_class<void*> untyped(const vector_class<T*>& buffers) {
  return {buffers.begin(), buffers.end()};
}

}  // namespace detail

// ---- barrier ----

// Returns when every rank has called it; the event has ended.
template <class... Rest>
event barrier(const communicator& comm, const Rest&... rest) {
  event made = detail::options(rest...).run(comm, tdmIBarrier);
  made.wait();
  return made;
}

// ---- allreduce ----

template <class... Rest>
event allreduce(const void* send, void* recv, std::size_t count, datatype dtype, reduction rtype,
                const communicator& comm, const Rest&... rest) {
  return detail::options(rest...).run(comm, [&](tdmComm_t on, tdmRequest_t* request) {
    return tdmIAllReduce(send, recv, count, detail::reduce_as(dtype), detail::to_op(rtype), on,
                         request);
  });
}
template <class T, class... Rest>
event allreduce(const T* send, T* recv, std::size_t count, reduction rtype,
                const communicator& comm, const Rest&... rest) {
  return allreduce(static_cast<const void*>(send), static_cast<void*>(recv), count,
                   detail::datatype_of<T>(), rtype, comm, rest...);
}

// ---- reduce ----

// `recv` is used only at the root.
template <class... Rest>
event reduce(const void* send, void* recv, std::size_t count, datatype dtype, reduction rtype,
             int root, const communicator& comm, const Rest&... rest) {
  return detail::options(rest...).run(comm, [&](tdmComm_t on, tdmRequest_t* request) {
    return tdmIReduce(send, recv, count, detail::reduce_as(dtype), detail::to_op(rtype), root, on,
                      request);
  });
}
template <class T, class... Rest>
event reduce(const T* send, T* recv, std::size_t count, reduction rtype, int root,
             const communicator& comm, const Rest&... rest) {
  return reduce(static_cast<const void*>(send), static_cast<void*>(recv), count,
                detail::datatype_of<T>(), rtype, root, comm, rest...);
}

// ---- reduce_scatter ----

// `send` holds a block of `recv_count` for each rank.
template <class... Rest>
event reduce_scatter(const void* send, void* recv, std::size_t recv_count, datatype dtype,
                     reduction rtype, const communicator& comm, const Rest&... rest) {
  return detail::options(rest...).run(comm, [&](tdmComm_t on, tdmRequest_t* request) {
    return tdmIReduceScatter(send, recv, recv_count, detail::reduce_as(dtype), detail::to_op(rtype),
                             on, request);
  });
}
template <class T, class... Rest>
event reduce_scatter(const T* send, T* recv, std::size_t recv_count, reduction rtype,
                     const communicator& comm, const Rest&... rest) {
  return reduce_scatter(static_cast<const void*>(send), static_cast<void*>(recv), recv_count,
                        detail::datatype_of<T>(), rtype, comm, rest...);
}

// ---- broadcast ----

// From the root's `send` to the `recv` of all ranks.
template <class... Rest>
event broadcast(const void* send, void* recv, std::size_t count, datatype dtype, int root,
                const communicator& comm, const Rest&... rest) {
  const detail::moved as = detail::move_as(dtype);
  return detail::options(rest...).run(comm, [&](tdmComm_t on, tdmRequest_t* request) {
    return tdmIBroadcast(send, recv, count * as.width, as.type, root, on, request);
  });
}
template <class T, class... Rest>
event broadcast(const T* send, T* recv, std::size_t count, int root, const communicator& comm,
                const Rest&... rest) {
  return broadcast(static_cast<const void*>(send), static_cast<void*>(recv), count,
                   detail::datatype_of<T>(), root, comm, rest...);
}
// The same in place.
template <class... Rest>
event broadcast(void* buf, std::size_t count, datatype dtype, int root, const communicator& comm,
                const Rest&... rest) {
  return broadcast(static_cast<const void*>(buf), buf, count, dtype, root, comm, rest...);
}
template <class T, class... Rest>
event broadcast(T* buf, std::size_t count, int root, const communicator& comm,
                const Rest&... rest) {
  return broadcast(static_cast<void*>(buf), count, detail::datatype_of<T>(), root, comm, rest...);
}

// ---- allgather, allgatherv ----

// Block r of `recv` is `send` of rank r, which has recv_counts[r] elements. `send` may be this
// rank's block of `recv`.
template <class... Rest>
event allgatherv(const void* send, std::size_t send_count, void* recv,
                 const vector_class<std::size_t>& recv_counts, datatype dtype,
                 const communicator& comm, const Rest&... rest) {
  detail::require_one_each(recv_counts, comm, "allgatherv");
  if (recv_counts[static_cast<std::size_t>(comm.rank())] != send_count) {
    throw invalid_argument("allgatherv: send_count is not recv_counts of this rank");
  }
  const detail::moved as = detail::move_as(dtype);
  const detail::counts each = detail::times(recv_counts, as.width);
  return detail::options(rest...).run(comm, [&](tdmComm_t on, tdmRequest_t* request) {
    return tdmIAllGatherV(send, recv, each.data(), nullptr, as.type, on, request);
  });
}
// One buffer for each rank's block.
template <class... Rest>
event allgatherv(const void* send, std::size_t send_count, const vector_class<void*>& recv_bufs,
                 const vector_class<std::size_t>& recv_counts, datatype dtype,
                 const communicator& comm, const Rest&... rest) {
  detail::require_one_each(recv_counts, comm, "allgatherv");
  const detail::moved as = detail::move_as(dtype);
  const detail::counts each = detail::times(recv_counts, as.width);
  const detail::counts sizes = detail::times(recv_counts, get_datatype_size(dtype));
  auto all = std::make_shared<vector_class<char>>(detail::sum(sizes));
  if (recv_bufs.size() != sizes.size() ||
      recv_counts[static_cast<std::size_t>(comm.rank())] != send_count) {
    throw invalid_argument("allgatherv: expected one buffer per rank and send_count for this one");
  }
  return detail::options(rest...).run(
      comm,
      [&](tdmComm_t on, tdmRequest_t* request) {
        return tdmIAllGatherV(send, all->data(), each.data(), nullptr, as.type, on, request);
      },
      detail::unpack(all, recv_bufs, sizes));
}
template <class T, class... Rest>
event allgatherv(const T* send, std::size_t send_count, T* recv,
                 const vector_class<std::size_t>& recv_counts, const communicator& comm,
                 const Rest&... rest) {
  return allgatherv(static_cast<const void*>(send), send_count, static_cast<void*>(recv),
                    recv_counts, detail::datatype_of<T>(), comm, rest...);
}
template <class T, class... Rest>
event allgatherv(const T* send, std::size_t send_count, const vector_class<T*>& recv_bufs,
                 const vector_class<std::size_t>& recv_counts, const communicator& comm,
                 const Rest&... rest) {
  return allgatherv(static_cast<const void*>(send), send_count, detail::untyped(recv_bufs),
                    recv_counts, detail::datatype_of<T>(), comm, rest...);
}

// Blocks of equal size.
template <class... Rest>
event allgather(const void* send, void* recv, std::size_t send_count, datatype dtype,
                const communicator& comm, const Rest&... rest) {
  const detail::moved as = detail::move_as(dtype);
  return detail::options(rest...).run(comm, [&](tdmComm_t on, tdmRequest_t* request) {
    return tdmIAllGather(send, recv, send_count * as.width, as.type, on, request);
  });
}
template <class T, class... Rest>
event allgather(const T* send, T* recv, std::size_t send_count, const communicator& comm,
                const Rest&... rest) {
  return allgather(static_cast<const void*>(send), static_cast<void*>(recv), send_count,
                   detail::datatype_of<T>(), comm, rest...);
}
template <class... Rest>
event allgather(const void* send, const vector_class<void*>& recv_bufs, std::size_t send_count,
                datatype dtype, const communicator& comm, const Rest&... rest) {
  const detail::counts each(static_cast<std::size_t>(comm.size()), send_count);
  return allgatherv(send, send_count, recv_bufs, each, dtype, comm, rest...);
}
template <class T, class... Rest>
event allgather(const T* send, const vector_class<T*>& recv_bufs, std::size_t send_count,
                const communicator& comm, const Rest&... rest) {
  return allgather(static_cast<const void*>(send), detail::untyped(recv_bufs), send_count,
                   detail::datatype_of<T>(), comm, rest...);
}

// ---- alltoall, alltoallv ----

// Block s of `recv` is block `rank` of `send` of rank s. In place if both are the same buffer.
template <class... Rest>
event alltoall(const void* send, void* recv, std::size_t count, datatype dtype,
               const communicator& comm, const Rest&... rest) {
  const detail::moved as = detail::move_as(dtype);
  detail::bytes copy;
  if (send == recv) {
    const std::size_t size = count * get_datatype_size(dtype);
    copy = detail::packed({recv}, {size * static_cast<std::size_t>(comm.size())});
    send = copy->data();
  }
  return detail::options(rest...).run(
      comm,
      [&](tdmComm_t on, tdmRequest_t* request) {
        return tdmIAllToAll(send, recv, count * as.width, as.type, on, request);
      },
      [copy] {});
}
template <class T, class... Rest>
event alltoall(const T* send, T* recv, std::size_t count, const communicator& comm,
               const Rest&... rest) {
  return alltoall(static_cast<const void*>(send), static_cast<void*>(recv), count,
                  detail::datatype_of<T>(), comm, rest...);
}

template <class... Rest>
event alltoallv(const void* send, const vector_class<std::size_t>& send_counts, void* recv,
                const vector_class<std::size_t>& recv_counts, datatype dtype,
                const communicator& comm, const Rest&... rest) {
  detail::require_one_each(send_counts, comm, "alltoallv");
  detail::require_one_each(recv_counts, comm, "alltoallv");
  const detail::moved as = detail::move_as(dtype);
  const detail::counts sent = detail::times(send_counts, as.width);
  const detail::counts received = detail::times(recv_counts, as.width);
  detail::bytes copy;
  if (send == recv) {
    copy = detail::packed({recv}, {detail::sum(send_counts) * get_datatype_size(dtype)});
    send = copy->data();
  }
  return detail::options(rest...).run(
      comm,
      [&](tdmComm_t on, tdmRequest_t* request) {
        return tdmIAllToAllV(send, sent.data(), nullptr, recv, received.data(), nullptr, as.type,
                             on, request);
      },
      [copy] {});
}
template <class T, class... Rest>
event alltoallv(const T* send, const vector_class<std::size_t>& send_counts, T* recv,
                const vector_class<std::size_t>& recv_counts, const communicator& comm,
                const Rest&... rest) {
  return alltoallv(static_cast<const void*>(send), send_counts, static_cast<void*>(recv),
                   recv_counts, detail::datatype_of<T>(), comm, rest...);
}
// One buffer for each block.
template <class... Rest>
event alltoallv(const vector_class<void*>& send_bufs, const vector_class<std::size_t>& send_counts,
                const vector_class<void*>& recv_bufs, const vector_class<std::size_t>& recv_counts,
                datatype dtype, const communicator& comm, const Rest&... rest) {
  detail::require_one_each(send_counts, comm, "alltoallv");
  detail::require_one_each(recv_counts, comm, "alltoallv");
  if (send_bufs.size() != send_counts.size() || recv_bufs.size() != recv_counts.size()) {
    throw invalid_argument("alltoallv: expected one buffer per rank on both sides");
  }
  const detail::moved as = detail::move_as(dtype);
  const std::size_t bytes_each = get_datatype_size(dtype);
  const detail::counts sizes = detail::times(recv_counts, bytes_each);
  const detail::counts sent = detail::times(send_counts, as.width);
  const detail::counts received = detail::times(recv_counts, as.width);
  const auto out = detail::packed(send_bufs, detail::times(send_counts, bytes_each));
  const auto in = std::make_shared<vector_class<char>>(detail::sum(sizes));
  return detail::options(rest...).run(
      comm,
      [&](tdmComm_t on, tdmRequest_t* request) {
        return tdmIAllToAllV(out->data(), sent.data(), nullptr, in->data(), received.data(),
                             nullptr, as.type, on, request);
      },
      [out, done = detail::unpack(in, recv_bufs, sizes)] { done(); });
}
template <class T, class... Rest>
event alltoallv(const vector_class<T*>& send_bufs, const vector_class<std::size_t>& send_counts,
                const vector_class<T*>& recv_bufs, const vector_class<std::size_t>& recv_counts,
                const communicator& comm, const Rest&... rest) {
  return alltoallv(detail::untyped(send_bufs), send_counts, detail::untyped(recv_bufs), recv_counts,
                   detail::datatype_of<T>(), comm, rest...);
}

// ---- messages ----

// Messages from one rank to another arrive in the order sent; the receive must have the count and
// type of the send.
template <class... Rest>
event send(const void* buf, std::size_t count, datatype dtype, int peer, const communicator& comm,
           const Rest&... rest) {
  const detail::moved as = detail::move_as(dtype);
  return detail::options(rest...).run(comm, [&](tdmComm_t on, tdmRequest_t* request) {
    return tdmISend(buf, count * as.width, as.type, peer, 0, on, request);
  });
}
template <class T, class... Rest>
event send(const T* buf, std::size_t count, int peer, const communicator& comm,
           const Rest&... rest) {
  return send(static_cast<const void*>(buf), count, detail::datatype_of<T>(), peer, comm, rest...);
}
template <class... Rest>
event recv(void* buf, std::size_t count, datatype dtype, int peer, const communicator& comm,
           const Rest&... rest) {
  const detail::moved as = detail::move_as(dtype);
  return detail::options(rest...).run(comm, [&](tdmComm_t on, tdmRequest_t* request) {
    return tdmIRecv(buf, count * as.width, as.type, peer, 0, nullptr, on, request);
  });
}
template <class T, class... Rest>
event recv(T* buf, std::size_t count, int peer, const communicator& comm, const Rest&... rest) {
  return recv(static_cast<void*>(buf), count, detail::datatype_of<T>(), peer, comm, rest...);
}

// Operations start at once and wait for no other call, with or without a group.
inline void group_start() {}
inline void group_end() {}

}  // namespace ccl
