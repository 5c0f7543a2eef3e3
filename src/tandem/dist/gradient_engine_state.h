// State of GradientEngine, for the three files that share its work: placement of data and sums
// (placement.cc), the reduction of a step (gradient_reduction.cc), and the rest of the interface
// (gradient_engine.cc). Internal to dist.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tandem/core/buffer.h"
#include "tandem/dist/gradient_engine.h"
#include "tandem/dist/tree_sum.h"

namespace tandem::dist {

// Streams of messages between nodes; within each, buckets come in order.
inline constexpr int kPartialsChannel = 0;
inline constexpr int kReducedChannel = 1;
inline constexpr int kWeightsChannel = 2;

using comm::FlagLine;
using comm::Request;

// Offsets in the segment that a rank contributes to its node: flags, then gradient arenas. The
// first arena of the node leader is not there: it is the state's gradient.
struct SegmentLayout {
  std::size_t num_flags = 0;
  std::size_t arenas = 0;  // offsets in bytes
  std::size_t arena_bytes = 0;
  std::size_t total = 0;
};

// One rank of the node, seen through its segment.
struct LocalRank {
  int rank = 0;
  std::byte* segment = nullptr;
  SegmentLayout layout;
  float* first_arena = nullptr;  // where it is not in the segment
  FlagLine& flag(std::size_t index) const { return reinterpret_cast<FlagLine*>(segment)[index]; }
  FlagLine& barrier() const { return flag(0); }
  FlagLine& ready(std::size_t partial) const { return flag(1 + partial); }
  float* arena(std::size_t index) const {
    if (first_arena != nullptr && index-- == 0) return first_arena;
    return reinterpret_cast<float*>(segment + layout.arenas + index * layout.arena_bytes);
  }
};

// Another node: what this rank sends to it and gets from it in every step.
struct RemoteNode {
  std::vector<int> served;  // its ranks for whose slices this rank computes the own node's partials
  int sender = 0;           // its rank that sends its partials of this rank's slice
  int receiver = 0;         // its rank that takes this rank's reduced slice for the node
  std::size_t num_partials = 0;   // partials of that node
  std::span<std::byte> received;  // partials of this rank's slices, bucket after bucket
};

struct GradientEngine::State {
  State(comm::Communicator& ranks, const kernels::Context& context, ModelState& model_state,
        const GradientEngineOptions& asked)
      : communicator(ranks),
        threads(context.threads),
        kernels(context.kernels),
        model(model_state),
        options(asked),
        messages(asked.messages ? asked.messages->get() : own_messages),
        observer(asked.source ? asked.source->get() : no_observer),
        rank(ranks.rank()),
        world_size(ranks.size()) {}

  comm::Communicator& communicator;
  ThreadPool& threads;
  const kernels::KernelSet& kernels;
  ModelState& model;
  GradientEngineOptions options;
  MessageMemory own_messages;
  MessageMemory& messages;
  StateObserver no_observer;
  StateObserver& observer;
  const int rank;
  const int world_size;
  int shard_count = 1;  // L
  float scale = 1;      // 1/L
  Range run;
  ShardPlan plan;
  std::vector<Range> buckets;
  std::vector<Range> owned;

  // Memory.
  Buffer own_memory;                            // world of one
  std::optional<comm::NodeMemory> node_memory;  // otherwise
  std::vector<LocalRank> local;                 // ranks of this node, by local rank
  std::size_t local_rank = 0;
  float* reduced = nullptr;         // the state's gradient
  double* norm_partials = nullptr;  // and its norms
  struct {
    int domains = 0;            // NUMA nodes; 0: one at most
    std::optional<int> domain;  // this rank's
    std::size_t bytes = 0;      // that are to come from there
  } placed;

  // An operand of a slice's sum: the partials of this node's ranks, then those of other nodes.
  struct Operand {
    int local_rank = -1;      // or −1
    std::size_t partial = 0;  // partial of that rank
    std::size_t node = 0;     // index in `remote`, when local_rank < 0
    std::size_t node_partial = 0;
  };
  std::vector<Operand> operands;
  std::vector<std::vector<SumOperand>> inputs;  // by thread: where the operands of a chunk lie
  comm::SumProgram program;                     // the whole tree
  std::vector<comm::SumProgram> node_programs;  // the partials of this node, for others
  std::vector<RemoteNode> remote;
  std::span<std::byte> send_buffer;  // one step of partials for others
  std::size_t send_used = 0;         // bytes
  // Only with bf16 gradients, whose roots travel before they are multiplied: those of this rank's
  // slices, bucket after bucket, and those that come from other nodes, in the order of the
  // receives.
  std::vector<bfloat16> own_roots;
  std::vector<bfloat16> received_roots;
  std::size_t roots_taken = 0;
  std::vector<std::size_t> receive_offset;  // by remote node, bytes, while receives are posted
  std::vector<std::vector<Request>> partial_receives;  // by bucket
  std::vector<std::vector<Request>> reduced_receives;  // by bucket
  std::vector<Request> sends;
  bool receives_posted = false;
  bool kept = false;  // the last step's gradient, for learners, as far as this one overwrites it

  // Progress within the step.
  std::uint32_t flag_base = 0;  // buckets of all earlier steps
  std::uint32_t barriers = 0;
  std::size_t current_shard = 0;  // index in the run
  std::size_t current_end = 0;
  std::size_t next_send = 0;  // buckets
  std::size_t next_reduce = 0;
  // The buckets in the flight record, by number; the first `recorded` have begun.
  std::size_t recorded = 0;
  std::vector<std::uint64_t> tickets;
  std::size_t next_gather = 0;

  // Buffers of gather().
  std::vector<double> own_values;
  std::vector<double> gathered;
  std::vector<float> gathered_floats;  // only if the ranks have different numbers of shards

  // ---- start ----
  void bind_numa();
  void prefer_own_domain();
  void collapse_own_pages();
  std::vector<std::span<std::byte>> own_pages() const;
  void plan_sums();
  void plan_remote(const std::vector<comm::Subtree>& node_partials);
  void place_messages(std::size_t send_bytes, std::size_t own_elements);

  // The state that a node reports when synchronize_state() begins, and the newest state of all.
  struct Levels {
    std::uint64_t newest = 0;
    int source = 0;  // index of a node that has it
    bool all_equal = true;
    bool any_learner = false;
  };
  Levels gather_levels(bool learner);
  bool is_source(const Levels& levels) const { return communicator.node().index == levels.source; }
  void confirm_learned(const Levels& levels, const OwnPast& own, bool learned);
  void replace_state(const Levels& levels, const OwnPast& own);
  std::vector<std::uint64_t> checksums_of_chunks() const;
  void count_from_now(const Levels& levels, std::span<const double> record);
  std::string send_text_to_nodes(std::string text, int source);
  template <class T>
  void send_to_nodes(std::span<T> values, int root);

  // ---- within a step ----
  void update_owned(const kernels::Context& context, optim::Optimizer& optimizer,
                    const optim::OptimizerStep& step);
  // Only the leader of a node reports.
  StateObserver& source() { return local_rank == 0 ? observer : no_observer; }
  bool several_nodes() const { return !remote.empty(); }
  bool rounded() const { return options.bf16_gradients; }
  // Partials travel as this type.
  comm::DataType wire_type() const {
    return rounded() ? comm::DataType::kBfloat16 : comm::DataType::kFloat32;
  }
  std::size_t wire_bytes(std::size_t count) const {
    return count * (rounded() ? sizeof(bfloat16) : sizeof(float));
  }
  SumOperand wire_operand(const std::byte* at) const {
    if (rounded()) return {.bf16 = reinterpret_cast<const bfloat16*>(at)};
    return {.f32 = reinterpret_cast<const float*>(at)};
  }
  Range slice(std::size_t bucket, int part) const {
    return slice_of_bucket(buckets[bucket], bucket, part, world_size, ModelState::kChunk);
  }
  std::vector<SumOperand>& cleared_inputs(int thread) {
    std::vector<SumOperand>& own_inputs = inputs[static_cast<std::size_t>(thread)];
    own_inputs.clear();
    return own_inputs;
  }
  void add_own(const ShardStep& step, const Range& range);
  bool node_ready(std::size_t bucket) const;
  void advance();
  void post_receives();
  void send_partials(std::size_t bucket);
  std::size_t elements_before(std::size_t bucket) const;
  void reduce_slice(std::size_t bucket);
  void take_gathered(std::size_t bucket);
  void widen_roots(const Range& range);
  bool complete() const;
  void wait_for_more(std::chrono::steady_clock::time_point since);
  void node_barrier(std::string_view what);
  void norm_of(const Range& range);
  void record_begun(std::size_t end);
  void record_complete(std::size_t bucket);
};

}  // namespace tandem::dist
