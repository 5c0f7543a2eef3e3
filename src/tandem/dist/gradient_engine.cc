#include "tandem/dist/gradient_engine.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/dist/checksum.h"
#include "tandem/dist/gradient_engine_state.h"
#include "tandem/dist/state_chunks.h"
#include "tandem/dist/state_observer.h"
#include "tandem/kernels/reduce.h"

namespace tandem::dist {

GradientEngine::GradientEngine(comm::Communicator& communicator, const kernels::Context& context,
                               ModelState& model, const GradientEngineOptions& options)
    : state_(std::make_unique<State>(communicator, context, model, options)) {
  State& s = *state_;
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
  s.bind_numa();
  s.collapse_own_pages();
  s.plan_sums();
  node_leader() ? s.observer.hold() : s.observer.give_up();
}

GradientEngine::~GradientEngine() = default;

// Binomial tree over the node leaders, the first of which is rank 0.
void GradientEngine::broadcast_weights() {
  State& s = *state_;
  if (s.world_size == 1) return;
  if (node_leader()) s.send_to_nodes(s.model.trained_weights(), 0);
  s.node_barrier("the initial weights");
}

// To the leaders of all nodes from that of node `root`.
template <class T>
void GradientEngine::State::send_to_nodes(std::span<T> values, int root) {
  const std::vector<comm::Node>& nodes = communicator.nodes();
  const int count = static_cast<int>(nodes.size());
  const int bind_numa = (communicator.node().index + count - root) % count;
  const auto leader = [&](int at) {
    return nodes[static_cast<std::size_t>((at + root) % count)].members[0];
  };
  int bit = 1;
  while (bit < count && (bind_numa & bit) == 0) bit *= 2;
  if (bind_numa != 0) communicator.receive(values, leader(bind_numa - bit), kWeightsChannel);
  for (bit /= 2; bit > 0; bit /= 2) {
    if (bind_numa + bit < count)
      communicator.send(std::span<const T>(values), leader(bind_numa + bit), kWeightsChannel);
  }
}

void GradientEngine::gather(std::span<const double> own_values, std::vector<double>& all) {
  State& s = *state_;
  const std::size_t each = own_values.size() / s.run.size();
  TANDEM_CHECK(own_values.size() == each * s.run.size(), "{} values for {} shards",
               own_values.size(), s.run.size());
  if (s.world_size == 1) {
    all.assign(own_values.begin(), own_values.end());
    return;
  }
  const std::size_t longest = each * shards_of(0, s.world_size, s.shard_count).size();
  s.own_values.assign(longest, 0.0);
  std::copy(own_values.begin(), own_values.end(), s.own_values.begin());
  s.gathered.resize(longest * static_cast<std::size_t>(s.world_size));
  s.communicator.all_gather(std::span<const double>(s.own_values), std::span(s.gathered));
  all.clear();
  for (int r = 0; r < s.world_size; ++r) {
    const auto first = s.gathered.begin() + static_cast<std::ptrdiff_t>(longest) * r;
    const std::size_t count = each * shards_of(r, s.world_size, s.shard_count).size();
    all.insert(all.end(), first, first + static_cast<std::ptrdiff_t>(count));
  }
}

void GradientEngine::gather(std::span<float> all) {
  State& s = *state_;
  if (s.world_size == 1) return;
  const auto shards = static_cast<std::size_t>(s.shard_count);
  const auto ranks = static_cast<std::size_t>(s.world_size);
  const std::size_t each = all.size() / shards;
  TANDEM_CHECK(all.size() == each * shards, "{} values for {} shards", all.size(), shards);
  const std::span<float> own = all.subspan(s.run.begin * each, s.run.size() * each);
  if (shards % ranks == 0) {
    s.communicator.all_gather(std::span<const float>(own), all);
    return;
  }
  const std::size_t longest = each * shards_of(0, s.world_size, s.shard_count).size();
  s.gathered_floats.resize(longest * ranks);
  const auto block =
      std::span(s.gathered_floats).subspan(static_cast<std::size_t>(s.rank) * longest, longest);
  std::fill(std::copy(own.begin(), own.end(), block.begin()), block.end(), 0.0f);
  s.communicator.all_gather(std::span<const float>(block), std::span(s.gathered_floats));
  for (int r = 0; r < s.world_size; ++r) {
    const Range run = shards_of(r, s.world_size, s.shard_count);
    const auto from = s.gathered_floats.begin() + static_cast<std::ptrdiff_t>(longest) * r;
    std::copy_n(from, run.size() * each,
                all.begin() + static_cast<std::ptrdiff_t>(run.begin * each));
  }
}

// ---- the update ----

void GradientEngine::update(const kernels::Context& context, optim::Optimizer& optimizer,
                            const optim::OptimizerStep& step, std::span<const double> record) {
  ModelState& model = state_->model;
  StateObserver& source = state_->source();
  model.begin_update(step, record);
  source.reduced(step);
  state_->kept = false;
  state_->update_owned(context, optimizer, step);
  source.settled(step.step);
}

void GradientEngine::State::update_owned(const kernels::Context& context,
                                         optim::Optimizer& optimizer,
                                         const optim::OptimizerStep& step) {
  for (const Range& range : owned)
    optimizer.step(context, step, model.arenas(), range.begin, range.end, model.guard());
  // A rank that is alone on its node is done here. A failure in the barrier does not change that.
  if (local.size() == 1) model.end_update(step.step);
  node_barrier("the weight update");
  model.end_update(step.step);
}

bool GradientEngine::finish_update(const kernels::Context& context, optim::Optimizer& optimizer) {
  State& s = *state_;
  // All ranks of the node read this before the first of them is done below.
  const std::optional<optim::OptimizerStep> step = s.model.unfinished_update();
  if (!step) return false;
  if (s.model.guard() == nullptr) {
    raise<CommError>(
        "the update of step {} was interrupted, and nothing was kept from which the ranks that are "
        "left could finish it",
        step->step);
  }
  if (node_leader()) s.model.restore_pieces();
  s.node_barrier("the pieces of an interrupted update");
  s.update_owned(context, optimizer, *step);
  return true;
}

namespace {

// No progress comes near it: a log of a million entries takes about 100 MB.
constexpr std::uint64_t kLongestTrainingProgress = std::uint64_t{1} << 30;

}  // namespace

std::string GradientEngine::State::send_text_to_nodes(std::string text, int source) {
  std::uint64_t length = text.size();
  send_to_nodes(std::span(&length, 1), source);
  if (length > kLongestTrainingProgress)
    raise<CommError>("training progress of {} bytes was announced: different versions, or damage",
                     length);
  text.resize(length);
  if (length > 0) send_to_nodes(std::span(text), source);
  return text;
}

namespace {

// One checksum over all that belongs to a state.
std::uint64_t checksum_of(ThreadPool& threads, std::uint64_t step, std::span<const float> weights,
                          std::span<const float> moments, std::span<const double> record,
                          const std::string& training_progress) {
  Checksum sum(step);
  add_in_pieces(sum, threads, weights);
  add_in_pieces(sum, threads, moments);
  sum.add(record);
  sum.add(training_progress);
  return sum.value();
}

// One checksum over all that belongs to a state that was learned, of those of its chunks.
std::uint64_t checksum_of_learned(std::uint64_t step, std::span<const std::uint64_t> chunks,
                                  std::span<const double> record,
                                  const std::string& training_progress) {
  Checksum sum(step);
  for (const std::uint64_t chunk : chunks) sum.add(chunk);
  sum.add(record);
  sum.add(training_progress);
  return sum.value();
}

}  // namespace

// Those of the state as it is here.
std::vector<std::uint64_t> GradientEngine::State::checksums_of_chunks() const {
  std::vector<std::uint64_t> sums(num_chunks(model.elements(), ModelState::kChunk));
  threads.parallel_for(
      sums.size(), [&](std::size_t chunk, int) { sums[chunk] = checksum_of_chunk(model, chunk); });
  return sums;
}

// From here on the state counts.
void GradientEngine::State::count_from_now(const Levels& levels, std::span<const double> record) {
  const std::span<bfloat16> all = model.bf16_weights();
  const std::span<bfloat16> copy = all.first(std::min(all.size(), model.elements()));
  tandem::kernels::convert(kernels, copy.size(), model.weights().data(), copy.data());
  model.set_step(levels.newest, record);
  model.set_filled();
}

// Called by the leaders. Activates the transferred states whose checksum is right.
void GradientEngine::State::confirm_learned(const Levels& levels, const OwnPast& own,
                                            bool learned) {
  std::vector<double> record = model.record();
  const bool source = is_source(levels);
  std::vector<std::uint64_t> chunks;
  // The source's while learners still take the last step's gradient.
  if (source) chunks = checksums_of_chunks();
  if (learned) chunks = own.learner->checksums();
  send_to_nodes(std::span(record), levels.source);
  const std::string training_progress =
      send_text_to_nodes(source ? own.training_progress : "", levels.source);
  const std::uint64_t sum = checksum_of_learned(levels.newest, chunks, record, training_progress);
  std::uint64_t expected = sum;
  send_to_nodes(std::span(&expected, 1), levels.source);
  if (!learned || sum != expected) return;
  if (own.arrives) own.arrives(training_progress);
  count_from_now(levels, record);
}

// Called by the leaders. Afterwards all nodes have the newest state.
void GradientEngine::State::replace_state(const Levels& levels, const OwnPast& own) {
  std::vector<double> record = model.record();
  const bool source = is_source(levels);
  const bool keeps = !source && model.step() > 0;
  const std::size_t elements = model.elements();
  std::vector<float> staged(keeps ? elements + model.optimizer_state().size() : 0);
  const auto weights = keeps ? std::span(staged).first(elements) : model.trained_weights();
  const auto moments = keeps ? std::span(staged).subspan(elements) : model.optimizer_state();
  if (!source && !keeps) model.begin_replacing();
  send_to_nodes(weights, levels.source);
  send_to_nodes(moments, levels.source);
  send_to_nodes(std::span(record), levels.source);
  const std::string training_progress =
      send_text_to_nodes(source ? own.training_progress : "", levels.source);
  const std::uint64_t sum =
      checksum_of(threads, levels.newest, weights, moments, record, training_progress);
  std::uint64_t expected = sum;
  send_to_nodes(std::span(&expected, 1), levels.source);
  if (sum != expected) {
    raise<CommError>("the state of step {} arrived damaged (checksum {:016x} instead of {:016x})",
                     levels.newest, sum, expected);
  }
  if (source) return;
  if (own.arrives) own.arrives(training_progress);
  if (keeps) {
    model.begin_replacing();
    std::copy(weights.begin(), weights.end(), model.weights().begin());
    std::copy(moments.begin(), moments.end(), model.optimizer_state().begin());
  }
  count_from_now(levels, record);
}

GradientEngine::State::Levels GradientEngine::State::gather_levels(bool learner) {
  const std::uint64_t own[] = {model.step(), learner ? 1u : 0u};
  std::vector<std::uint64_t> all(2 * static_cast<std::size_t>(world_size));
  communicator.all_gather(std::span<const std::uint64_t>(own), std::span(all));
  Levels levels{.newest = all[0]};
  int newest_rank = 0;
  for (int one = 1; one < world_size; ++one) {
    const std::uint64_t step = all[2 * static_cast<std::size_t>(one)];
    levels.all_equal = levels.all_equal && step == all[0];
    if (step <= levels.newest) continue;
    levels.newest = step;
    newest_rank = one;
  }
  for (std::size_t i = 1; i < all.size(); i += 2) levels.any_learner |= all[i] != 0;
  levels.source = communicator.node_of(newest_rank).index;
  return levels;
}

SyncResult GradientEngine::synchronize_state(const OwnPast& own) {
  State& s = *state_;
  if (s.world_size == 1 || s.communicator.nodes().size() == 1) return {s.model.step()};
  const bool learner = node_leader() && own.learner != nullptr;
  State::Levels levels = s.gather_levels(learner);
  if (levels.any_learner && !levels.all_equal) {
    const bool learned = learner && own.learner->reach(levels.newest);
    if (node_leader()) s.confirm_learned(levels, own, learned);
    s.node_barrier("a state that was learned");
    levels = s.gather_levels(false);
  }
  if (levels.all_equal) return {levels.newest};
  if (node_leader()) s.replace_state(levels, own);
  s.node_barrier("the state of another node");
  return {levels.newest, true};
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
  // The part of the last step's result that learners have not received lies there.
  if (!std::exchange(state_->kept, true)) state_->source().keep_gradient(s.threads);
  return {s.local[s.local_rank].arena(static_cast<std::size_t>(step.arena)), s.model.elements()};
}

MemoryPerNode GradientEngine::memory_of_node(int workers) const {
  const State& s = *state_;
  std::vector<int> ranks;
  if (workers > 0) {
    ranks.resize(static_cast<std::size_t>(std::min(workers, s.shard_count)));
    std::iota(ranks.begin(), ranks.end(), 0);
  } else {
    for (const LocalRank& one : s.local) ranks.push_back(one.rank);
  }
  const int world_size = workers > 0 ? static_cast<int>(ranks.size()) : s.world_size;
  MemoryPerNode memory;
  memory.weights = s.model.weights().size_bytes();
  memory.trained_weights = s.model.trained_weights().size_bytes();
  memory.frozen_operands = s.model.frozen_operands().size_bytes();
  memory.bf16_weights =
      std::min(s.model.bf16_weights().size(), s.model.elements()) * sizeof(bfloat16) +
      memory.frozen_operands;
  memory.optimizer_state = s.model.optimizer_state().size_bytes();
  memory.shared = s.model.shared();
  memory.undo = s.model.undo_bytes() * ranks.size();
  memory.own_roots = (s.own_roots.size() + s.received_roots.size()) * sizeof(bfloat16);
  memory.messages = memory.own_roots + s.send_buffer.size();
  for (const RemoteNode& node : s.remote) memory.messages += node.received.size();
  memory.messages *= ranks.size();
  for (const int rank : ranks) {
    const ShardPlan plan = plan_shards(shards_of(rank, world_size, s.shard_count), s.shard_count);
    memory.gradients += s.model.gradient().size_bytes() * static_cast<std::size_t>(plan.num_arenas);
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

std::string GradientEngine::describe_position() const {
  const auto& placed = state_->placed;
  if (placed.domains < 2) return "";
  if (!placed.domain)
    return fmt::format("where it is touched first: this rank has CPUs of several of {} NUMA nodes",
                       placed.domains);
  return fmt::format("{:.0f} MiB, this rank's slices and arenas, from NUMA node {} of {}",
                     static_cast<double>(placed.bytes) / (1 << 20), *placed.domain, placed.domains);
}

}  // namespace tandem::dist
