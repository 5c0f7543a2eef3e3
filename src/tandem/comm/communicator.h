// Communication between the ranks of a job: collectives, point-to-point messages, memory shared
// inside a node, and liveness of the ranks.
//
// Every rank calls the same collectives in the same order. Each message and each op header in
// shared memory carries {sequence, operation, type, count, root}. A rank that receives other values
// than its own call's fails the communicator on all ranks with an error that names both sides.
//
// Inside a node collectives use shared memory, between nodes messages; see docs/collectives.md.
// Buffers from mem_alloc() are reduced and copied in place, without staging.
//
// No wait is unlimited. Every wait ends with CommError when its deadline (Options::timeout) passes,
// when an awaited rank has left, or as soon as any rank has died. A monitor thread detects deaths:
// the end of a local process through its pidfd and its closed connections, of a remote one through
// the reset of its connections, and the loss of a host through TCP keep-alive. The first rank that
// detects a death notifies all others. After an error the communicator stays failed; shrink() makes
// a new one of the survivors.
//
// Thread-safety: one thread at a time calls a communicator, except for on_failure and life().
//
// Helpers built on the communicator are in texts.h, memory.h and life.h; the flight record is in
// failure/flight_recorder.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/comm/algorithms/call.h"
#include "tandem/comm/algorithms/selection.h"
#include "tandem/comm/algorithms/types.h"
#include "tandem/comm/algorithms/worker_plan.h"
#include "tandem/comm/failure/flight_recorder.h"
#include "tandem/comm/life.h"
#include "tandem/comm/network/transport_options.h"
#include "tandem/comm/node/node_memory.h"
#include "tandem/rendezvous/bootstrap.h"
#include "tandem/rendezvous/identity.h"

namespace tandem::rendezvous {
struct Agreement;
}

namespace tandem::comm {

struct Options {
  // Timeout of any wait (HF's ddp_timeout), start included.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  // Allowed silence of a host (its kernel answers nothing) before its ranks count as dead.
  std::chrono::milliseconds host_timeout = std::chrono::seconds(2);
  // Allowed silence of a process that is stopped on a host that answers; 0: no limit.
  std::chrono::milliseconds stall_timeout = std::chrono::seconds(10);
  // Called once, from the monitor thread, if the communicator has failed and `failure_grace` later
  // no CommError has been thrown to the caller. The caller's thread is then inside a kernel, and
  // this callback prints the message and ends the process. With a grace of 0 the first thread that
  // learns of the failure calls it, before any other thread wakes up. That is the most reliable way
  // to print the message under a launcher that kills all ranks as soon as one has died (Hydra does,
  // with SIGKILL).
  std::function<void(const std::string& message)> on_failure;
  std::chrono::milliseconds failure_grace = std::chrono::milliseconds(300);
  // Directory for the last operations, which are written when the communicator fails or
  // request_flight_records() was called (the error message contains the file name); empty: not
  // written.
  std::filesystem::path flight_record_folder;
  // Receives progress of a slow start ("waiting for ranks 2, 3 since 5 s").
  std::function<void(const std::string& line)> log;
  // Ranks share memory only if this text is equal as well (tests use it to make several "hosts" of
  // one machine).
  std::string node_id;
  // The transport of messages between ranks; equal on all of them. Liveness always uses tcp.
  TransportOptions transport;
  // Algorithms requested by name (CCL_ALLREDUCE and the like); the default gives the same bits
  // everywhere.
  Selection selection;
  // Approximate time for measuring the limits of the table of algorithms at the start; 0: fixed
  // limits. The shortest time of any rank counts. Never changes bits.
  std::chrono::milliseconds tuning{0};
  // A progress thread that advances started operations and messages, if a core is free for it;
  // describe() shows it.
  WorkerOptions worker;
  // Forces an implementation of the sums: "avx512", "avx2", "reference".
  std::string combine_kernels;
};

// Reads TANDEM_HOST_TIMEOUT and TANDEM_STALL_TIMEOUT, if set. Throws ConfigError.
void read_limits_of_silence(const Environment& environment, Options& options);

// See Communicator::shrink().
struct ShrinkOptions {
  std::vector<int> exclude;  // excluded ranks, in any order, equal on all ranks that continue
  // Fails the communicator first, on all ranks: calls in progress end with CommError, and live
  // ranks that do not arrive within the timeout are left out.
  bool abort = false;
  std::optional<std::chrono::milliseconds> timeout;  // default: that of the communicator
  std::optional<Options> options;  // options of the new communicator; default: those of this one
};

// The ranks that share one node's memory, in ascending order.
struct Node {
  int index = 0;  // among nodes(), which are ordered by their lowest rank
  std::string host;
  std::vector<int> members;  // ranks
};

struct Header;
struct Message;
class CommunicatorMemory;
class PluginFabric;
struct PendingCall;

// A message or a collective in progress; see start_send() and the other start_ functions. Copies
// refer to the same operation.
class Request {
 public:
  Request() = default;  // already complete
  bool done() const;

 private:
  friend class Communicator;
  explicit Request(std::shared_ptr<const Message> message) : message_(std::move(message)) {}
  explicit Request(std::shared_ptr<const PendingCall> call) : call_(std::move(call)) {}
  std::shared_ptr<const Message> message_;
  std::shared_ptr<const PendingCall> call_;
};

// A part of a wait that began at `since` and may take `limit` in total; this part lasts at most
// `max_wait`.
struct Turn {
  std::chrono::steady_clock::time_point since;
  std::chrono::milliseconds limit;
  std::chrono::microseconds max_wait;
};

class Communicator {
 public:
  // Collective over all ranks of the job: bootstraps, connects to every rank, and determines the
  // ranks of each node. A world of one opens no socket and starts no thread. Throws ConfigError,
  // CommError.
  static std::unique_ptr<Communicator> create(const rendezvous::Identity& identity,
                                              Options options);
  // The same with another bootstrap (for tests that run ranks as threads).
  // `interface` as in net/interfaces.h.
  static std::unique_ptr<Communicator> create(int rank, int world_size,
                                              const rendezvous::Bootstrap& bootstrap,
                                              bool loopback_only, Options options,
                                              const std::string& interface = "");
  // Without close() the other ranks are notified that this rank gave up.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const;
  int size() const;
  const std::vector<Node>& nodes() const;
  const Node& node() const;  // this rank's
  const Node& node_of(int rank) const;
  int local_rank() const;  // index of this rank among node().members
  int local_size() const { return static_cast<int>(node().members.size()); }
  // "4 ranks on 2 nodes: node0 (0, 1), node1 (2, 3); tcp, shared memory in a node".
  std::string describe() const;
  std::string describe_rank(int rank) const;  // "rank 3 (host node1, pid 4711)"

  // ---- collectives ---- `in` and `out` may be the same buffer if the function's comment allows
  // it, and otherwise do not overlap. Sizes of zero are allowed. Sums follow the binary tree of
  // summation_tree.h over the ranks. So the result has the same bits on all ranks, in every run,
  // and for every placement of the ranks; bfloat16 and float16 are summed in f32 and rounded once.
  // Sizes that do not fit throw InvalidArgument on the rank that passes them.
  //
  // Each function blocks. call() is the same with the types as values. start() begins an operation
  // and returns at once: work happens inside progress(), wait() and other calls, and in the
  // progress thread if there is one (Options::worker). Operations of a communicator run in the
  // order in which they were started.

  // Returns when every rank has called it.
  void barrier() { call(Call{}); }
  // `data` of `root` replaces that of all other ranks.
  template <class T>
  void broadcast(std::span<T> data, int root) {
    call(broadcast_call(data, root));
  }
  // out[i] = op over the ranks' in[i]. `in` may be `out`.
  template <class T>
  void all_reduce(std::span<const T> in, std::span<T> out, ReduceOp op) {
    call(all_reduce_call(in, out, op));
  }
  template <class T>
  void all_reduce(std::span<T> data, ReduceOp op) {
    call(all_reduce_call(std::span<const T>(data), data, op));
  }
  // all_reduce for `root` only; `out` may be empty elsewhere.
  template <class T>
  void reduce(std::span<const T> in, std::span<T> out, ReduceOp op, int root) {
    check_sizes("reduce", in.size(), rank() == root ? out.size() : in.size());
    call({Operation::kReduce, DataTypeOf<T>::kValue, op, root, in.size(), bytes_of(in),
          rank() == root ? bytes_of(out) : nullptr});
  }
  // out[i] = op over the ranks' in[rank()·n + i], n = out.size() equal on all ranks, in.size() =
  // size()·n. `out` may be this rank's block of `in`.
  template <class T>
  void reduce_scatter(std::span<const T> in, std::span<T> out, ReduceOp op) {
    call(reduce_scatter_call(in, out, op));
  }
  // out[r·n, (r+1)·n) = `in` of rank r, n = in.size() equal on all ranks, out.size() = size()·n.
  // `in` may be the own block of `out`.
  template <class T>
  void all_gather(std::span<const T> in, std::span<T> out) {
    call(all_gather_call(in, out));
  }
  // all_gather for `root` only; `out` may be empty elsewhere.
  template <class T>
  void gather(std::span<const T> in, std::span<T> out, int root) {
    if (rank() == root) check_sizes("gather", in.size() * ranks(), out.size());
    call({Operation::kGather, DataTypeOf<T>::kValue, ReduceOp::kNone, root, in.size(), bytes_of(in),
          rank() == root ? bytes_of(out) : nullptr});
  }
  // out = block rank() of `in` of `root`, n = out.size() equal on all ranks; `in` may be empty
  // elsewhere. At the root `out` may be its block of `in`.
  template <class T>
  void scatter(std::span<const T> in, std::span<T> out, int root) {
    if (rank() == root) check_sizes("scatter", out.size() * ranks(), in.size());
    call({Operation::kScatter, DataTypeOf<T>::kValue, ReduceOp::kNone, root, out.size(),
          rank() == root ? bytes_of(in) : nullptr, bytes_of(out)});
  }
  // Block s of `out` = block rank() of `in` of rank s. Not in place.
  template <class T>
  void all_to_all(std::span<const T> in, std::span<T> out) {
    check_sizes("all_to_all", in.size(), out.size());
    if (in.size() % ranks() != 0)
      check_sizes("all_to_all", in.size() / ranks() * ranks(), in.size());
    call({Operation::kAllToAll, DataTypeOf<T>::kValue, ReduceOp::kNone, 0, in.size() / ranks(),
          bytes_of(in), bytes_of(out)});
  }

  void call(const Call& call);
  Request start(const Call& call);
  template <class T>
  Request start_broadcast(std::span<T> data, int root) {
    return start(broadcast_call(data, root));
  }
  template <class T>
  Request start_all_reduce(std::span<T> data, ReduceOp op) {
    return start(all_reduce_call(std::span<const T>(data), data, op));
  }
  template <class T>
  Request start_reduce_scatter(std::span<const T> in, std::span<T> out, ReduceOp op) {
    return start(reduce_scatter_call(in, out, op));
  }
  template <class T>
  Request start_all_gather(std::span<const T> in, std::span<T> out) {
    return start(all_gather_call(in, out));
  }

  // Between group_begin() and group_end() the collectives above are only recorded. group_end() runs
  // all of them, and merges small all_reduces of one type and operation into one. Their requests
  // and results are complete then. Every rank groups the same calls.
  void group_begin();
  void group_end();

  // The ranks with the same `color` become a new communicator, ordered by (key, rank); a negative
  // color: none for this rank. Collective. It shares the connections of this one, fails with it,
  // and must not outlive it; both are called by one thread at a time. At most 50 exist at once.
  std::unique_ptr<Communicator> split(int color, int key);

  // Returns a communicator of the survivors: all ranks but those excluded and those that died or
  // ended, in the order of this one. It is the way to continue after a failure: every rank whose
  // call threw CommError calls shrink() on the failed communicator. Collective over all ranks that
  // continue; excluded ranks do not call it. This communicator keeps its state, usable or failed.
  // Its owner destroys it afterwards; its memory is valid until then. The two communicators share
  // nothing.
  //
  // Ranks that die meanwhile are left out too. A live rank that does not arrive within the timeout
  // is an error (CommError, on all) if the communicator has not failed. If it has failed, the rank
  // is left out and notified: its calls, including shrink(), throw CommError. If the network splits
  // into halves, each half continues without the other; a program that must not do so compares
  // size() with the number it needs. Throws InvalidArgument if this rank is excluded, a rank does
  // not exist, or started operations are incomplete. Throws ConfigError if the ranks exclude
  // different ranks, or if messages use an MPI, whose world cannot shrink.
  std::unique_ptr<Communicator> shrink(const ShrinkOptions& options = {});

  // A printable table of the algorithms by operation and size.
  std::string describe_selection() const;
  // The last operations of this rank, on this communicator and those that share its connections;
  // those of a world of one are not recorded. Other work (gradient buckets) is recorded by the code
  // that does it.
  FlightRecorder& flight_record() const;

  // ---- point to point ----
  // Messages between two ranks arrive in the order sent, on each of kChannels independent streams.
  // A receive must ask for exactly the type and count sent.
  static constexpr int kChannels = comm::kChannels;
  template <class T>
  void send(std::span<const T> data, int peer, int channel = 0) {
    wait(start_send(data, peer, channel));
  }
  template <class T>
  void receive(std::span<T> data, int peer, int channel = 0) {
    wait(start_receive(data, peer, channel));
  }
  // Non-blocking forms. `data` must stay valid and unchanged until the request is done. A sent
  // message is done when the transport has accepted it. Work happens inside progress(), wait() and
  // the blocking calls.
  template <class T>
  Request start_send(std::span<const T> data, int peer, int channel = 0) {
    return start_send_bytes(std::as_bytes(data), DataTypeOf<T>::kValue, data.size(), peer, channel);
  }
  template <class T>
  Request start_receive(std::span<T> data, int peer, int channel = 0) {
    return start_receive_bytes(std::as_writable_bytes(data), DataTypeOf<T>::kValue, data.size(),
                               peer, channel);
  }
  // The same with the type as a value; `data` holds `count` elements of it.
  Request start_send_bytes(std::span<const std::byte> data, DataType type, std::size_t count,
                           int peer, int channel = 0);
  Request start_receive_bytes(std::span<std::byte> data, DataType type, std::size_t count, int peer,
                              int channel = 0);
  // Waits at most Options::timeout, or `limit`; a longer wait fails the communicator on all ranks.
  void wait(const Request& request);
  void wait(const Request& request, std::chrono::milliseconds limit);
  // wait() in parts, for callers with other work in between; returns whether it is done. Conditions
  // that end wait() with CommError, its limit included, end a part with it too.
  bool wait_a_turn(const Request& request, const Turn& turn);
  // Waits at most `max_wait`; returns whether it is done. Ignores deadlines.
  bool wait_for(const Request& request, std::chrono::microseconds max_wait);
  // Moves as much as possible; sleeps at most `max_wait` for something to move. Throws CommError
  // after a failure.
  void progress(std::chrono::microseconds max_wait = {});

  // ---- inside a node ----
  // Waits until `flag`, which rank `writer` raises, reaches `target`: brief spinning, then a futex.
  // `what` completes the error message "… waited 3.0 s for <what>".
  void wait_for_flag(FlagLine& flag, std::uint32_t target, int writer, std::string_view what);

  // ---- liveness ----
  const Options& options() const;
  // Liveness of the ranks and the means to give up; shared with the communicators split from this
  // one and the one it was split from.
  Life& life() const;
  // Sends the goodbye: after it the end of this rank is not a failure for the others. Idempotent;
  // no other call may follow.
  void close();
  // For waits of other libraries: throws CommError (and notifies all ranks) if `since` is longer
  // ago than the timeout, the communicator failed, or `peer` left. peer < 0: no particular rank.
  void check_wait(std::chrono::steady_clock::time_point since, int peer, std::string_view what);

  struct State;  // internal

 private:
  explicit Communicator(std::unique_ptr<State> state);
  friend CommunicatorMemory share_with_node(Communicator& communicator, NodeMemory memory);
  friend CommunicatorMemory mem_replace(Communicator& communicator, std::span<std::byte> pages,
                                        net::FileDescriptor& file);
  friend NodeMemory share_node_memory(Communicator& communicator, std::size_t bytes);
  static std::unique_ptr<Communicator> connect(std::unique_ptr<State> state,
                                               const rendezvous::Bootstrap& bootstrap,
                                               bool loopback_only, const std::string& interface,
                                               std::unique_ptr<PluginFabric> plugin);
  static std::unique_ptr<Communicator> alone(std::unique_ptr<State> state);
  void use_plugin(std::unique_ptr<PluginFabric> plugin);
  void send_challenges();
  template <class T>
  static std::byte* bytes_of(std::span<T> data) {
    return const_cast<std::byte*>(reinterpret_cast<const std::byte*>(data.data()));
  }
  std::size_t ranks() const { return static_cast<std::size_t>(size()); }
  static void check_sizes(const char* operation, std::size_t expected, std::size_t found);
  template <class T>
  Call broadcast_call(std::span<T> data, int root) {
    return {Operation::kBroadcast, DataTypeOf<T>::kValue, ReduceOp::kNone, root,
            data.size(),           bytes_of(data),        bytes_of(data)};
  }
  template <class T>
  Call all_reduce_call(std::span<const T> in, std::span<T> out, ReduceOp op) {
    check_sizes("all_reduce", in.size(), out.size());
    return {Operation::kAllReduce, DataTypeOf<T>::kValue, op, 0, in.size(),
            bytes_of(in),          bytes_of(out)};
  }
  template <class T>
  Call reduce_scatter_call(std::span<const T> in, std::span<T> out, ReduceOp op) {
    check_sizes("reduce_scatter", out.size() * ranks(), in.size());
    return {Operation::kReduceScatter,
            DataTypeOf<T>::kValue,
            op,
            0,
            out.size(),
            bytes_of(in),
            bytes_of(out)};
  }
  template <class T>
  Call all_gather_call(std::span<const T> in, std::span<T> out) {
    check_sizes("all_gather", in.size() * ranks(), out.size());
    return {Operation::kAllGather, DataTypeOf<T>::kValue, ReduceOp::kNone, 0, in.size(),
            bytes_of(in),          bytes_of(out)};
  }
  static std::unique_ptr<Communicator> finish(std::unique_ptr<State> state);
  void forget_operations();
  void check_may_shrink(const ShrinkOptions& options) const;
  std::unique_ptr<Communicator> continue_with(int new_rank, rendezvous::Agreement agreement,
                                              const Options& options);
  Header stream_header(DataType type, std::size_t count, std::size_t bytes, int channel) const;

  std::unique_ptr<State> state_;
};

}  // namespace tandem::comm
