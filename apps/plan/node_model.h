// The speed of a rank on a node that is only described: sockets, memory domains, cores. Pure
// functions, as cost_model.h.
//
// The node has the topology that hwloc's notation describes ("pack:2 numa:4 core:14 pu:2"), and
// ranks are placed on it as the launcher places them. The speed comes from:
//
//   cores     A rank has its cores' peak. Two hardware threads of a core are one core: products
//             keep its units busy with one.
//   memory    A domain has an equal share of its socket's bandwidth, and the ranks of a domain
//             share it by their cores. Forward and backward stream each activation that is kept
//             out and in, read the weights twice, and write the gradient. These bytes take their
//             time in addition to the products.
//   sockets   A rank with cores in s sockets finds (s − 1) / s of its bytes in others. They come
//             over the links of the sockets, which the ranks share. Sums read the partials of all
//             ranks, wherever they are.
//   unbound   A rank without binding has cores and memory everywhere. That threads move, or that
//             two share a core, is not in the model: it is the best case.
//
// The slowest rank is that of all. Waits of a rank's threads for each other, and work that one of
// them does alone, are not in the model: a rank with many cores reaches less.
#pragma once

#include <string_view>

#include "apps/plan/cost_model.h"
#include "tandem/launch/process/placement.h"

namespace tandem::apps::plan {

struct NodeSpeed {
  double core_peak = 0;           // FLOP/s of multiply-adds on registers, while all cores work
  double share_of_core_peak = 0;  // that forward and backward reach on data in caches; (0, 1]
  double socket_bandwidth = 0;    // bytes/s of a socket's own memory, read and written
  double link_bandwidth = 0;      // bytes/s that a socket receives from the others
  double message_seconds = 10e-6;
};

// {"core_peak_gflops", "share_of_core_peak", "socket_memory_gbytes_per_second",
// "socket_link_gbytes_per_second"}, and "message_microseconds" if it is not the default. Throws
// ConfigError, naming `where`, for broken JSON and for a key that is missing, unknown or out of
// range.
NodeSpeed parse_node(std::string_view json, std::string_view where);

// The profile of the slowest of `ranks` ranks. Throws ConfigError for more ranks than cores.
MachineProfile profile_of_node(const NodeSpeed& speed, const launch::Machine& machine, int ranks,
                               bool bound, const Workload& workload);

}  // namespace tandem::apps::plan
