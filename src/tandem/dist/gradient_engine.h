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
// the gradient adds the partials in tree order. Whoever does an addition, it is the same addition:
// W, nodes and transports never change a bit.
//
// With bf16_gradients every node of the tree is rounded to bf16 once: the shards' gradients (the
// leaves), each sum after its f32 addition, and the root before the multiplication. The rounding
// belongs to the tree, not to the network, so the bits are again the same for any W with the same L
// (and other bits for another L); what travels between nodes are tree nodes, 2 bytes per element
// instead of 4. Inside a node of the cluster nothing changes: gradients are f32 in shared memory.
//
// Memory. One set of gradient arenas per rank, readable by the whole node; the first one of the
// node leader is ModelState::gradient(), where the mean ends up: a slice is read by nobody but its
// owner when it is overwritten. A world of one uses ordinary memory.
//
// One step:
//     for shard in shards():                  in ascending order
//         backward writes gradient(shard)     overwrite or accumulate (micro-batches), as the
//                                             caller likes;
//         gradient_ready(shard, end)          as elements [0, end) become final, up to all of them
//     finish()                                reduced_gradient() and squared_norm() are valid
//     the optimizer updates the weights in owned_ranges(): each node its copy once, its ranks share
//                                             the work
//     publish()                               everybody sees the new weights; ends the step, also a
//                                             skipped one
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
#include <memory>
#include <span>
#include <vector>

#include "tandem/comm/api/communicator.h"
#include "tandem/dist/model_state.h"
#include "tandem/dist/shard_plan.h"
#include "tandem/kernels/context.h"

namespace tandem::dist {

struct GradientEngineOptions {
  int logical_shards = 0;       // L; 0: the world size. At least the world size.
  bool bf16_gradients = false;  // round every node of the gradient's tree to bf16
  std::size_t bucket_elements = std::size_t{1} << 20;  // rounded up to whole chunks; 4 MiB
};

// Bytes that the ranks of one node hold together, all of them touched in a step.
struct MemoryPerNode {
  std::size_t weights = 0;          // f32
  std::size_t bf16_weights = 0;     // their copy
  std::size_t optimizer_state = 0;  // Adam's moments
  std::size_t gradients = 0;        // the arenas of all ranks
  std::size_t messages = 0;         // to and from other nodes
  bool shared = false;              // in memory shared by several ranks, messages apart

  std::size_t total() const {
    return weights + bf16_weights + optimizer_state + gradients + messages;
  }
};

class GradientEngine {
 public:
  // `communicator` null or of size 1: one process, ordinary memory. It, the state, and the threads
  // and kernels of `context` must outlive the object. Collective; every rank of a node has mapped
  // the same state.
  GradientEngine(comm::Communicator* communicator, const kernels::Context& context,
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

  // Valid from finish() to publish(): the mean over the shards, all elements, on every rank.
  std::span<const float> reduced_gradient() const;
  // Sum of squares of the reduced gradient in f64: one partial per chunk, partials added in index
  // order. Same bits on all ranks, for any W. Valid from finish() to publish(). No communication.
  double squared_norm() const;

  // The parts of the flat layout that this rank updates; over the ranks of a node they cover
  // everything exactly once. Boundaries are multiples of ModelState::kChunk (or the end).
  const std::vector<Range>& owned_ranges() const;
  // Waits until all ranks of the node have called it: the updated weights are complete and
  // readable, the gradient arenas writable again.
  void publish();

  // The sum over all shards, along the same tree, of one value per own shard (losses). Collective;
  // same bits for any W.
  double sum_over_shards(std::span<const double> own_values);

  MemoryPerNode memory_of_node() const;
  std::string describe() const;  // shards, ranks, buckets, arenas; one line

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem::dist
