// Collectives across nodes: node, then network, then node.
#pragma once

#include <memory>

#include "tandem/comm/communicator_state.h"

namespace tandem::comm {

// `state` must outlive the task.
std::unique_ptr<Task> make_task_across_nodes(Communicator::State& state, const Call& call,
                                             std::uint64_t sequence);

}  // namespace tandem::comm
