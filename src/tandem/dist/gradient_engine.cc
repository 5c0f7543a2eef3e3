#include "tandem/dist/gradient_engine.h"

#include <algorithm>

#include "tandem/core/error.h"
#include "tandem/dist/gradient_engine_state.h"

namespace tandem::dist {

GradientEngine::GradientEngine(comm::Communicator* communicator, const kernels::Context& context,
                               ModelState& model, const GradientEngineOptions& options)
    : state_(std::make_unique<State>(
          communicator != nullptr && communicator->size() > 1 ? communicator : nullptr, context,
          model, options)) {
  State& s = *state_;
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
  const std::size_t bucket =
      align_up(std::max<std::size_t>(options.bucket_elements, 1), ModelState::kChunk);
  for (std::size_t begin = 0; begin < model.elements(); begin += bucket) {
    s.buckets.push_back({begin, std::min(model.elements(), begin + bucket)});
  }
  s.place();
  s.plan_sums();
}

GradientEngine::~GradientEngine() = default;

// Binomial tree over the node leaders, the first of which is rank 0.
void GradientEngine::broadcast_weights() {
  State& s = *state_;
  if (s.communicator == nullptr) return;
  const std::vector<comm::Node>& nodes = s.communicator->nodes();
  const auto leader = [&](int index) { return nodes[static_cast<std::size_t>(index)].members[0]; };
  if (node_leader()) {
    const int own = s.communicator->node().index;
    const int count = static_cast<int>(nodes.size());
    int bit = 1;
    while (bit < count && (own & bit) == 0) bit *= 2;
    if (own != 0) s.communicator->receive(s.model.weights(), leader(own - bit), kWeightsChannel);
    for (bit /= 2; bit > 0; bit /= 2) {
      if (own + bit < count) {
        s.communicator->send(std::span<const float>(s.model.weights()), leader(own + bit),
                             kWeightsChannel);
      }
    }
  }
  s.node_barrier("the initial weights");
}

double GradientEngine::sum_over_shards(std::span<const double> own_values) {
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

int GradientEngine::logical_shards() const { return state_->shard_count; }
Range GradientEngine::shards() const { return state_->run; }
bool GradientEngine::node_leader() const { return state_->local_rank == 0; }
const std::vector<Range>& GradientEngine::owned_ranges() const { return state_->owned; }
std::span<const float> GradientEngine::reduced_gradient() const { return state_->model.gradient(); }

std::span<float> GradientEngine::gradient(std::size_t shard) const {
  const State& s = *state_;
  TANDEM_CHECK(s.run.begin <= shard && shard < s.run.end, "shard {} is not in [{}, {})", shard,
               s.run.begin, s.run.end);
  const ShardStep& step = s.plan.steps[shard - s.run.begin];
  return {s.local[s.local_rank].arena(static_cast<std::size_t>(step.arena)), s.model.elements()};
}

MemoryPerNode GradientEngine::memory_of_node() const {
  const State& s = *state_;
  const std::size_t floats = s.model.gradient().size_bytes();
  MemoryPerNode memory;
  memory.weights = s.model.weights().size_bytes();
  memory.bf16_weights = s.model.bf16_weights().size_bytes();
  memory.optimizer_state = s.model.optimizer_state().size_bytes();
  memory.shared = s.model.shared();
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

std::string GradientEngine::describe() const {
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
