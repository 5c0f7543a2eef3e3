// Where the engine's arrays lie, and what each rank sums, sends and receives in every step.
#include <algorithm>
#include <utility>

#include "tandem/comm/memory.h"
#include "tandem/core/error.h"
#include "tandem/core/huge_pages.h"
#include "tandem/core/pages.h"
#include "tandem/dist/gradient_engine_state.h"
#include "tandem/dist/memory_domains.h"

namespace tandem::dist {
namespace {

// The kernel keeps each as a mapping of its own, and a process may have 65,530 of them.
constexpr std::size_t kMostAreas = 16384;

SegmentLayout lay_out(std::size_t elements, const ShardPlan& plan, bool leader) {
  SegmentLayout layout;
  layout.num_flags = 1 + plan.partials.size();
  layout.arenas = align_up(layout.num_flags * sizeof(FlagLine), kPage);
  layout.arena_bytes = align_up(elements * sizeof(float), kPage);
  const auto arenas = static_cast<std::size_t>(plan.num_arenas) - (leader ? 1 : 0);
  layout.total = layout.arenas + arenas * layout.arena_bytes;
  return layout;
}

}  // namespace

void GradientEngine::State::bind_numa() {
  std::vector<int> members = {0};
  if (world_size > 1) {
    members = communicator.node().members;
    local_rank = static_cast<std::size_t>(communicator.local_rank());
  }
  for (std::size_t i = 0; i < members.size(); ++i) {
    LocalRank one;
    one.rank = members[i];
    one.layout =
        lay_out(model.elements(),
                plan_shards(shards_of(members[i], world_size, shard_count), shard_count), i == 0);
    if (i == 0) one.first_arena = model.gradient().data();
    local.push_back(one);
  }
  const std::size_t own_bytes = local[local_rank].layout.total;
  if (world_size > 1) {
    node_memory.emplace(share_node_memory(communicator, own_bytes));
    for (std::size_t i = 0; i < local.size(); ++i) {
      const std::span<std::byte> segment = node_memory->segment(static_cast<int>(i));
      if (segment.size() != local[i].layout.total) {
        raise<CommError>("{} shares {} bytes, expected {}; train the same model on all ranks",
                         communicator.describe_rank(local[i].rank), segment.size(),
                         local[i].layout.total);
      }
      local[i].segment = segment.data();
    }
  } else {
    own_memory = Buffer(own_bytes);
    local[0].segment = own_memory.data();
  }
  reduced = model.gradient().data();
  norm_partials = model.norm_partials().data();
  const int parts = static_cast<int>(local.size());
  for (const Range& bucket : buckets) {
    const Range own = slice_of(bucket, static_cast<int>(local_rank), parts, ModelState::kChunk);
    if (own.size() == 0) continue;
    if (!owned.empty() && owned.back().end == own.begin) {
      owned.back().end = own.end;
    } else {
      owned.push_back(own);
    }
  }
  prefer_own_domain();
}

// Each array of the optimizer's state is as long as the model, or has an order of its own: then its
// pages lie where they are touched first, by the rank that updates them.
std::vector<std::span<std::byte>> GradientEngine::State::own_pages() const {
  std::vector<std::span<std::byte>> pages;
  const auto add = [&]<class T>(std::span<T> array) {
    const auto found = pages_of(std::as_writable_bytes(array), sizeof(T), owned);
    pages.insert(pages.end(), found.begin(), found.end());
  };
  const std::size_t elements = model.elements();
  const std::span<float> moments = model.optimizer_state();
  add(model.gradient());
  add(model.weights());
  add(model.bf16_weights());
  for (std::size_t begin = 0; moments.size() % elements == 0 && begin < moments.size();)
    add(moments.subspan(std::exchange(begin, begin + elements), elements));
  const LocalRank& own = local[local_rank];
  const std::span<std::byte> segment(own.segment, own.layout.total);
  const Range whole{0, segment.size()};
  for (const auto& area : pages_of(segment, 1, std::span(&whole, 1))) pages.push_back(area);
  return pages;
}

void GradientEngine::State::prefer_own_domain() {
  if (local.size() == 1) return;
  const MemoryDomains domains;
  const auto domain = domains.of(own_cpus());
  placed = {.domains = domains.count(), .domain = domain};
  const auto pages = domain ? own_pages() : std::vector<std::span<std::byte>>();
  if (pages.size() <= kMostAreas) {
    for (const auto& area : pages)
      if (domains.prefer(area, *domain)) placed.bytes += area.size();
  }
  node_barrier("the places of the model's memory");  // before a rank fills it
}

// Memory of a process's own has them already. Behind the choice of its place, before a rank fills
// it: what is filled later is filled faster.
void GradientEngine::State::collapse_own_pages() {
  if (!model.shared()) return;
  for (const std::span<std::byte> area : own_pages()) collapse_to_huge_pages(area);
}

// The operands of the whole tree at this rank, and the programs that use them.
void GradientEngine::State::plan_sums() {
  const auto rank_of = [&](int shard) { return rank_of_shard(shard, world_size, shard_count); };
  const auto node_of = [&](int shard) {
    return world_size == 1 ? 0 : communicator.node_of(rank_of(shard)).index;
  };
  const int own_node = world_size == 1 ? 0 : communicator.node().index;
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

void GradientEngine::State::plan_remote(const std::vector<comm::Subtree>& node_partials) {
  if (world_size == 1 || communicator.nodes().size() == 1) {
    messages.take(0);
    return;
  }
  std::size_t own_elements = 0;  // elements of this rank's slices
  for (std::size_t b = 0; b < buckets.size(); ++b) own_elements += slice(b, rank).size();
  const auto partials_of = [&](int index) {
    return static_cast<std::size_t>(std::count_if(node_partials.begin(), node_partials.end(),
                                                  [&](const auto& p) { return p.owner == index; }));
  };
  const auto picked = [](const comm::Node& node, int r) {
    return node.members[static_cast<std::size_t>(r) % node.members.size()];
  };
  std::size_t send_elements = 0;
  for (const comm::Node& node : communicator.nodes()) {
    if (node.index == communicator.node().index) continue;
    RemoteNode one;
    one.sender = one.receiver = picked(node, rank);
    one.num_partials = partials_of(node.index);
    for (const int member : node.members) {
      if (picked(communicator.node(), member) != rank) continue;
      one.served.push_back(member);
      for (std::size_t b = 0; b < buckets.size(); ++b) send_elements += slice(b, member).size();
    }
    remote.push_back(std::move(one));
  }
  place_messages(wire_bytes(send_elements * partials_of(communicator.node().index)), own_elements);
  if (rounded()) {
    own_roots.resize(own_elements);
    received_roots.resize(send_elements);  // roots of the slices that this rank serves
  }
  partial_receives.resize(buckets.size());
  reduced_receives.resize(buckets.size());
}

// Messages to other nodes, followed by those from each of them.
void GradientEngine::State::place_messages(std::size_t send_bytes, std::size_t own_elements) {
  const auto bytes_from = [&](const RemoteNode& node) {
    return wire_bytes(own_elements * node.num_partials);
  };
  std::size_t all = align_up(send_bytes, kTensorAlignment);
  for (const RemoteNode& node : remote) all += align_up(bytes_from(node), kTensorAlignment);
  std::span<std::byte> memory = messages.take(all);
  send_buffer = memory.first(send_bytes);
  std::size_t at = align_up(send_bytes, kTensorAlignment);
  for (RemoteNode& node : remote) {
    node.received = memory.subspan(at, bytes_from(node));
    at += align_up(bytes_from(node), kTensorAlignment);
  }
}

std::span<std::byte> MessageMemory::take(std::size_t bytes) {
  if (bytes == 0 || bytes > memory_.size()) {
    memory_ = Buffer();  // before there is another one
    memory_ = Buffer(bytes);
  }
  return memory_.as<std::byte>().first(bytes);
}

// With one other node half of the gradient goes and half of it comes; buckets are not cut quite in
// the middle.
void MessageMemory::touch(std::size_t model_elements) {
  constexpr std::size_t kUneven = std::size_t{4} << 20;
  const std::span<std::byte> memory = take(model_elements * sizeof(float) + kUneven);
  for (std::size_t at = 0; at < memory.size(); at += kPage) memory[at] = std::byte{1};
}

}  // namespace tandem::dist
