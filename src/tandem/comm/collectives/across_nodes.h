// Collectives across nodes: node, then network, then node.
#pragma once

#include <memory>
#include <vector>

#include "tandem/comm/collectives/communicator_state.h"
#include "tandem/comm/network/message_task.h"

namespace tandem::comm {

// `state` must outlive the task.
std::unique_ptr<CommTask> make_task_across_nodes(Communicator::State& state, const Call& call,
                                                 const Begun& begun);

// State shared by all stages of one operation.
struct Collective {
  Communicator::State& state;
  Call call;
  Begun begun;

  NodeContext context() const {
    return {*state.channel, *state.kernels, begun.sequence, {call, begun.history}};
  }
  int local_size() const { return static_cast<int>(state.node_members().size()); }
  int own_node() const { return state.node_index[static_cast<std::size_t>(state.rank)]; }
  int num_nodes() const { return static_cast<int>(state.nodes.size()); }
  int node_of(int r) const { return state.node_index[static_cast<std::size_t>(r)]; }
  const std::vector<int>& members(int node) const {
    return state.nodes[static_cast<std::size_t>(node)].members;
  }
  Header header() const {
    Header result;
    result.channel = state.channel_number(0);
    result.operation = call.operation;
    result.type = call.type;
    result.op = call.op;
    result.root = call.root;
    result.history = static_cast<std::uint32_t>(begun.history);
    result.sequence = begun.sequence;
    result.count = call.count;
    return result;
  }
  Messages messages() const { return {*state.comm_context->transport, header()}; }
  std::unique_ptr<CommTask> exchange(Round round) const {
    return std::make_unique<MessageTask>(messages(), std::move(round));
  }
  // Rank `rail` of every node, as ranks of the job.
  std::vector<int> rail_members(int rail) const {
    std::vector<int> ranks;
    ranks.reserve(state.nodes.size());
    for (const Node& node : state.nodes)
      ranks.push_back(state.world(node.members[static_cast<std::size_t>(rail)]));
    return ranks;
  }
  // A node stage announces the operation that contains it, with a separate name for the stage.
  Call stage(Operation operation, const std::byte* in, std::byte* out, std::size_t count,
             DataType type, int root) const {
    return {operation, type,  operation == Operation::kAllReduce ? call.op : ReduceOp::kNone,
            root,      count, in,
            out};
  }
};

// `result` (on all ranks, of the call's type) = the reduction of the ranks' `in`.
std::unique_ptr<CommTask> all_reduce_across_nodes(const Collective& collective, const std::byte* in,
                                                  std::byte* result, std::size_t elements);

// The type in which a node's partial sum is sent when numbers of `type` are reduced: the input of a
// single rank still has that type.
DataType wire_type(const Subtree& partial, DataType type);

// Operations on blocks, one per rank.
std::unique_ptr<CommTask> reduce_scatter_across_nodes(const Collective& collective);
std::unique_ptr<CommTask> all_gather_across_nodes(const Collective& collective);
std::unique_ptr<CommTask> move_blocks(const Collective& collective);

}  // namespace tandem::comm
