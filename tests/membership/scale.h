// Cost of a change of the view in a large job, and duration of a learner's transfer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tandem/elastic/protocol/goodput.h"

namespace tandem::simulation {

struct Network {
  double latency_seconds = 50e-6;    // one way
  double bytes_per_second = 1.25e9;  // bandwidth of a node, in each direction; 10 Gbit/s
  double stop_seconds = 0;           // until a node's workers have stopped
};

struct ViewChange {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  int rounds = 0;      // rounds of the leader and the others, there and back
  double seconds = 0;  // until the last node runs the view
};

struct Transfer {
  double seconds = 0;        // until the learner is level
  std::uint64_t chunks = 0;  // that were fetched; more than there are if some were fetched again
};
// A learner receives `bytes` of state while steps take `step_seconds`; each
// step's gradient is `gradient_bytes`. The ledger is production's.
Transfer learn(std::uint64_t bytes, std::uint64_t gradient_bytes, double step_seconds,
               const Network& network);

// Nodes that fail at random, event by event, with the view changes that the simulator measures: the
// steps per second that are left. protocol/goodput.h has the formula.
double steps_of_failing_nodes(const std::vector<double>& speed,
                              const membership::NodeFailures& failures, double end);

}  // namespace tandem::simulation
