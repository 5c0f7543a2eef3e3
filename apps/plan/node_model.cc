#include "apps/plan/node_model.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "apps/plan/json_keys.h"
#include "tandem/core/error.h"

namespace tandem::apps::plan {
namespace {

std::array<NumberKey, 5> keys_of(NodeSpeed& speed) {
  return {{{"core_peak_gflops", &speed.core_peak, 1e9, 1e6, true},
           {"share_of_core_peak", &speed.share_of_core_peak, 1, 1, true},
           {"socket_memory_gbytes_per_second", &speed.socket_bandwidth, 1e9, 1e6, true},
           {"socket_link_gbytes_per_second", &speed.link_bandwidth, 1e9, 1e6, true},
           {"message_microseconds", &speed.message_seconds, 1e-6, 1e6, false}}};
}

// The part of the node that is a rank's.
struct RankShare {
  double cores = 0;
  double bandwidth = 0;  // bytes/s of the memory of its domains
  std::size_t sockets = 1;
};

// Without CPUs of its own a rank has all of them.
bool has_core(const std::vector<int>& cpus, const std::vector<int>& core) {
  return cpus.empty() || std::any_of(core.begin(), core.end(), [&](int cpu) {
           return std::find(cpus.begin(), cpus.end(), cpu) != cpus.end();
         });
}

double cores_in(const std::vector<int>& cpus, const launch::Domain& domain) {
  return static_cast<double>(
      std::count_if(domain.cores.begin(), domain.cores.end(),
                    [&](const std::vector<int>& core) { return has_core(cpus, core); }));
}

// By rank. Ranks that are not bound share everything.
std::vector<RankShare> shares_of(const NodeSpeed& speed, const launch::Machine& machine, int ranks,
                                 bool bound) {
  const double sockets = static_cast<double>(machine.sockets.size());
  const double of_domain =
      speed.socket_bandwidth * sockets / static_cast<double>(machine.numa.size());
  if (!bound) {
    return {{.cores = machine.num_cores() / static_cast<double>(ranks),
             .bandwidth = speed.socket_bandwidth * sockets / ranks,
             .sockets = machine.sockets.size()}};
  }
  launch::PlacementRequest request;
  request.nproc = std::to_string(ranks);
  request.own_job = true;
  const launch::Placement placement = launch::place_workers(machine, request);
  std::vector<RankShare> shares(placement.workers.size());
  for (const launch::Domain& domain : machine.numa) {
    double used = 0;
    for (const auto& worker : placement.workers) used += cores_in(worker.cpus, domain);
    for (std::size_t rank = 0; rank < shares.size(); ++rank) {
      const double own = cores_in(placement.workers[rank].cpus, domain);
      shares[rank].cores += own;
      if (own > 0) shares[rank].bandwidth += of_domain * own / used;
    }
  }
  for (std::size_t rank = 0; rank < shares.size(); ++rank) {
    shares[rank].sockets = static_cast<std::size_t>(std::count_if(
        machine.sockets.begin(), machine.sockets.end(), [&](const launch::Domain& socket) {
          return cores_in(placement.workers[rank].cpus, socket) > 0;
        }));
  }
  return shares;
}

// Bytes/s where the share `elsewhere` of the bytes comes over the links of the sockets.
double bandwidth_over(double memory, double link, double elsewhere) {
  return elsewhere == 0 ? memory : std::min(memory, link / elsewhere);
}

double share_elsewhere(std::size_t sockets) {
  return static_cast<double>(sockets - 1) / static_cast<double>(sockets);
}

double streamed_bytes(const Workload& workload) {
  const double weights = static_cast<double>(workload.elements);
  const double copies = static_cast<double>(workload.bf16_elements);
  const double read = sizeof(float) * (weights - copies) + 2 * copies;
  return 2 * static_cast<double>(workload.activations) + 2 * read + sizeof(float) * weights;
}

}  // namespace

NodeSpeed parse_node(std::string_view json, std::string_view where) {
  NodeSpeed speed;
  parse_numbers(json, keys_of(speed), {where, "node"});
  return speed;
}

MachineProfile profile_of_node(const NodeSpeed& speed, const launch::Machine& machine, int ranks,
                               bool bound, const Workload& workload) {
  if (ranks > machine.num_cores()) {
    raise<ConfigError>("--ranks-per-node {}: the topology has {} cores, expected a core for each",
                       ranks, machine.num_cores());
  }
  const std::size_t sockets = machine.sockets.size();
  const double link = speed.link_bandwidth * static_cast<double>(sockets) / ranks;
  MachineProfile slowest{.peak_flops = std::numeric_limits<double>::infinity(),
                         .share_of_peak = 1,
                         .memory_bandwidth = std::numeric_limits<double>::infinity(),
                         .reduce_bandwidth = std::numeric_limits<double>::infinity(),
                         .message_seconds = speed.message_seconds};
  double slowest_compute = 0;
  for (const RankShare& rank : shares_of(speed, machine, ranks, bound)) {
    const double own = bandwidth_over(rank.bandwidth, link, share_elsewhere(rank.sockets));
    const double peak = rank.cores * speed.core_peak;
    const double compute =
        workload.flops / (peak * speed.share_of_core_peak) + streamed_bytes(workload) / own;
    slowest.memory_bandwidth = std::min(slowest.memory_bandwidth, own);
    slowest.reduce_bandwidth = std::min(
        slowest.reduce_bandwidth,
        bandwidth_over(rank.bandwidth, link,
                       ranks == 1 ? share_elsewhere(rank.sockets) : share_elsewhere(sockets)));
    if (compute <= slowest_compute) continue;
    slowest_compute = compute;
    slowest.peak_flops = peak;
    slowest.share_of_peak = workload.flops / (peak * compute);
  }
  return slowest;
}

}  // namespace tandem::apps::plan
