// The ranks of a job talking to each other: collectives, point-to-point messages, memory shared
// inside a node, and the knowledge of who is alive.
//
// Every rank calls the same collectives in the same order. Each message carries {sequence,
// operation, type, count, root}; a receiver that expected something else fails the communicator on
// all ranks with an error that names both sides.
//
// Nothing waits for ever: every wait ends with CommError when its deadline (Options::timeout)
// passes, when a rank it needs has left, or as soon as any rank died. Death is seen by a monitor
// thread: the end of a local process through its pidfd and its closed connections, that of a remote
// one through the reset of its connections, a vanished host through TCP keep-alive. The first rank
// that knows tells all the others. After an error the communicator stays failed; only rendezvous
// makes a new one.
//
// Thread-safety: one thread at a time calls a communicator; on_failure and abort() are the
// exceptions.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/comm/node_memory.h"
#include "tandem/comm/transport_options.h"
#include "tandem/comm/types.h"
#include "tandem/rendezvous/exchange.h"
#include "tandem/rendezvous/identity.h"

namespace tandem::comm {

struct Options {
  // How long any wait may take (HF's ddp_timeout), start included.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  // How long a host may be silent (no answer to TCP keep-alive) before its ranks count as dead.
  std::chrono::milliseconds host_timeout = std::chrono::seconds(5);
  // Called once, from the monitor thread, when the communicator has failed and `failure_grace` later no CommError has yet
  // been thrown to the caller: its thread is busy computing, and this is the place to print the message and end the process.
  // With a grace of 0 it is called by whichever thread learns of the failure, before anybody else wakes up: the surest way
  // to get a word out under a launcher that kills all ranks as soon as one has died (Hydra does, with SIGKILL).
  std::function<void(const std::string& message)> on_failure;
  std::chrono::milliseconds failure_grace = std::chrono::milliseconds(300);
  // Receives progress of a slow start ("waiting for ranks 2, 3 since 5 s").
  std::function<void(const std::string& line)> log;
  // Ranks share memory only if this text agrees as well (tests make several "hosts" of one machine
  // with it).
  std::string node_id;
  // What carries messages between ranks; equal on all of them. Life and death stay with tcp.
  TransportOptions transport;
};

// The ranks that share one node's memory, in ascending order.
struct Node {
  int index = 0;  // among nodes(), which are ordered by their lowest rank
  std::string host;
  std::vector<int> members;  // ranks
};

struct Message;
class Collective;

// A message on its way; see start_send() and start_receive(). Copies refer to the same message.
class Request {
 public:
  Request() = default;  // already complete
  bool done() const;

 private:
  friend class Communicator;
  explicit Request(std::shared_ptr<const Message> message) : message_(std::move(message)) {}
  std::shared_ptr<const Message> message_;
};

class Communicator {
 public:
  // Collective over all ranks of the job: meets them, connects to each, finds out who shares a
  // node. A world of one opens no socket and starts no thread. Throws ConfigError, CommError.
  static std::unique_ptr<Communicator> create(const rendezvous::Identity& identity,
                                              Options options);
  // The same with another way to exchange the ranks' cards (tests run ranks as threads with it).
  static std::unique_ptr<Communicator> create(int rank, int world_size,
                                              const rendezvous::Exchange& exchange,
                                              bool loopback_only, Options options);
  // Without close() the other ranks are told that this rank gave up.
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
  std::string describe()
      const;  // "4 ranks on 2 nodes: node0 (0, 1), node1 (2, 3); tcp, shared memory in a node"
  std::string describe_rank(int rank) const;  // "rank 3 (host node1, pid 4711)"

  // ---- collectives; blocking ----
  // Returns when every rank has called it.
  void barrier();
  // `data` of `root` replaces that of all others. Binomial tree.
  template <class T>
  void broadcast(std::span<T> data, int root) {
    broadcast_bytes(std::as_writable_bytes(data), DataTypeOf<T>::kValue, data.size(), root);
  }
  // out[r·n, (r+1)·n) = `in` of rank r, n = in.size() equal on all ranks, out.size() = size()·n.
  // `in` may be the own block of `out`. Every rank sends its block to each other rank.
  template <class T>
  void all_gather(std::span<const T> in, std::span<T> out) {
    all_gather_bytes(std::as_bytes(in), std::as_writable_bytes(out), DataTypeOf<T>::kValue,
                     in.size());
  }
  // all_gather for `root` only; `out` may be empty elsewhere.
  template <class T>
  void gather(std::span<const T> in, std::span<T> out, int root) {
    gather_bytes(std::as_bytes(in), std::as_writable_bytes(out), DataTypeOf<T>::kValue, in.size(),
                 root);
  }
  // data[i] = op over the ranks' data[i], in place; f32, f64, i32, i64, u64. Sums follow the binary
  // tree of summation_tree.h over the ranks, so the result is the same bits on all of them and from
  // run to run. Reduce-scatter by slices, then all-gather: each rank sends and receives
  // 2·(size−1)/size of the buffer.
  template <class T>
  void all_reduce(std::span<T> data, ReduceOp op) {
    all_reduce_bytes(std::as_writable_bytes(data), DataTypeOf<T>::kValue, data.size(), op);
  }
  // Texts of any length, which may differ between the ranks. gather_texts returns nothing except at
  // `root`.
  std::string broadcast_text(std::string_view text, int root);
  std::vector<std::string> all_gather_texts(std::string_view text);
  std::vector<std::string> gather_texts(std::string_view text, int root);
  // All ranks must hold the same `value` of `name` ("flags", "dataset fingerprint"); otherwise
  // every rank throws a ConfigError that names a differing rank and both values. Long values are
  // compared whole and shown shortened.
  void agree(std::string_view name, std::string_view value);

  // ---- point to point ----
  // Messages between two ranks arrive in the order sent, on each of kChannels independent streams.
  // A receive must ask for exactly the type and count sent.
  static constexpr int kChannels = 4;
  template <class T>
  void send(std::span<const T> data, int peer, int channel = 0) {
    wait(start_send(data, peer, channel));
  }
  template <class T>
  void receive(std::span<T> data, int peer, int channel = 0) {
    wait(start_receive(data, peer, channel));
  }
  // Non-blocking forms. `data` must stay valid and untouched until the request is done. A sent
  // message is done when it has been handed to the transport. Work happens inside progress(),
  // wait() and the blocking calls.
  template <class T>
  Request start_send(std::span<const T> data, int peer, int channel = 0) {
    return start_send_bytes(std::as_bytes(data), DataTypeOf<T>::kValue, data.size(), peer, channel);
  }
  template <class T>
  Request start_receive(std::span<T> data, int peer, int channel = 0) {
    return start_receive_bytes(std::as_writable_bytes(data), DataTypeOf<T>::kValue, data.size(),
                               peer, channel);
  }
  void wait(const Request& request);
  // Moves what can be moved; sleeps at most `patience` for something to move. Throws CommError
  // after a failure.
  void progress(std::chrono::microseconds patience = {});

  // ---- inside a node ----
  // Collective over the ranks of this node: every rank contributes a zeroed segment of `bytes` (its
  // own wish, may be 0).
  NodeMemory share_node_memory(std::size_t bytes);
  // Waits until `flag`, which rank `writer` raises, reaches `target`: brief spinning, then a futex.
  // `what` completes the error message "… waited 3.0 s for <what>".
  void wait_for_flag(FlagLine& flag, std::uint32_t target, int writer, std::string_view what);

  // ---- life and death ----
  const Options& options() const;
  bool failed() const;
  void throw_if_failed();  // CommError with the first failure known
  // Says goodbye: from here on this rank's end is no failure for the others. Idempotent; nothing
  // may follow it.
  void close();
  // Tells all ranks that this one gives up because of `reason` (an error of its own); they throw
  // CommError. Any thread.
  void abort(std::string_view reason) noexcept;
  // For waits of other libraries: throws CommError (and tells all ranks) when `since` is longer ago
  // than the timeout, the communicator failed, or `peer` left. peer < 0: nobody in particular.
  void check_wait(std::chrono::steady_clock::time_point since, int peer, std::string_view what);

 private:
  struct State;
  explicit Communicator(std::unique_ptr<State> state);
  static std::unique_ptr<Communicator> connect(std::unique_ptr<State> state,
                                               const rendezvous::Exchange& exchange,
                                               bool loopback_only, const std::string& interface);
  void use_plugin(const std::string& source_address);
  void greet_all();
  Collective begin(Operation operation, DataType type, std::size_t count, ReduceOp op, int root);
  void finish(Collective& collective);
  void broadcast_bytes(std::span<std::byte> data, DataType type, std::size_t count, int root);
  void all_gather_bytes(std::span<const std::byte> in, std::span<std::byte> out, DataType type,
                        std::size_t count);
  void gather_bytes(std::span<const std::byte> in, std::span<std::byte> out, DataType type,
                    std::size_t count, int root);
  void all_reduce_bytes(std::span<std::byte> data, DataType type, std::size_t count, ReduceOp op);
  Request start_send_bytes(std::span<const std::byte> data, DataType type, std::size_t count,
                           int peer, int channel);
  Request start_receive_bytes(std::span<std::byte> data, DataType type, std::size_t count, int peer,
                              int channel);

  std::unique_ptr<State> state_;
};

}  // namespace tandem::comm
