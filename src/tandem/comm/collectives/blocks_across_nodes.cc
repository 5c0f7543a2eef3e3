// Operations across nodes in which every rank has a block of its own.
#include <algorithm>
#include <array>
#include <cstring>
#include <functional>

#include "tandem/comm/collectives/across_nodes.h"

namespace tandem::comm {
namespace {

using State = Communicator::State;
using Bytes = std::vector<std::byte>;

// Nodes of one size: rank i of each node can handle the blocks of the ranks i of all nodes.
bool has_equal_nodes(const State& state) {
  return std::all_of(state.nodes.begin(), state.nodes.end(), [&](const Node& node) {
    return node.members.size() == state.nodes[0].members.size();
  });
}

// This node's partial sums of the blocks of node `of`: local rank i gets those of the block of rank
// i of that node.
std::unique_ptr<CommTask> reduce_blocks_of(const Collective& collective, int of, std::byte* wide,
                                           std::size_t stride) {
  const State& state = collective.state;
  const std::size_t block = collective.call.block_bytes();
  const auto block_of = [&](std::size_t local) {
    const int owner = collective.members(of)[local];
    return std::span(collective.call.in + static_cast<std::size_t>(owner) * block, block);
  };
  NodeReduction reduction;
  reduction.how = {collective.call.type, collective.call.op, 1, /*wide_result=*/true};
  reduction.programs = state.node_programs;
  reduction.stride = stride;
  if (collective.local_size() == 1) {
    const std::byte* const inputs[] = {block_of(0).data()};
    reduce(*state.kernels, reduction.how, state.node_programs[0], inputs, std::span(&wide, 1),
           collective.call.count);
    return nullptr;
  }
  StagedPlan plan(state.local_rank, collective.local_size(), block);
  plan.combine_shares(block_of, wide);
  plan.read_all();
  plan.be_read_by_all();
  const Call call{Operation::kReduceScatter,
                  collective.call.type,
                  collective.call.op,
                  0,
                  collective.call.count,
                  nullptr,
                  nullptr};
  return std::make_unique<LargeTask>(collective.context(), call, std::move(plan), reduction);
}

// Partial sums in the type in which they are sent: those of a wider type than the call's that are
// exact in the call's type are narrowed here. Lives as long as the round.
struct Wire {
  std::vector<std::unique_ptr<std::byte[]>> copies;
  std::vector<std::function<void()>> widenings;  // conversions of the received sums

  // Not cleared: all of it is overwritten.
  std::byte* add_copy(std::size_t bytes) {
    copies.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
    return copies.back().get();
  }
};

bool is_narrowed(const Collective& collective, const Subtree& partial) {
  return wire_type(partial, collective.call.type) != accumulator_of(collective.call.type);
}

void send_partial(const Collective& collective, const Subtree& partial, int peer,
                  std::span<const std::byte> wide, Round& round, Wire& wire) {
  if (!is_narrowed(collective, partial)) return round.send(peer, wide);
  std::byte* const copy = wire.add_copy(collective.call.block_bytes());
  finish_reduction(*collective.state.kernels, collective.call.type, 1, wide.data(), copy,
                   collective.call.count);
  round.send(peer, {copy, collective.call.block_bytes()});
}

void receive_partial(const Collective& collective, const Subtree& partial, int peer,
                     std::span<std::byte> wide, Round& round, Wire& wire) {
  if (!is_narrowed(collective, partial)) return round.receive(peer, wide);
  std::byte* const copy = wire.add_copy(collective.call.block_bytes());
  round.receive(peer, {copy, collective.call.block_bytes()});
  wire.widenings.push_back([collective, copy, wide] {
    widen(*collective.state.kernels, collective.call.type, copy, wide.data(),
          collective.call.count);
  });
}

// Rank i of this node and the ranks i of the others: each sends the partial sums of the others'
// blocks and adds up those of its own. `sums`: this node's partials, by destination node;
// `received`: room for all nodes' partials, in tree order.
Round exchange_partials(const Collective& collective, const std::shared_ptr<Bytes>& sums,
                        const std::shared_ptr<Bytes>& received, std::size_t stride) {
  const State& state = collective.state;
  const std::vector<int> rail = collective.rail_members(state.local_rank);
  const std::size_t own_bytes = stride * state.node_programs.size();
  const auto wire = std::make_shared<Wire>();
  Round round;
  std::vector<std::size_t> taken(state.nodes.size());  // partials of each node so far
  std::vector<const std::byte*> operands;
  for (std::size_t p = 0; p < state.partials.size(); ++p) {
    const Subtree& partial = state.partials[p];
    const auto owner = static_cast<std::size_t>(partial.owner);
    if (partial.owner != collective.own_node()) {
      const std::span to = std::span(*received).subspan(p * stride, stride);
      receive_partial(collective, partial, rail[owner], to, round, *wire);
      operands.push_back(to.data());
      continue;
    }
    const std::size_t at = taken[owner]++ * stride;
    for (std::size_t node = 0; node < state.nodes.size(); ++node) {
      const std::span from = std::span(*sums).subspan(node * own_bytes + at, stride);
      if (node == owner) {
        operands.push_back(from.data());
      } else {
        send_partial(collective, partial, rail[node], from, round, *wire);
      }
    }
  }
  round.then = [=] {
    for (const auto& widen : wire->widenings) widen();
    Bytes total(stride);
    std::byte* const output = total.data();
    reduce(*collective.state.kernels, {accumulator_of(collective.call.type), collective.call.op},
           collective.state.partial_tree, operands, std::span(&output, 1), collective.call.count);
    const int divisor = collective.call.op == ReduceOp::kAverage ? collective.state.size : 1;
    finish_reduction(*collective.state.kernels, collective.call.type, divisor, output,
                     collective.call.out, collective.call.count);
  };
  return round;
}

}  // namespace

DataType wire_type(const Subtree& partial, DataType type) {
  return partial.leaves() == 1 ? type : accumulator_of(type);
}

// For each node in turn, the ranks here add up their contributions to its ranks. Rank i sends the
// sum to rank i there, which adds up the sums of all nodes. (Nodes of different sizes: one
// all_reduce.)
std::unique_ptr<CommTask> reduce_scatter_across_nodes(const Collective& collective) {
  const State& state = collective.state;
  auto task = std::make_unique<SequenceTask>();
  if (!has_equal_nodes(state)) {
    const std::size_t block = collective.call.block_bytes();
    const auto whole = std::make_shared<Bytes>(block * static_cast<std::size_t>(state.size));
    task->keep(whole);
    task->add([=] {
      return all_reduce_across_nodes(
          collective, collective.call.in, whole->data(),
          collective.call.count * static_cast<std::size_t>(collective.state.size));
    });
    task->then([=] {
      if (block == 0) return;
      std::memcpy(collective.call.out,
                  whole->data() + static_cast<std::size_t>(collective.state.rank) * block, block);
    });
    return task;
  }
  const std::size_t stride = collective.call.count * size_of(accumulator_of(collective.call.type));
  const std::size_t own_bytes = stride * state.node_programs.size();
  // By destination node.
  const auto sums = std::make_shared<Bytes>(own_bytes * state.nodes.size());
  const auto received = std::make_shared<Bytes>(stride * state.partials.size());  // in tree order
  task->keep(sums);
  task->keep(received);
  for (int node = 0; node < collective.num_nodes(); ++node) {
    task->add([=] {
      return reduce_blocks_of(collective, node,
                              sums->data() + static_cast<std::size_t>(node) * own_bytes, stride);
    });
  }
  task->add(
      [=] { return collective.exchange(exchange_partials(collective, sums, received, stride)); });
  return task;
}

// Rank i receives the blocks of the ranks i of all nodes; then, node by node, the other ranks of
// its node get them from it.
std::unique_ptr<CommTask> all_gather_across_nodes(const Collective& collective) {
  const State& state = collective.state;
  if (!has_equal_nodes(state)) return move_blocks(collective);
  const std::size_t block = collective.call.block_bytes();
  const auto out_block = [collective, block](int r) {
    return std::span(collective.call.out + static_cast<std::size_t>(r) * block, block);
  };
  Round round;
  for (int node = 0; node < collective.num_nodes(); ++node) {
    const int peer = collective.members(node)[static_cast<std::size_t>(state.local_rank)];
    if (peer == state.rank) continue;
    round.send(state.world(peer), {collective.call.in, block});
    round.receive(state.world(peer), out_block(peer));
  }
  auto task = std::make_unique<SequenceTask>();
  const std::span<std::byte> own = out_block(state.rank);
  if (block != 0 && own.data() != collective.call.in)
    std::memcpy(own.data(), collective.call.in, block);
  task->add([collective, round]() mutable { return collective.exchange(std::move(round)); });
  for (int node = 0; node < collective.num_nodes(); ++node) {
    task->add([=]() -> std::unique_ptr<CommTask> {
      if (collective.local_size() == 1) return nullptr;
      StagedPlan plan(collective.state.local_rank, collective.local_size(), block);
      plan.show_parts(
          [&](std::size_t local) { return out_block(collective.members(node)[local]); });
      plan.read_all();
      plan.be_read_by_all();
      const Call call = collective.stage(Operation::kAllGather, nullptr, nullptr,
                                         collective.call.count, collective.call.type, 0);
      return std::make_unique<LargeTask>(collective.context(), call, std::move(plan),
                                         NodeReduction{});
    });
  }
  return task;
}

namespace {

// Blocks as messages. In step k rank r sends to r + k and receives from r − k; step 0 is its own
// block.
class BlockMoves {
 public:
  explicit BlockMoves(const Collective& collective)
      : collective_(collective), block_(collective.call.block_bytes()) {}

  Round round() {
    const State& state = collective_.state;
    for (int step = 0; step < state.size; ++step) {
      add((state.rank + step) % state.size, (state.rank - step + state.size) % state.size);
    }
    return std::move(round_);
  }

 private:
  void add(int to, int from) {
    const int root = collective_.call.root;
    const bool at_root = collective_.state.rank == root;
    switch (collective_.call.operation) {
      case Operation::kAllGather:
        send(to, in(0));
        receive(from, out(from));
        break;
      case Operation::kAllToAll:
        send(to, in(to));
        receive(from, out(from));
        break;
      case Operation::kGather:
        if (to == root) send(to, in(0));
        if (at_root) receive(from, out(from));
        break;
      case Operation::kScatter:
        if (at_root) send(to, in(to));
        if (from == root) receive(from, out(0));
        break;
      default:
        break;
    }
  }
  std::span<const std::byte> in(int r) const {
    return {collective_.call.in + static_cast<std::size_t>(r) * block_, block_};
  }
  std::span<std::byte> out(int r) const {
    return {collective_.call.out + static_cast<std::size_t>(r) * block_, block_};
  }
  void send(int to, std::span<const std::byte> from) {
    if (to == collective_.state.rank) {
      own_ = from;
    } else {
      round_.send(collective_.state.world(to), from);
    }
  }
  void receive(int from, std::span<std::byte> to) {
    if (from != collective_.state.rank) {
      round_.receive(collective_.state.world(from), to);
    } else if (!own_.empty() && to.data() != own_.data()) {
      std::memcpy(to.data(), own_.data(), own_.size());
    }
  }

  const Collective& collective_;
  std::size_t block_;
  std::span<const std::byte> own_;  // from this rank to itself
  Round round_;
};

}  // namespace

// Blocks between every two ranks, or between the root and all: as messages. (all_gather only on
// nodes of different sizes.)
std::unique_ptr<CommTask> move_blocks(const Collective& collective) {
  return collective.exchange(BlockMoves(collective).round());
}

}  // namespace tandem::comm
