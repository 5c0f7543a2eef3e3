// The data parallel engine: how the gradients of all logical shards become one mean whose bits do
// not depend on how many ranks did the work. It is built for one set of ranks, around the memory
// that outlives them (model_state.h), and ends with their communicator.
//
// The global batch of a step is cut into L logical shards (one per-device batch each). Rank r of W
// owns a contiguous run of them: L / W each, the first L % W ranks one more. The gradient of a step
// is
//     reduced = (g_0 + … + g_{L−1}) · (1/L),   added along the fixed binary tree of
//     comm/algorithms/summation_tree.h over the shards,
// f32 additions, one final multiplication by the f32 value of 1/L. A rank adds what the tree lets
// it add by itself (the largest subtrees inside its run: "partials"); the owner of each slice of
// the gradient adds the partials in tree order. The additions do not depend on the rank that does
// them, so W, nodes and transports never change a bit.
//
// With bf16_gradients every node of the tree is rounded to bf16 once: the shards' gradients (the
// leaves), each sum after its f32 addition, and the root before the multiplication. The rounding
// belongs to the tree, not to the network, so the bits are again the same for any W with the same L
// (and other bits for another L); what travels between nodes are tree nodes, 2 bytes per element
// instead of 4. Inside a node of the cluster nothing changes: gradients are f32 in shared memory.
//
// Memory. One set of gradient arenas per rank, readable by the whole node; the first one of the
// node leader is ModelState::gradient(), where the mean ends up: no rank but its owner reads a
// slice when it is overwritten. A world of one uses ordinary memory.
//
// One step:
//     for shard in shards():                  in ascending order
//         backward writes gradient(shard)     overwrite or accumulate (micro-batches), as the
//                                             caller likes;
//         gradient_ready(shard, end)          as elements [0, end) become final, up to all of them
//     finish()                                reduced_gradient() and squared_norm() are valid
//     update()                                each node updates its copy once, its ranks share the
//                                             work; all ranks see the new weights
//
// After a CommError the engine is unusable. The surviving ranks build a new one on the same state
// and bring it to the end of a step (elastic jobs):
//     finish_update()                         completes the update that was interrupted on the node
//     synchronize_state()                     nodes that had not begun it get the newer state
//
// gradient_ready() also moves whatever can move without waiting: this rank's slices of buckets that
// are complete on the node are reduced straight out of the other ranks' arenas, and parts for other
// nodes are sent. So communication overlaps with the rest of backward, in the caller's thread and
// thread pool.
//
// Several nodes. Each rank r reduces a slice of a bucket (slice_of_bucket). For each other node,
// the local rank (r mod node size) there computes that node's partials of the slice in tree order
// and sends them to r; r adds all nodes' partials in tree order and sends the reduced slice back to
// the same rank, which stores it for its node. All local ranks drive the network.
//
// Thread-safety: one caller per rank. Errors: CommError from the communicator; InvalidArgument from
// the constructor.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/buffer.h"
#include "tandem/dist/model_state.h"
#include "tandem/dist/shard_plan.h"
#include "tandem/dist/state_observer.h"
#include "tandem/kernels/context.h"

namespace tandem::dist {

// Memory for messages between nodes, which outlives the engines that use it, one at a time: what
// has been touched once is not touched for the first time again, while other nodes wait. Given back
// by an engine that has no other nodes.
class MessageMemory {
 public:
  // For a node that is about to be in a view with others: about what it needs when there is one.
  void touch(std::size_t model_elements);
  // `bytes`, what is in them is of no use. Memory taken before becomes invalid.
  std::span<std::byte> take(std::size_t bytes);

 private:
  Buffer memory_;
};

struct GradientEngineOptions {
  int logical_shards = 0;       // L; 0: the world size. At least the world size.
  bool bf16_gradients = false;  // round every node of the gradient's tree to bf16
  std::size_t bucket_elements = std::size_t{1} << 20;  // rounded up to whole chunks; 4 MiB
  // Source of an elastic job's state for joining nodes. It is notified when it may be
  // read; it must outlive the engine.
  std::optional<std::reference_wrapper<StateObserver>> source = {};
  // Must outlive the engine, which otherwise has its own.
  std::optional<std::reference_wrapper<MessageMemory>> messages = {};
};

struct SyncResult {
  std::uint64_t step = 0;  // that all have now
  bool moved = false;      // weights and optimizer state were sent
};

// The state that a node brings to GradientEngine::synchronize_state().
struct OwnPast {
  // On the node leader: what belongs to its state and is kept elsewhere, opaque here.
  std::string training_progress = {};
  // Called on the leaders of nodes that get a newer state, with its progress, before it counts: a
  // callee that keeps it there has both, or can see from the step which one it has.
  std::function<void(const std::string&)> arrives = {};
  // On the leader of a node that has learned the state while the others trained; or null.
  LearnedState* learner = nullptr;
};

// Bytes that the ranks of one node hold together, all of them touched in a step.
struct MemoryPerNode {
  std::size_t weights = 0;          // f32, frozen ones included unless they are operands in bf16
  std::size_t trained_weights = 0;  // the trained ones among them
  std::size_t bf16_weights = 0;     // copy of the trained ones, and frozen operands
  std::size_t frozen_operands = 0;  // the latter, which exist in bf16 alone
  std::size_t optimizer_state = 0;  // Adam's moments
  std::size_t gradients = 0;        // the arenas of all ranks
  std::size_t messages = 0;         // to and from other nodes
  std::size_t own_roots = 0;        // what of them is filled already: this rank's roots in bf16
  std::size_t undo = 0;             // what lets others finish an update
  bool shared = false;              // in memory shared by several ranks, messages apart

  std::size_t total() const {
    return weights + bf16_weights + optimizer_state + gradients + messages + undo;
  }
};

class GradientEngine {
 public:
  // In a world of one the memory is ordinary. The communicator, the state, and the threads and
  // kernels of `context` must outlive the object. Collective; every rank of a node has mapped the
  // same state.
  GradientEngine(comm::Communicator& communicator, const kernels::Context& context,
                 ModelState& model, const GradientEngineOptions& options);
  ~GradientEngine();
  GradientEngine(const GradientEngine&) = delete;
  GradientEngine& operator=(const GradientEngine&) = delete;

  int logical_shards() const;
  Range shards() const;      // this rank's run
  bool node_leader() const;  // exactly one rank per node: the one that fills the weights at start

  // Collective: the weights of rank 0's node replace those of every other node; after it all ranks
  // see them. The bf16 copy is the caller's: convert owned_ranges(), then publish().
  void broadcast_weights();

  // Where backward of `shard` (one of shards()) writes: all elements, not cleared by this class.
  // Shards of a run may reuse each other's memory once they are complete: write a shard only after
  // the previous one is ready to the end.
  std::span<float> gradient(std::size_t shard) const;
  // Elements [0, end) of gradient(shard) will not change any more in this step. Publishes them and
  // makes progress.
  void gradient_ready(std::size_t shard, std::size_t end);
  // All shards are ready to the end: completes the reduction on all nodes.
  void finish();

  // Valid from finish() to the end of update(): the mean over the shards, all elements, on every
  // rank.
  std::span<const float> reduced_gradient() const;
  // Sum of squares of the reduced gradient in f64: one partial per chunk, partials added in index
  // order. Same bits on all ranks, for any W. Valid as long. No communication.
  double squared_norm() const;

  // The parts of the flat layout that this rank updates; over the ranks of a node they cover
  // everything exactly once. Boundaries are multiples of ModelState::kChunk (or the end).
  const std::vector<Range>& owned_ranges() const;
  // Waits until all ranks of the node have called it: what they wrote in their owned ranges is
  // complete and readable, the gradient arenas writable again.
  void publish();

  // The update of the step: this rank's owned ranges, then publish(). `record` as in
  // ModelState::begin_update(). Throws CommError when a rank of the node failed; its part is then
  // missing, and finish_update() of another engine does it.
  void update(const kernels::Context& context, optim::Optimizer& optimizer,
              const optim::OptimizerStep& step, std::span<const double> record);
  // Collective over the node. If an update of the state was interrupted, the ranks of the node
  // finish it together; it has the bits that it would have had. All ranks that worked on it must be
  // among them or dead. Returns whether there was one. May itself be interrupted and finished by
  // others. Throws CommError where the state keeps nothing for it (one rank on a node, or without
  // pieces).
  bool finish_update(const kernels::Context& context, optim::Optimizer& optimizer);
  // Collective over all ranks, after finish_update(): nodes that are behind the newest get its
  // weights, optimizer state, record and progress. A node keeps its state until the newer state has
  // arrived completely and its checksum is right. Meanwhile it needs memory for another copy,
  // unless it has only initial weights. A node that already received the state gets only the
  // record, the training progress and the checksum. If the checksum does not match, it gets the
  // full state. Throws CommError when the checksum of what was sent is wrong.
  SyncResult synchronize_state(const OwnPast& own = {});

  // Gathers the values of all shards, the same number n of each: all[L · n], in the order of the
  // shards. Collective. Later calls with the same n allocate nothing.
  void gather(std::span<const double> own_values, std::vector<double>& all);
  // The same in place for larger data: all[L · n] holds the values of this rank's shards at their
  // place, and afterwards those of all shards. Collective.
  void gather(std::span<float> all);

  // For the present ranks; with `workers` > 0, for a job of that many ranks on this node alone.
  MemoryPerNode memory_of_node(int workers = 0) const;
  std::string describe() const;  // shards, ranks, buckets, arenas; one line
  // From which NUMA node the memory of this rank's slices and arenas is asked for; one line, empty
  // where there is but one node or one rank.
  std::string describe_position() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem::dist
