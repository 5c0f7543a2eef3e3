#include "apps/plan/cost_model.h"

#include <algorithm>
#include <cmath>

#include "tandem/comm/algorithms/summation_tree.h"
#include "tandem/dist/gradient_engine.h"
#include "tandem/dist/shard_plan.h"

namespace tandem::apps::plan {
namespace {

constexpr double kFloat = sizeof(float);

// The part of the gradient that a rank owns.
struct Slices {
  double elements = 0;
  double count = 0;
  Slices& operator+=(const Slices& other) {
    elements += other.elements;
    count += other.count;
    return *this;
  }
};

// By rank. The cuts are those of the engine.
std::vector<Slices> slices_of_ranks(std::size_t elements, int world_size) {
  constexpr std::size_t kChunk = dist::ModelState::kChunk;
  const std::size_t bucket = align_up(dist::GradientEngineOptions().bucket_elements, kChunk);
  std::vector<Slices> slices(static_cast<std::size_t>(world_size));
  for (std::size_t begin = 0; begin < elements; begin += bucket) {
    const dist::Range range{begin, std::min(elements, begin + bucket)};
    for (int rank = 0; rank < world_size; ++rank) {
      const std::size_t size =
          dist::slice_of_bucket(range, begin / bucket, rank, world_size, kChunk).size();
      if (size == 0) continue;
      slices[static_cast<std::size_t>(rank)] += {static_cast<double>(size), 1};
    }
  }
  return slices;
}

// Partials that each node sends of a slice: the largest subtrees of the tree over all ranks that
// are its own.
std::vector<double> partials_of_nodes(const Cluster& cluster) {
  std::vector<double> partials(static_cast<std::size_t>(cluster.nodes));
  const auto node_of = [&](int rank) { return rank / cluster.ranks_per_node; };
  for (const comm::Subtree& subtree : comm::owned_subtrees(cluster.world_size(), node_of)) {
    ++partials[static_cast<std::size_t>(subtree.owner)];
  }
  return partials;
}

// One rank alone.
Cluster one_rank() { return {}; }

// The gradient as the cluster's ranks own and sum it.
struct Ownership {
  std::size_t nodes;
  std::size_t local;  // ranks of a node
  std::vector<Slices> of_rank;
  std::vector<Slices> of_rail;   // lane l: the ranks with local rank l, which serve each other
  std::vector<double> partials;  // by node
  double all_partials = 0;

  Ownership(std::size_t elements, const Cluster& cluster)
      : nodes(static_cast<std::size_t>(cluster.nodes)),
        local(static_cast<std::size_t>(cluster.ranks_per_node)),
        of_rank(slices_of_ranks(elements, cluster.world_size())),
        of_rail(local),
        partials(partials_of_nodes(cluster)) {
    for (const double p : partials) all_partials += p;
    for (std::size_t rank = 0; rank < of_rank.size(); ++rank)
      of_rail[rank % local] += of_rank[rank];
  }
};

// Traffic of one rank, in bytes except for messages.
struct RankTraffic {
  double sent, received, messages, reduced, buffers;
};

RankTraffic traffic_of_rank(const Ownership& o, std::size_t node, std::size_t rail) {
  const double here = o.partials[node];
  const double elsewhere = o.all_partials - here;
  const double others = static_cast<double>(o.nodes) - 1;
  const Slices& own = o.of_rank[node * o.local + rail];
  const double served = o.of_rail[rail].elements - own.elements;
  const double served_count = o.of_rail[rail].count - own.count;
  const double operands = static_cast<double>(o.local);
  return {.sent = kFloat * (here * served + others * own.elements),
          .received = kFloat * (elsewhere * own.elements + served),
          .messages = 2 * (served_count + others * own.count),
          // Read for others and written for them; read and written for the own slice; the norm of
          // what others summed.
          .reduced = kFloat * (served * (operands + here) +
                               own.elements * (operands + elsewhere + 1) + served),
          // Partials on their way out and in; sums travel in place.
          .buffers = kFloat * (here * served + elsewhere * own.elements)};
}

}  // namespace

Traffic traffic(std::size_t elements, const Cluster& cluster) {
  const Ownership owned(elements, cluster);
  Traffic result;
  for (std::size_t node = 0; node < owned.nodes; ++node) {
    double sent = 0, received = 0, buffers = 0;
    for (std::size_t rail = 0; rail < owned.local; ++rail) {
      const RankTraffic rank = traffic_of_rank(owned, node, rail);
      sent += rank.sent;
      received += rank.received;
      buffers += rank.buffers;
      result.rank_messages = std::max(result.rank_messages, rank.messages);
      result.reduced_bytes = std::max(result.reduced_bytes, rank.reduced);
      if (owned.of_rank[node * owned.local + rail].count > 0) ++result.slice_owners;
    }
    result.all_sent += sent;
    result.all_received += received;
    result.node_sent = std::max(result.node_sent, sent);
    result.node_received = std::max(result.node_received, received);
    result.message_memory = std::max(result.message_memory, buffers);
  }
  return result;
}

double even_node_bytes(std::size_t elements, const Cluster& cluster) {
  const double nodes = cluster.nodes;
  return 2 * kFloat * static_cast<double>(elements) * (nodes - 1) / nodes;
}

double backward_seconds(double compute_seconds) { return compute_seconds * 2 / 3; }

double exposed_seconds(double wire, double backward, std::size_t layers, double last) {
  const auto parts = static_cast<double>(layers);
  double through = 0;
  for (std::size_t i = 1; i <= layers; ++i) {
    const double final_at = backward * static_cast<double>(i) / parts;
    through = std::max(through, final_at) + wire * (1 - last) / parts;
  }
  through = std::max(through, backward) + wire * last;
  return through - backward;
}

Prediction predict(const MachineProfile& profile, const Cluster& cluster,
                   const Workload& workload) {
  const auto elements = static_cast<double>(workload.elements);
  const double ranks = cluster.ranks_per_node;
  const bool several_nodes = cluster.nodes > 1;
  Prediction p;
  p.traffic = traffic(workload.elements, cluster);
  p.compute = workload.flops / (profile.peak_flops * profile.share_of_peak);
  p.reduction = p.traffic.reduced_bytes / profile.reduce_bandwidth;
  const double backward = backward_seconds(p.compute);
  if (several_nodes) {
    const double bytes = std::max(p.traffic.node_sent, p.traffic.node_received);
    const double moving =
        bytes / cluster.link_bandwidth + p.traffic.rank_messages * profile.message_seconds;
    p.wire = moving + 2 * cluster.latency;
    p.exposed = exposed_seconds(moving, backward, workload.layers,
                                static_cast<double>(workload.embedding_elements) / elements) +
                2 * cluster.latency;
  }
  const double copy_bytes = 2 * static_cast<double>(workload.bf16_elements);
  p.optimizer = (28 * elements + copy_bytes) / ranks / profile.memory_bandwidth;
  p.step = p.compute + p.reduction + p.exposed + p.optimizer;
  p.step_unhidden = p.step - p.exposed + p.wire;
  if (cluster.world_size() > 1) p.communication_share = (p.reduction + p.exposed) / p.step;
  p.tokens_per_second = workload.tokens * cluster.world_size() / p.step;
  p.efficiency =
      cluster.world_size() == 1 ? 1 : predict(profile, one_rank(), workload).step / p.step;

  p.memory.weights = kFloat * elements + copy_bytes;
  p.memory.moments = 2 * kFloat * elements;
  p.memory.gradients = kFloat * elements * ranks;
  p.memory.messages = p.traffic.message_memory;
  p.memory.activations = static_cast<double>(workload.activations) * ranks;
  return p;
}

double goodput(const MachineProfile& profile, const Cluster& cluster, const Workload& workload,
               const membership::NodeFailures& failures) {
  const double there = failures.mtbf_seconds / (failures.mtbf_seconds + failures.absence_seconds);
  const double spread = std::sqrt(cluster.nodes * there * (1 - there));
  // Numbers of nodes that are less probable than one in 10^14 count as no progress.
  const int fewest = std::max(1, static_cast<int>(cluster.nodes * there - 8 * spread) - 8);
  std::vector<double> speeds(static_cast<std::size_t>(cluster.nodes), 0);
  for (int nodes = fewest; nodes <= cluster.nodes; ++nodes) {
    Cluster left = cluster;
    left.nodes = nodes;
    const int shards = (cluster.world_size() + left.world_size() - 1) / left.world_size();
    Workload more = workload;
    more.flops *= shards;
    speeds[static_cast<std::size_t>(nodes) - 1] = 1 / predict(profile, left, more).step;
  }
  return membership::steps_with_failures(speeds, failures) / speeds.back();
}

}  // namespace tandem::apps::plan
