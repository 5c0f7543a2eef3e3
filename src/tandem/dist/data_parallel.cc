#include "tandem/dist/data_parallel.h"

#include <algorithm>

#include "tandem/core/error.h"
#include "tandem/dist/data_parallel_state.h"

namespace tandem::dist {

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
  return {reinterpret_cast<bfloat16*>(leader.segment + leader.layout.bf16_weights),
          state_->options.bf16_elements};
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
  memory.messages =
      s.send_buffer.size() + (s.own_roots.size() + s.received_roots.size()) * sizeof(bfloat16);
  for (const RemoteNode& node : s.remote) memory.messages += node.received.size();
  memory.messages *= s.local.size();
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
      "here{}",
      s.shard_count, s.shard_count == 1 ? "" : "s", s.world_size, s.world_size == 1 ? "" : "s",
      s.buckets.size(), s.buckets.size() == 1 ? "" : "s",
      static_cast<double>(s.buckets[0].size()) * sizeof(float) / (1 << 20), s.plan.num_arenas,
      s.plan.num_arenas == 1 ? "" : "s", s.rounded() ? ", sums of gradients rounded to bf16" : "");
}

}  // namespace tandem::dist
