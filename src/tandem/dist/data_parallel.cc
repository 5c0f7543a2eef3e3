#include "tandem/dist/data_parallel.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <string_view>

#include "tandem/core/buffer.h"
#include "tandem/core/error.h"
#include "tandem/dist/tree_sum.h"
#include "tandem/kernels/reduce.h"

namespace tandem::dist {
namespace {

constexpr std::size_t kPage = 4096;
// Streams of messages between nodes; within each, buckets come in order.
constexpr int kPartialsChannel = 0;
constexpr int kReducedChannel = 1;
constexpr int kWeightsChannel = 2;
constexpr std::chrono::microseconds kPatience{500};

using comm::FlagLine;
using comm::Request;

// What lies where in the segment that a rank contributes to its node: flags, then gradient arenas, then (the node leader's
// segment only) what the node has once.
struct SegmentLayout {
  std::size_t num_flags = 0;
  std::size_t arenas = 0;  // offsets in bytes
  std::size_t arena_bytes = 0;
  std::size_t weights = 0;
  std::size_t bf16_weights = 0;
  std::size_t optimizer_state = 0;
  std::size_t norm_partials = 0;
  std::size_t total = 0;
};

SegmentLayout lay_out(const DataParallelOptions& options, const ShardPlan& plan, bool leader) {
  SegmentLayout layout;
  const auto take = [&](std::size_t bytes) {
    const std::size_t offset = layout.total;
    layout.total = align_up(offset + bytes, kPage);
    return offset;
  };
  const std::size_t floats = options.elements * sizeof(float);
  layout.num_flags = 1 + plan.partials.size();
  take(layout.num_flags * sizeof(FlagLine));
  layout.arena_bytes = align_up(floats, kPage);
  layout.arenas = take(layout.arena_bytes * static_cast<std::size_t>(plan.num_arenas));
  if (!leader) return layout;
  layout.weights = take(floats);
  if (options.bf16_weights) layout.bf16_weights = take(options.elements * sizeof(bfloat16));
  layout.optimizer_state = take(options.optimizer_state_elements * sizeof(float));
  layout.norm_partials = take(num_chunks(options.elements, DataParallel::kChunk) * sizeof(double));
  return layout;
}

}  // namespace

// One rank of the node, seen through its segment.
struct LocalRank {
  int rank = 0;
  std::byte* segment = nullptr;
  SegmentLayout layout;
  FlagLine& flag(std::size_t index) const { return reinterpret_cast<FlagLine*>(segment)[index]; }
  FlagLine& barrier() const { return flag(0); }
  FlagLine& ready(std::size_t partial) const { return flag(1 + partial); }
  float* arena(std::size_t index) const {
    return reinterpret_cast<float*>(segment + layout.arenas + index * layout.arena_bytes);
  }
};

// Another node: what this rank sends to it and gets from it in every step.
struct RemoteNode {
  std::vector<int> served;  // its ranks for whose slices this rank computes the own node's partials
  int sender = 0;           // its rank that sends its partials of this rank's slice
  int receiver = 0;         // its rank that takes this rank's reduced slice for the node
  std::size_t num_partials = 0;  // of that node
  std::vector<float> received;   // partials of this rank's slices, bucket after bucket
};

struct DataParallel::State {
  State(comm::Communicator* communicator_or_null, const kernels::Context& context,
        const DataParallelOptions& asked)
      : communicator(communicator_or_null),
        threads(context.threads),
        kernels(context.kernels),
        options(asked) {}

  comm::Communicator* communicator;  // null in a world of one
  ThreadPool& threads;
  const kernels::KernelSet& kernels;
  DataParallelOptions options;
  int rank = 0;
  int world_size = 1;
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
  float* reduced =
      nullptr;  // the leader's first arena: a slice is read by nobody but its owner when it is overwritten
  double* norm_partials = nullptr;

  // What a slice is summed from: the partials of this node's ranks, then those of other nodes.
  struct Operand {
    int local_rank = -1;      // or −1
    std::size_t partial = 0;  // of that rank
    std::size_t node = 0;     // index in `remote`, when local_rank < 0
    std::size_t node_partial = 0;
  };
  std::vector<Operand> operands;
  std::vector<std::vector<const float*>> inputs;  // by thread: where the operands of a chunk lie
  comm::SumProgram program;                       // the whole tree
  std::vector<comm::SumProgram> node_programs;    // the partials of this node, for others
  std::vector<RemoteNode> remote;
  std::vector<float> send_buffer;  // one step of partials for others
  std::size_t send_used = 0;
  std::vector<std::size_t> receive_offset;             // by remote node, while receives are posted
  std::vector<std::vector<Request>> partial_receives;  // by bucket
  std::vector<std::vector<Request>> reduced_receives;  // by bucket
  std::vector<Request> sends;
  bool receives_posted = false;

  // Progress within the step.
  std::uint32_t flag_base = 0;  // buckets of all earlier steps
  std::uint32_t barriers = 0;
  std::size_t current_shard = 0;  // index in the run
  std::size_t current_end = 0;
  std::size_t next_send = 0;  // buckets
  std::size_t next_reduce = 0;
  std::size_t next_gather = 0;

  // ---- start ----
  void place();
  void plan_sums();
  void plan_remote(const std::vector<comm::Subtree>& node_partials);

  // ---- within a step ----
  bool several_nodes() const { return !remote.empty(); }
  Range slice(std::size_t bucket, int part) const {
    return slice_of(buckets[bucket], part, world_size, kChunk);
  }
  std::vector<const float*>& cleared_inputs(int thread) {
    std::vector<const float*>& own_inputs = inputs[static_cast<std::size_t>(thread)];
    own_inputs.clear();
    return own_inputs;
  }
  void add_own(const ShardStep& step, const Range& range);
  bool node_ready(std::size_t bucket) const;
  void advance();
  void post_receives();
  void send_partials(std::size_t bucket);
  void reduce_slice(std::size_t bucket);
  void take_gathered(std::size_t bucket);
  bool complete() const;
  void wait_for_more(std::chrono::steady_clock::time_point since);
  void node_barrier(std::string_view what);
  void norm_of(const Range& range);
};

// ---- start ----

DataParallel::DataParallel(comm::Communicator* communicator, const kernels::Context& context,
                           const DataParallelOptions& options)
    : state_(std::make_unique<State>(
          communicator != nullptr && communicator->size() > 1 ? communicator : nullptr, context,
          options)) {
  State& s = *state_;
  if (options.elements == 0) raise<InvalidArgument>("data parallel: the model has no parameters");
  if (s.communicator != nullptr) {
    s.rank = s.communicator->rank();
    s.world_size = s.communicator->size();
  }
  s.shard_count = options.logical_shards == 0 ? s.world_size : options.logical_shards;
  if (s.shard_count < s.world_size) {
    raise<InvalidArgument>(
        "{} logical shards cannot be dealt to {} ranks: at least one each is needed", s.shard_count,
        s.world_size);
  }
  s.scale = 1.0f / static_cast<float>(s.shard_count);
  s.run = shards_of(s.rank, s.world_size, s.shard_count);
  s.plan = plan_shards(s.run, s.shard_count);
  const std::size_t bucket = align_up(std::max<std::size_t>(options.bucket_elements, 1), kChunk);
  for (std::size_t begin = 0; begin < options.elements; begin += bucket) {
    s.buckets.push_back({begin, std::min(options.elements, begin + bucket)});
  }
  s.place();
  s.plan_sums();
}

DataParallel::~DataParallel() = default;

void DataParallel::State::place() {
  std::vector<int> members = {0};
  if (communicator != nullptr) {
    members = communicator->node().members;
    local_rank = static_cast<std::size_t>(communicator->local_rank());
  }
  for (std::size_t i = 0; i < members.size(); ++i) {
    LocalRank one;
    one.rank = members[i];
    one.layout = lay_out(
        options, plan_shards(shards_of(members[i], world_size, shard_count), shard_count), i == 0);
    local.push_back(one);
  }
  const std::size_t own_bytes = local[local_rank].layout.total;
  if (communicator != nullptr) {
    node_memory.emplace(communicator->share_node_memory(own_bytes));
    for (std::size_t i = 0; i < local.size(); ++i) {
      const std::span<std::byte> segment = node_memory->segment(static_cast<int>(i));
      if (segment.size() != local[i].layout.total) {
        raise<CommError>("{} shares {} bytes, expected {}: do all ranks train the same model?",
                         communicator->describe_rank(local[i].rank), segment.size(),
                         local[i].layout.total);
      }
      local[i].segment = segment.data();
    }
  } else {
    own_memory = Buffer(own_bytes);
    local[0].segment = own_memory.data();
  }
  reduced = local[0].arena(0);
  norm_partials = reinterpret_cast<double*>(local[0].segment + local[0].layout.norm_partials);
  const int parts = static_cast<int>(local.size());
  for (const Range& bucket : buckets) {
    const Range own = slice_of(bucket, static_cast<int>(local_rank), parts, kChunk);
    if (own.size() == 0) continue;
    if (!owned.empty() && owned.back().end == own.begin) {
      owned.back().end = own.end;
    } else {
      owned.push_back(own);
    }
  }
}

// The operands of the whole tree at this rank, and the programs that use them.
void DataParallel::State::plan_sums() {
  const auto rank_of = [&](int shard) { return rank_of_shard(shard, world_size, shard_count); };
  const auto node_of = [&](int shard) {
    return communicator == nullptr ? 0 : communicator->node_of(rank_of(shard)).index;
  };
  const int own_node = communicator == nullptr ? 0 : communicator->node().index;
  const std::vector<comm::Subtree> node_partials = comm::owned_subtrees(shard_count, node_of);
  plan_remote(node_partials);

  std::vector<comm::Subtree> subtrees;
  std::vector<std::size_t> next_partial(static_cast<std::size_t>(world_size), 0);
  for (const comm::Subtree& subtree : comm::owned_subtrees(shard_count, rank_of)) {
    const std::size_t partial = next_partial[static_cast<std::size_t>(subtree.owner)]++;
    for (std::size_t i = 0; i < local.size(); ++i) {
      if (local[i].rank != subtree.owner) continue;
      Operand operand;
      operand.local_rank = static_cast<int>(i);
      operand.partial = partial;
      operands.push_back(operand);
      subtrees.push_back(subtree);
    }
  }
  for (const comm::Subtree& subtree : node_partials) {
    if (subtree.owner == own_node) {
      node_programs.push_back(comm::sum_program(subtree.begin, subtree.end, subtrees));
    }
  }
  std::vector<std::size_t> next_node_partial(remote.size(), 0);
  for (const comm::Subtree& subtree : node_partials) {
    if (subtree.owner == own_node) continue;
    Operand operand;
    operand.node = static_cast<std::size_t>(subtree.owner) - (subtree.owner > own_node ? 1 : 0);
    operand.node_partial = next_node_partial[operand.node]++;
    operands.push_back(operand);
    subtrees.push_back(subtree);
  }
  program = comm::sum_program(0, shard_count, subtrees);
  inputs.resize(static_cast<std::size_t>(threads.num_threads()));
  for (auto& of_thread : inputs) of_thread.reserve(operands.size());
}

void DataParallel::State::plan_remote(const std::vector<comm::Subtree>& node_partials) {
  if (communicator == nullptr || communicator->nodes().size() == 1) return;
  std::size_t own_elements = 0;  // of this rank's slices
  for (std::size_t b = 0; b < buckets.size(); ++b) own_elements += slice(b, rank).size();
  const auto partials_of = [&](int index) {
    return static_cast<std::size_t>(std::count_if(node_partials.begin(), node_partials.end(),
                                                  [&](const auto& p) { return p.owner == index; }));
  };
  const auto picked = [](const comm::Node& node, int r) {
    return node.members[static_cast<std::size_t>(r) % node.members.size()];
  };
  std::size_t send_elements = 0;
  for (const comm::Node& node : communicator->nodes()) {
    if (node.index == communicator->node().index) continue;
    RemoteNode one;
    one.sender = one.receiver = picked(node, rank);
    one.num_partials = partials_of(node.index);
    one.received.resize(own_elements * one.num_partials);
    for (const int member : node.members) {
      if (picked(communicator->node(), member) != rank) continue;
      one.served.push_back(member);
      for (std::size_t b = 0; b < buckets.size(); ++b) send_elements += slice(b, member).size();
    }
    remote.push_back(std::move(one));
  }
  send_buffer.resize(send_elements * partials_of(communicator->node().index));
  partial_receives.resize(buckets.size());
  reduced_receives.resize(buckets.size());
}

// ---- within a step ----

void DataParallel::gradient_ready(std::size_t shard, std::size_t end) {
  State& s = *state_;
  TANDEM_CHECK(shard == s.run.begin + s.current_shard && s.current_shard < s.run.size(),
               "shard {} is ready, expected shard {} of [{}, {})", shard,
               s.run.begin + s.current_shard, s.run.begin, s.run.end);
  TANDEM_CHECK(end >= s.current_end && end <= elements(), "elements up to {} after {}", end,
               s.current_end);
  const ShardStep& step = s.plan.steps[s.current_shard];
  s.add_own(step, {s.current_end, end});
  s.current_end = end;
  if (step.completes >= 0) {
    const std::size_t bucket = s.buckets[0].size();
    const std::size_t ready = end == elements() ? s.buckets.size() : end / bucket;
    comm::raise_flag(s.local[s.local_rank].ready(static_cast<std::size_t>(step.completes)),
                     s.flag_base + static_cast<std::uint32_t>(ready));
  }
  if (end == elements()) {
    ++s.current_shard;
    s.current_end = 0;
  }
  s.advance();
}

// The additions of the tree that this shard makes possible, over the elements that have become final.
void DataParallel::State::add_own(const ShardStep& step, const Range& range) {
  if (step.additions.empty() || range.size() == 0) return;
  const LocalRank& own = local[local_rank];
  threads.parallel_for(num_chunks(range.size(), kChunk), [&](std::size_t chunk, int) {
    const std::size_t begin = range.begin + chunk * kChunk;
    const std::size_t count = std::min(kChunk, range.end - begin);
    for (const auto& addition : step.additions) {
      float* sum = own.arena(static_cast<std::size_t>(addition.first)) + begin;
      kernels::add(kernels, count, sum,
                   own.arena(static_cast<std::size_t>(addition.second)) + begin, sum);
    }
  });
}

bool DataParallel::State::node_ready(std::size_t bucket) const {
  const auto target = flag_base + static_cast<std::uint32_t>(bucket) + 1;
  return std::all_of(operands.begin(), operands.end(), [&](const Operand& operand) {
    return operand.local_rank < 0 ||
           comm::flag_reached(
               local[static_cast<std::size_t>(operand.local_rank)].ready(operand.partial), target);
  });
}

// Does everything that can be done now. Buckets go through each stage in order.
void DataParallel::State::advance() {
  const auto all_done = [](const std::vector<Request>& requests) {
    return std::all_of(requests.begin(), requests.end(), [](const Request& r) { return r.done(); });
  };
  if (several_nodes()) {
    post_receives();
    communicator->progress();
    while (next_send < buckets.size() && node_ready(next_send)) send_partials(next_send++);
  } else if (communicator != nullptr) {
    communicator->throw_if_failed();
  }
  while (next_reduce < buckets.size() && node_ready(next_reduce)) {
    if (several_nodes() && !all_done(partial_receives[next_reduce])) break;
    reduce_slice(next_reduce++);
  }
  if (!several_nodes()) return;
  while (next_gather < buckets.size() && all_done(reduced_receives[next_gather]))
    take_gathered(next_gather++);
}

void DataParallel::State::post_receives() {
  if (receives_posted) return;
  receives_posted = true;
  send_used = 0;
  receive_offset.assign(remote.size(), 0);
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    partial_receives[b].clear();
    reduced_receives[b].clear();
    const std::size_t own = slice(b, rank).size();
    for (std::size_t n = 0; n < remote.size(); ++n) {
      RemoteNode& node = remote[n];
      const std::size_t count = own * node.num_partials;
      if (count != 0) {
        const auto target = std::span(node.received).subspan(receive_offset[n], count);
        partial_receives[b].push_back(
            communicator->start_receive(target, node.sender, kPartialsChannel));
        receive_offset[n] += count;
      }
      for (const int member : node.served) {
        const Range theirs = slice(b, member);
        if (theirs.size() == 0) continue;
        // Their reduced slice can only come after they got our partials of it: nobody here reads the old values any more.
        reduced_receives[b].push_back(communicator->start_receive(
            std::span(reduced + theirs.begin, theirs.size()), member, kReducedChannel));
      }
    }
  }
}

// This node's partials of the slices of those remote ranks that this rank serves.
void DataParallel::State::send_partials(std::size_t bucket) {
  for (const RemoteNode& node : remote) {
    for (const int member : node.served) {
      const Range theirs = slice(bucket, member);
      if (theirs.size() == 0) continue;
      const auto message =
          std::span(send_buffer).subspan(send_used, theirs.size() * node_programs.size());
      send_used += message.size();
      threads.parallel_for(num_chunks(theirs.size(), kChunk), [&](std::size_t chunk, int thread) {
        const std::size_t begin = theirs.begin + chunk * kChunk;
        const std::size_t count = std::min(kChunk, theirs.end - begin);
        std::vector<const float*>& own_inputs = cleared_inputs(thread);
        for (const Operand& operand : operands) {
          if (operand.local_rank < 0) break;
          own_inputs.push_back(
              local[static_cast<std::size_t>(operand.local_rank)].arena(operand.partial) + begin);
        }
        for (std::size_t k = 0; k < node_programs.size(); ++k) {
          tree_sum(kernels, node_programs[k], own_inputs, 1.0f,
                   &message[k * theirs.size() + begin - theirs.begin], count);
        }
      });
      sends.push_back(
          communicator->start_send(std::span<const float>(message), member, kPartialsChannel));
    }
  }
}

// The rest of the tree for this rank's slice of the bucket, times 1/L, and the squared norm while it is in the cache.
void DataParallel::State::reduce_slice(std::size_t bucket) {
  const Range own = slice(bucket, rank);
  if (own.size() == 0) return;
  std::size_t before = 0;  // elements of this rank's slices of earlier buckets
  for (std::size_t b = 0; several_nodes() && b < bucket; ++b) before += slice(b, rank).size();
  threads.parallel_for(num_chunks(own.size(), kChunk), [&](std::size_t chunk, int thread) {
    const std::size_t begin = own.begin + chunk * kChunk;
    const std::size_t count = std::min(kChunk, own.end - begin);
    std::vector<const float*>& own_inputs = cleared_inputs(thread);
    for (const Operand& operand : operands) {
      if (operand.local_rank >= 0) {
        own_inputs.push_back(
            local[static_cast<std::size_t>(operand.local_rank)].arena(operand.partial) + begin);
        continue;
      }
      const RemoteNode& node = remote[operand.node];
      own_inputs.push_back(node.received.data() + before * node.num_partials +
                           operand.node_partial * own.size() + begin - own.begin);
    }
    tree_sum(kernels, program, own_inputs, scale, reduced + begin, count);
    norm_partials[begin / kChunk] = kernels::squared_norm(kernels, count, reduced + begin);
  });
  for (const RemoteNode& node : remote) {
    sends.push_back(communicator->start_send(
        std::span<const float>(reduced + own.begin, own.size()), node.receiver, kReducedChannel));
  }
}

// Slices that other nodes reduced lie in place; whoever took them computes their part of the norm.
void DataParallel::State::take_gathered(std::size_t bucket) {
  for (const RemoteNode& node : remote) {
    for (const int member : node.served) norm_of(slice(bucket, member));
  }
}

void DataParallel::State::norm_of(const Range& range) {
  if (range.size() == 0) return;
  threads.parallel_for(num_chunks(range.size(), kChunk), [&](std::size_t chunk, int) {
    const std::size_t begin = range.begin + chunk * kChunk;
    norm_partials[begin / kChunk] =
        kernels::squared_norm(kernels, std::min(kChunk, range.end - begin), reduced + begin);
  });
}

bool DataParallel::State::complete() const {
  if (next_reduce < buckets.size()) return false;
  if (!several_nodes()) return true;
  return next_send == buckets.size() && next_gather == buckets.size() &&
         std::all_of(sends.begin(), sends.end(), [](const Request& r) { return r.done(); });
}

// Sleeps until a neighbour or the network may have brought what is missing.
void DataParallel::State::wait_for_more(std::chrono::steady_clock::time_point since) {
  const std::size_t bucket = several_nodes() ? std::min(next_send, next_reduce) : next_reduce;
  // Every wait has a text for the case that it fails; a step allocates nothing for it.
  std::array<char, 64> text;
  const auto end = fmt::format_to_n(text.data(), text.size(), "gradient bucket {} of {}",
                                    bucket + 1, buckets.size());
  const std::string_view what(text.data(), std::min(end.size, text.size()));
  const auto target = flag_base + static_cast<std::uint32_t>(bucket) + 1;
  if (several_nodes()) {
    communicator->progress(kPatience);
    communicator->check_wait(since, -1, what);
    return;
  }
  for (const Operand& operand : operands) {
    const LocalRank& neighbour = local[static_cast<std::size_t>(operand.local_rank)];
    communicator->wait_for_flag(neighbour.ready(operand.partial), target, neighbour.rank, what);
  }
}

void DataParallel::State::node_barrier(std::string_view what) {
  if (communicator == nullptr) return;
  ++barriers;
  comm::raise_flag(local[local_rank].barrier(), barriers);
  for (const LocalRank& neighbour : local) {
    communicator->wait_for_flag(neighbour.barrier(), barriers, neighbour.rank, what);
  }
}

void DataParallel::finish() {
  State& s = *state_;
  TANDEM_CHECK(s.current_shard == s.run.size(), "finish() with {} of {} shards ready",
               s.current_shard, s.run.size());
  const auto since = std::chrono::steady_clock::now();
  s.advance();
  while (!s.complete()) {
    s.wait_for_more(since);
    s.advance();
  }
  s.node_barrier("the end of the gradient reduction");
  s.flag_base += static_cast<std::uint32_t>(s.buckets.size());
  s.current_shard = s.next_send = s.next_reduce = s.next_gather = 0;
  s.sends.clear();
  s.receives_posted = false;
}

void DataParallel::publish() { state_->node_barrier("the weight update"); }

double DataParallel::squared_norm() const {
  double total = 0;
  for (std::size_t i = 0; i < num_chunks(elements(), kChunk); ++i)
    total += state_->norm_partials[i];
  return total;
}

// Binomial tree over the node leaders, the first of which is rank 0.
void DataParallel::broadcast_weights() {
  State& s = *state_;
  if (s.communicator == nullptr) return;
  const std::vector<comm::Node>& nodes = s.communicator->nodes();
  const auto leader = [&](int index) { return nodes[static_cast<std::size_t>(index)].members[0]; };
  if (node_leader()) {
    const int own = s.communicator->node().index;
    const int count = static_cast<int>(nodes.size());
    int bit = 1;
    while (bit < count && (own & bit) == 0) bit *= 2;
    if (own != 0) s.communicator->receive(weights(), leader(own - bit), kWeightsChannel);
    for (bit /= 2; bit > 0; bit /= 2) {
      if (own + bit < count) {
        s.communicator->send(std::span<const float>(weights()), leader(own + bit), kWeightsChannel);
      }
    }
  }
  s.node_barrier("the initial weights");
}

double DataParallel::sum_over_shards(std::span<const double> own_values) {
  State& s = *state_;
  TANDEM_CHECK(own_values.size() == s.run.size(), "{} values for {} shards", own_values.size(),
               s.run.size());
  std::vector<double> values(own_values.begin(), own_values.end());
  if (s.communicator != nullptr) {
    const std::size_t longest = shards_of(0, s.world_size, s.shard_count).size();
    values.resize(longest);
    std::vector<double> gathered(longest * static_cast<std::size_t>(s.world_size));
    s.communicator->all_gather(std::span<const double>(values), std::span(gathered));
    values.clear();
    for (int r = 0; r < s.world_size; ++r) {
      const auto first = gathered.begin() + static_cast<std::ptrdiff_t>(longest) * r;
      const auto count =
          static_cast<std::ptrdiff_t>(shards_of(r, s.world_size, s.shard_count).size());
      values.insert(values.end(), first, first + count);
    }
  }
  const auto sum = [&](const auto& self, int begin, int end) -> double {
    if (end - begin == 1) return values[static_cast<std::size_t>(begin)];
    const int middle = begin + comm::left_leaves(end - begin);
    return self(self, begin, middle) + self(self, middle, end);
  };
  return sum(sum, 0, s.shard_count);
}

// ---- what lies where ----

std::size_t DataParallel::elements() const { return state_->options.elements; }
int DataParallel::logical_shards() const { return state_->shard_count; }
Range DataParallel::shards() const { return state_->run; }
bool DataParallel::node_leader() const { return state_->local_rank == 0; }
const std::vector<Range>& DataParallel::owned_ranges() const { return state_->owned; }
std::span<const float> DataParallel::reduced_gradient() const {
  return {state_->reduced, elements()};
}

std::span<float> DataParallel::gradient(std::size_t shard) const {
  const State& s = *state_;
  TANDEM_CHECK(s.run.begin <= shard && shard < s.run.end, "shard {} is not in [{}, {})", shard,
               s.run.begin, s.run.end);
  const ShardStep& step = s.plan.steps[shard - s.run.begin];
  return {s.local[s.local_rank].arena(static_cast<std::size_t>(step.arena)), elements()};
}

std::span<float> DataParallel::weights() const {
  const LocalRank& leader = state_->local[0];
  return {reinterpret_cast<float*>(leader.segment + leader.layout.weights), elements()};
}

std::span<bfloat16> DataParallel::bf16_weights() const {
  const LocalRank& leader = state_->local[0];
  if (!state_->options.bf16_weights) return {};
  return {reinterpret_cast<bfloat16*>(leader.segment + leader.layout.bf16_weights), elements()};
}

std::span<float> DataParallel::optimizer_state() const {
  const LocalRank& leader = state_->local[0];
  return {reinterpret_cast<float*>(leader.segment + leader.layout.optimizer_state),
          state_->options.optimizer_state_elements};
}

MemoryPerNode DataParallel::memory_of_node() const {
  const State& s = *state_;
  const std::size_t floats = elements() * sizeof(float);
  MemoryPerNode memory;
  memory.weights = floats;
  memory.bf16_weights = bf16_weights().size_bytes();
  memory.optimizer_state = optimizer_state().size_bytes();
  memory.shared = s.communicator != nullptr;
  memory.messages = s.send_buffer.size() * sizeof(float) * s.local.size();
  for (const RemoteNode& node : s.remote)
    memory.messages += node.received.size() * sizeof(float) * s.local.size();
  for (const LocalRank& one : s.local) {
    const auto run = shards_of(one.rank, s.world_size, s.shard_count);
    memory.gradients +=
        floats * static_cast<std::size_t>(plan_shards(run, s.shard_count).num_arenas);
  }
  return memory;
}

std::string DataParallel::describe() const {
  const State& s = *state_;
  return fmt::format(
      "{} logical shard{} on {} rank{}, {} gradient bucket{} of {:.0f} MiB, {} gradient arena{} "
      "here",
      s.shard_count, s.shard_count == 1 ? "" : "s", s.world_size, s.world_size == 1 ? "" : "s",
      s.buckets.size(), s.buckets.size() == 1 ? "" : "s",
      static_cast<double>(s.buckets[0].size()) * sizeof(float) / (1 << 20), s.plan.num_arenas,
      s.plan.num_arenas == 1 ? "" : "s");
}

}  // namespace tandem::dist
