// The internal state of Communicator, shared by its source files.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "tandem/comm/algorithms/task.h"
#include "tandem/comm/collectives/comm_context.h"
#include "tandem/comm/communicator.h"
#include "tandem/comm/node/node_channel.h"
#include "tandem/comm/node/node_tasks.h"

namespace tandem::comm {

// An operation in progress: its number among those of its communicator, the hash of the calls up to
// it (across nodes; else 0), and its entry in the flight record.
struct Begun {
  std::uint64_t sequence = 0;
  std::uint64_t history = 0;
  FlightRecorder::Ticket ticket = 0;
};

// A collective that has been started.
struct PendingCall {
  Call call;
  Begun begun;
  std::unique_ptr<CommTask> task;  // null while it is part of a group
  std::atomic<bool> done{false};   // a progress thread may have completed it
};

// A descriptor sent by another rank of the node.
struct DescriptorOfRank {
  net::FileDescriptor file;
  std::size_t bytes = 0;  // size of a memory file
};

struct Communicator::State {
  Options options;
  int rank = 0;
  int size = 1;
  std::vector<int> members;  // rank of the job, by rank
  std::vector<Node> nodes;
  std::vector<int> node_index;  // by rank
  int local_rank = 0;
  bool closed = false;
  std::shared_ptr<CommContext> comm_context;  // never null
  int context_number =
      0;  // number of this communicator among those that share the connections; 0: the first
  const kernels::CombineKernels* kernels = nullptr;

  std::uint64_t sequence = 0;  // number of the next collective
  // Initial value of the hashes: the same on all ranks of the communicator, and different for every
  // other communicator that they were in.
  std::uint64_t identity = 1;
  std::uint64_t history = 1;  // hash_of_calls() so far; kept across nodes only
  void identify(std::uint64_t as) { identity = history = as; }
  struct StreamCounters {
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
  };
  std::vector<StreamCounters> streams;  // [peer · kChannels + channel]

  // Channel inside the node; none if this rank is alone there.
  std::unique_ptr<NodeMemory> channel_memory;
  std::shared_ptr<NodeChannel> channel;
  bool may_spin = true;  // every rank of the node has a core

  // The summation tree over all ranks, for this node and as a whole.
  SumProgram tree;                        // over all ranks
  std::vector<SumProgram> node_programs;  // the node's largest subtrees, over its local ranks
  std::vector<Subtree> partials;          // partials of all nodes, in tree order; owner: the node
  SumProgram partial_tree;                // over `partials`
  bool aligned = false;                   // every node's ranks are one subtree
  int rails = 1;  // ranks per node that use the network: the smallest node's

  Limits limits;              // for the table of algorithms
  std::string tuning;         // source of the limits
  bool worker_asked = false;  // some rank requests a progress thread

  std::deque<std::shared_ptr<PendingCall>> pending;
  std::vector<std::shared_ptr<const Message>> outgoing;  // sends that may still need progress
  int group_depth = 0;
  std::vector<std::shared_ptr<PendingCall>> grouped;

  void group_nodes();
  void plan_sums();
  void open_channel();
  void start_worker(Communicator& communicator);
  // The first exchange between connected ranks, followed by the measurement of the limits.
  // Collective.
  void tune(Communicator& communicator);
  void open_node_streams();
  NodeMemory share_memory(std::size_t bytes);
  NodeMemory share_file(const net::FileDescriptor& file, SharedSegment own);
  std::vector<DescriptorOfRank> exchange_descriptors(const net::FileDescriptor& own,
                                                     std::size_t bytes);
  const Peer& peer(int r) const {
    return comm_context->peers[static_cast<std::size_t>(members[static_cast<std::size_t>(r)])];
  }
  const Peer& self() const { return peer(rank); }
  int world(int r) const { return members[static_cast<std::size_t>(r)]; }
  const std::vector<int>& node_members() const {
    return nodes[static_cast<std::size_t>(node_index[static_cast<std::size_t>(rank)])].members;
  }
  std::uint8_t channel_number(int stream) const {
    return static_cast<std::uint8_t>(context_number * (kChannels + 1) + stream);
  }
  void check_open() const;
  void check_peer(int peer, std::string_view operation) const;

  void record_end(const Message& message, FlightRecorder::Ticket ticket);
  // A collective begins (not in a world of one).
  Begun begin(const Call& call);

  // ---- progress ----
  std::unique_ptr<CommTask> make_task(const Call& call, const Begun& begun);
  // Advances the started collectives, oldest first.
  Progress advance_pending();
  // Returns true if sends in flight need this rank's help; removes completed ones.
  bool has_outgoing();
  // Advances `task` until it is done, for at most `limit`; `describe` names it in errors.
  void drive(CommTask& task, FunctionRef<std::string()> describe, std::chrono::milliseconds limit);
  // The same for one part of a wait; returns whether the task is done.
  bool drive_for(CommTask& task, FunctionRef<std::string()> describe, const Turn& turn);
  // Sleeps until a message or a neighbour's step may have arrived.
  void poll_timeout(std::chrono::microseconds longest, bool for_messages);
  // Throws CommError if nothing more can arrive. `since`: start of the wait. May advance the task,
  // and returns how far.
  Progress check_wait(std::chrono::steady_clock::time_point since, CommTask& task,
                      FunctionRef<std::string()> describe, std::chrono::milliseconds limit);
  // The same for waits without a task; see Communicator::check_wait().
  void check_wait_for_rank(std::chrono::steady_clock::time_point since, int peer,
                           std::string_view what);
  // Description of data that does not reach its live host; empty: none known.
  std::string find_stall();
  std::chrono::steady_clock::time_point last_look_for_stalls{};
  // Ends a wait that cannot succeed: makes `message` the failure on all ranks and throws the first
  // known failure.
  [[noreturn]] void fail(const std::string& message, const std::string& context);
};

}  // namespace tandem::comm
