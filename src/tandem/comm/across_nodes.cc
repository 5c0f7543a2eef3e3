// Every collective across nodes in up to three stages: the ranks of a node together (shared memory), then rank i of each
// node with rank i of the others (messages; all "lanes" at once), then the ranks of a node again. Operations whose blocks
// go from one rank to one other need no stages and are sent as they are.
//
// Sums keep the canonical tree: a node adds up the subtrees that consist of its ranks (one, if the ranks are placed in
// blocks of 2^k; else a few), in the accumulator type, and the lanes add these along the rest of the tree.
#include "tandem/comm/across_nodes.h"

#include <algorithm>
#include <cstring>

#include "tandem/comm/message_task.h"
#include "tandem/core/error.h"

namespace tandem::comm {
namespace {

using State = Communicator::State;
using Bytes = std::vector<std::byte>;

// What all stages of one operation share.
struct Job {
  State& state;
  Call call;
  std::uint64_t sequence;

  NodeContext context() const { return {*state.channel, *state.kernels, sequence}; }
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
    result.sequence = sequence;
    result.count = call.count;
    return result;
  }
  std::unique_ptr<Task> messages(std::vector<Round> rounds) const {
    return std::make_unique<MessageTask>(*state.fabric->transport, header(), std::move(rounds));
  }
  // Rank `lane` of every node, as ranks of the job.
  std::vector<int> lane_members(int lane) const {
    std::vector<int> ranks;
    for (const Node& node : state.nodes)
      ranks.push_back(state.world(node.members[static_cast<std::size_t>(lane)]));
    return ranks;
  }
  // A node stage announces the operation itself, with its own name for the stage.
  Call stage(Operation operation, const std::byte* in, std::byte* out, std::size_t count,
             DataType type, int root) const {
    return {operation, type,  operation == Operation::kAllReduce ? call.op : ReduceOp::kNone,
            root,      count, in,
            out};
  }
};

std::unique_ptr<Task> node_barrier(const Job& job) {
  if (job.local_size() == 1) return nullptr;
  return std::make_unique<SlotTask>(job.context(), Call{}, NodeReduction{});
}

std::unique_ptr<Task> barrier(const Job& job) {
  auto task = std::make_unique<SequenceTask>();
  task->add([job] { return node_barrier(job); });
  task->add([job]() -> std::unique_ptr<Task> {
    if (job.state.local_rank != 0) return nullptr;
    const std::vector<int> leaders = job.lane_members(0);
    return job.messages(rounds_of(schedule_barrier(job.num_nodes(), job.own_node()),
                                  std::array{static_cast<std::byte*>(nullptr)}, leaders,
                                  *job.state.kernels, Reduction{DataType::kByte}));
  });
  task->add([job] { return node_barrier(job); });
  return task;
}

// Slices of a vector, one per lane; ranks beyond the lanes have empty ones.
struct Lanes {
  int count = 1;
  std::vector<Slice> slices;  // by local rank

  Lanes(const Job& job, std::size_t elements, std::size_t element_bytes)
      : count(select_lanes(elements * element_bytes, job.state.lanes)) {
    for (int i = 0; i < job.local_size(); ++i) {
      slices.push_back(i < count ? slice_of(elements, element_bytes, i, count)
                                 : Slice{elements, elements});
    }
  }
  const Slice& of(int local) const { return slices[static_cast<std::size_t>(local)]; }
  std::size_t longest() const {
    std::size_t most = 0;
    for (const Slice& slice : slices) most = std::max(most, slice.size());
    return most;
  }
};

// The lanes have their slices of `data`; afterwards all ranks of the node have all of it.
std::unique_ptr<Task> gather_lanes(const Job& job, const Lanes& lanes, std::byte* data,
                                   std::size_t elements) {
  const int size = job.local_size();
  if (size == 1) return nullptr;
  const std::size_t element = size_of(job.call.type);
  if (lanes.count == 1) {
    const Call call =
        job.stage(Operation::kBroadcast, data, data, elements, job.call.type, /*root=*/0);
    if (select_node_way(call.operation, call.block_bytes(), size) != NodeWay::kStaged)
      return std::make_unique<SlotTask>(job.context(), call, NodeReduction{});
    return std::make_unique<LargeTask>(job.context(), call, NodeReduction{});
  }
  StagedPlan plan;
  const auto ranks = static_cast<std::size_t>(size);
  plan.give.resize(ranks);
  plan.take.resize(ranks);
  plan.take_all.resize(ranks);
  plan.reads.assign(ranks, false);
  plan.read_by.assign(ranks, false);
  plan.longest = lanes.longest() * element;
  for (int i = 0; i < size; ++i) {
    const Slice& slice = lanes.of(i);
    const std::span bytes(data + slice.begin * element, slice.size() * element);
    const auto at = static_cast<std::size_t>(i);
    if (i == job.state.local_rank) {
      plan.give_all = bytes;
    } else {
      plan.take_all[at] = bytes;
      plan.reads[at] = !bytes.empty();
      plan.read_by[at] = true;
    }
  }
  const Call call = job.stage(Operation::kAllGather, nullptr, nullptr, elements, job.call.type, 0);
  return std::make_unique<LargeTask>(job.context(), call, std::move(plan), NodeReduction{});
}

// The node's partial sums of all elements of its ranks' `in`: for each lane those of its slice, in the accumulator type,
// partial p at wide + p · stride.
std::unique_ptr<Task> reduce_to_lanes(const Job& job, const Lanes& lanes, const std::byte* in,
                                      std::size_t elements, std::byte* wide, std::size_t stride) {
  const State& state = job.state;
  const int size = job.local_size();
  const std::size_t element = size_of(job.call.type);
  NodeReduction reduction;
  reduction.how = {job.call.type, job.call.op, 1, /*wide_result=*/true};
  reduction.programs = state.node_programs;
  reduction.stride = stride;
  if (size == 1) {
    const std::byte* const inputs[] = {in};
    std::byte* const output = wide;
    reduce(*state.kernels, reduction.how, state.node_programs[0], inputs, std::span(&output, 1),
           elements);
    return nullptr;
  }
  const Call call{Operation::kAllReduce, job.call.type, job.call.op, 0, elements, in, wide};
  if (lanes.count == 1 &&
      select_node_way(call.operation, call.block_bytes(), size) != NodeWay::kStaged)
    return std::make_unique<SlotTask>(job.context(), call, reduction);
  StagedPlan plan;
  const auto ranks = static_cast<std::size_t>(size);
  plan.give.resize(ranks);
  plan.take.resize(ranks);
  plan.take_all.resize(ranks);
  plan.reads.assign(ranks, state.local_rank < lanes.count);
  plan.read_by.assign(ranks, false);
  plan.reads[static_cast<std::size_t>(state.local_rank)] = false;
  plan.to_each = plan.reduces = true;
  plan.longest = lanes.longest() * element;
  plan.result = wide;
  for (int i = 0; i < size; ++i) {
    const Slice& slice = lanes.of(i);
    const std::span bytes(in + slice.begin * element, slice.size() * element);
    if (i == state.local_rank) {
      plan.own_share = bytes;
    } else {
      plan.give[static_cast<std::size_t>(i)] = bytes;
      plan.read_by[static_cast<std::size_t>(i)] = i < lanes.count;
    }
  }
  return std::make_unique<LargeTask>(job.context(), call, std::move(plan), reduction);
}

// `result` (all ranks, of the call's type) = the reduction of the ranks' `in`.
void add_all_reduce(SequenceTask& task, const Job& job, const std::byte* in, std::byte* result,
                    std::size_t elements) {
  const State& state = job.state;
  const std::size_t element = size_of(job.call.type);
  const DataType wide_type = accumulator_of(job.call.type);
  const auto lanes = std::make_shared<Lanes>(job, elements, element);
  // One lane from slots: every rank adds everything up; else each lane only its slice.
  const bool has_all = lanes->count == 1;
  const Slice own = has_all ? Slice{0, elements} : lanes->of(state.local_rank);
  const std::size_t stride = own.size() * size_of(wide_type);
  const auto wide = std::make_shared<Bytes>(stride * state.node_programs.size());
  const bool uses_network = state.local_rank < lanes->count;
  task.keep(wide);
  task.add([=] { return reduce_to_lanes(job, *lanes, in, elements, wide->data(), stride); });
  task.add([=]() -> std::unique_ptr<Task> {
    if (!uses_network) return nullptr;
    const State& s = job.state;
    const Algorithm algorithm = select_between_nodes(
        s.options.selection, job.call.operation, elements * element, job.num_nodes(), s.aligned);
    const Schedule schedule =
        algorithm == Algorithm::kExchange
            ? schedule_exchange(job.num_nodes(), job.own_node(), own.size(), s.partials,
                                s.partial_tree)
            : schedule_all_reduce(algorithm, job.num_nodes(), job.own_node(), own.size());
    std::vector<std::byte*> arrays;
    for (std::size_t p = 0; p < s.node_programs.size(); ++p)
      arrays.push_back(wide->data() + p * stride);
    return job.messages(rounds_of(schedule, arrays, job.lane_members(s.local_rank), *s.kernels,
                                  {wide_type, job.call.op}));
  });
  task.then([=] {
    if (!uses_network) return;
    const int divisor = job.call.op == ReduceOp::kAverage ? job.state.size : 1;
    finish_reduction(*job.state.kernels, job.call.type, divisor, wide->data(),
                     result + own.begin * element, own.size());
  });
  task.add([=] { return gather_lanes(job, *lanes, result, elements); });
}

std::unique_ptr<Task> all_reduce(const Job& job) {
  auto task = std::make_unique<SequenceTask>();
  add_all_reduce(*task, job, job.call.in, job.call.out, job.call.count);
  return task;
}

std::unique_ptr<Task> reduce_to_root(const Job& job) {
  auto task = std::make_unique<SequenceTask>();
  std::byte* result = job.call.out;
  if (job.state.rank != job.call.root) {
    const auto unused = std::make_shared<Bytes>(job.call.block_bytes());
    task->keep(unused);
    result = unused->data();
  }
  add_all_reduce(*task, job, job.call.in, result, job.call.count);
  return task;
}

// Nodes of one size: rank i of each node can do what concerns the ranks i of all nodes.
bool has_equal_nodes(const State& state) {
  return std::all_of(state.nodes.begin(), state.nodes.end(), [&](const Node& node) {
    return node.members.size() == state.nodes[0].members.size();
  });
}

// A node stage in which the rank gives one block to each (to_each) or one to all.
StagedPlan empty_plan(const Job& job, std::size_t longest) {
  const auto ranks = static_cast<std::size_t>(job.local_size());
  StagedPlan plan;
  plan.give.resize(ranks);
  plan.take.resize(ranks);
  plan.take_all.resize(ranks);
  plan.reads.assign(ranks, true);
  plan.read_by.assign(ranks, true);
  plan.reads[static_cast<std::size_t>(job.state.local_rank)] = false;
  plan.read_by[static_cast<std::size_t>(job.state.local_rank)] = false;
  plan.longest = longest;
  return plan;
}

// This node's partial sums of the blocks of node `of`: rank i here gets those of the block of rank i there.
std::unique_ptr<Task> reduce_blocks_of(const Job& job, int of, std::byte* wide,
                                       std::size_t stride) {
  const State& state = job.state;
  const std::size_t block = job.call.block_bytes();
  const auto block_of = [&](int local) {
    const int owner = job.members(of)[static_cast<std::size_t>(local)];
    return std::span(job.call.in + static_cast<std::size_t>(owner) * block, block);
  };
  NodeReduction reduction;
  reduction.how = {job.call.type, job.call.op, 1, /*wide_result=*/true};
  reduction.programs = state.node_programs;
  reduction.stride = stride;
  if (job.local_size() == 1) {
    const std::byte* const inputs[] = {block_of(0).data()};
    reduce(*state.kernels, reduction.how, state.node_programs[0], inputs, std::span(&wide, 1),
           job.call.count);
    return nullptr;
  }
  StagedPlan plan = empty_plan(job, block);
  plan.to_each = plan.reduces = true;
  plan.result = wide;
  for (int local = 0; local < job.local_size(); ++local) {
    if (local == state.local_rank) {
      plan.own_share = block_of(local);
    } else {
      plan.give[static_cast<std::size_t>(local)] = block_of(local);
    }
  }
  const Call call{
      Operation::kReduceScatter, job.call.type, job.call.op, 0, job.call.count, nullptr, nullptr};
  return std::make_unique<LargeTask>(job.context(), call, std::move(plan), reduction);
}

// Node by node the ranks here add up what they have for the ranks there; rank i sends it to rank i, which adds up what the
// nodes have for it. (Nodes of different sizes: as a whole all_reduce.)
std::unique_ptr<Task> reduce_scatter(const Job& job) {
  const State& state = job.state;
  auto task = std::make_unique<SequenceTask>();
  if (!has_equal_nodes(state)) {
    const std::size_t block = job.call.block_bytes();
    const auto whole = std::make_shared<Bytes>(block * static_cast<std::size_t>(state.size));
    task->keep(whole);
    add_all_reduce(*task, job, job.call.in, whole->data(),
                   job.call.count * static_cast<std::size_t>(state.size));
    task->then([=] {
      if (block == 0) return;
      std::memcpy(job.call.out, whole->data() + static_cast<std::size_t>(job.state.rank) * block,
                  block);
    });
    return task;
  }
  const std::size_t stride = job.call.count * size_of(accumulator_of(job.call.type));
  const std::size_t own_bytes = stride * state.node_programs.size();
  const auto sums =
      std::make_shared<Bytes>(own_bytes * state.nodes.size());  // by node they are for
  const auto received = std::make_shared<Bytes>(stride * state.partials.size());  // in tree order
  task->keep(sums);
  task->keep(received);
  for (int node = 0; node < job.num_nodes(); ++node) {
    task->add([=] {
      return reduce_blocks_of(job, node, sums->data() + static_cast<std::size_t>(node) * own_bytes,
                              stride);
    });
  }
  task->add([=] {
    const State& s = job.state;
    const std::vector<int> lane = job.lane_members(s.local_rank);
    Round round;
    std::vector<std::size_t> taken(s.nodes.size());  // partials of each node so far
    for (int node = 0; node < job.num_nodes(); ++node) {
      if (node == job.own_node()) continue;
      const std::byte* from = sums->data() + static_cast<std::size_t>(node) * own_bytes;
      for (std::size_t p = 0; p < s.node_programs.size(); ++p)
        round.send(lane[static_cast<std::size_t>(node)], {from + p * stride, stride});
    }
    std::vector<const std::byte*> operands;
    for (std::size_t p = 0; p < s.partials.size(); ++p) {
      const int owner = s.partials[p].owner;
      if (owner == job.own_node()) {
        const std::size_t number = taken[static_cast<std::size_t>(owner)]++;
        operands.push_back(sums->data() + static_cast<std::size_t>(owner) * own_bytes +
                           number * stride);
      } else {
        const std::span to = std::span(*received).subspan(p * stride, stride);
        round.receive(lane[static_cast<std::size_t>(owner)], to);
        operands.push_back(to.data());
      }
    }
    round.then = [=] {
      const DataType wide_type = accumulator_of(job.call.type);
      const auto total = std::make_unique<Bytes>(stride);
      std::byte* const output = total->data();
      reduce(*job.state.kernels, {wide_type, job.call.op}, job.state.partial_tree, operands,
             std::span(&output, 1), job.call.count);
      const int divisor = job.call.op == ReduceOp::kAverage ? job.state.size : 1;
      finish_reduction(*job.state.kernels, job.call.type, divisor, output, job.call.out,
                       job.call.count);
    };
    std::vector<Round> rounds;
    rounds.push_back(std::move(round));
    return job.messages(std::move(rounds));
  });
  return task;
}

// Rank i gets the blocks of the ranks i of all nodes; then, node by node, its neighbours get them from it.
std::unique_ptr<Task> all_gather(const Job& job) {
  const State& state = job.state;
  const std::size_t block = job.call.block_bytes();
  const auto out_block = [job, block](int r) {
    return std::span(job.call.out + static_cast<std::size_t>(r) * block, block);
  };
  Round round;
  for (int node = 0; node < job.num_nodes(); ++node) {
    const int peer = job.members(node)[static_cast<std::size_t>(state.local_rank)];
    if (peer == state.rank) continue;
    round.send(state.world(peer), {job.call.in, block});
    round.receive(state.world(peer), out_block(peer));
  }
  std::vector<Round> rounds;
  rounds.push_back(std::move(round));
  auto task = std::make_unique<SequenceTask>();
  const std::span<std::byte> own = out_block(state.rank);
  if (block != 0 && own.data() != job.call.in) std::memcpy(own.data(), job.call.in, block);
  task->add([job, rounds]() mutable { return job.messages(std::move(rounds)); });
  for (int node = 0; node < job.num_nodes(); ++node) {
    task->add([=]() -> std::unique_ptr<Task> {
      if (job.local_size() == 1) return nullptr;
      StagedPlan plan = empty_plan(job, block);
      for (int local = 0; local < job.local_size(); ++local) {
        const auto theirs = out_block(job.members(node)[static_cast<std::size_t>(local)]);
        if (local == job.state.local_rank) {
          plan.give_all = theirs;
        } else {
          plan.take_all[static_cast<std::size_t>(local)] = theirs;
        }
      }
      const Call call =
          job.stage(Operation::kAllGather, nullptr, nullptr, job.call.count, job.call.type, 0);
      return std::make_unique<LargeTask>(job.context(), call, std::move(plan), NodeReduction{});
    });
  }
  return task;
}

// The root's node shares the buffer; its lanes send their slices down a binomial tree of nodes; the other nodes gather.
std::unique_ptr<Task> broadcast(const Job& job) {
  const State& state = job.state;
  const std::size_t element = size_of(job.call.type);
  const int root_node = job.node_of(job.call.root);
  const bool at_root_node = job.own_node() == root_node;
  const auto lanes = std::make_shared<Lanes>(job, job.call.count, element);
  std::byte* const data = job.call.out;
  auto task = std::make_unique<SequenceTask>();
  if (job.state.rank == job.call.root && job.call.in != data) {
    task->then([job, data] { std::memcpy(data, job.call.in, job.call.block_bytes()); });
  }
  task->add([=]() -> std::unique_ptr<Task> {
    if (!at_root_node || job.local_size() == 1) return nullptr;
    const auto& members = job.members(root_node);
    const auto local_root =
        std::find(members.begin(), members.end(), job.call.root) - members.begin();
    const Call call = job.stage(Operation::kBroadcast, data, data, job.call.count, job.call.type,
                                static_cast<int>(local_root));
    if (select_node_way(call.operation, call.block_bytes(), job.local_size()) != NodeWay::kStaged)
      return std::make_unique<SlotTask>(job.context(), call, NodeReduction{});
    return std::make_unique<LargeTask>(job.context(), call, NodeReduction{});
  });
  if (state.local_rank < lanes->count) {
    task->add([=] {
      const Slice own = lanes->of(job.state.local_rank);
      const std::array arrays{data + own.begin * element};
      return job.messages(rounds_of(
          schedule_broadcast(job.num_nodes(), job.own_node(), root_node, own.size()), arrays,
          job.lane_members(job.state.local_rank), *job.state.kernels, {job.call.type}));
    });
  }
  if (!at_root_node) {
    task->add([=] { return gather_lanes(job, *lanes, data, job.call.count); });
  }
  return task;
}

// Blocks between every two ranks, or between the root and all: as messages. (all_gather: on nodes of different sizes.)
std::unique_ptr<Task> move_blocks(const Job& job) {
  const State& state = job.state;
  const std::size_t block = job.call.block_bytes();
  const bool at_root = state.rank == job.call.root;
  const auto in_block = [&](int r) {
    return std::span(job.call.in + static_cast<std::size_t>(r) * block, block);
  };
  const auto out_block = [&](int r) {
    return std::span(job.call.out + static_cast<std::size_t>(r) * block, block);
  };
  const auto copy_own = [](std::span<std::byte> to, std::span<const std::byte> from) {
    if (!from.empty() && to.data() != from.data()) std::memcpy(to.data(), from.data(), from.size());
  };
  Round round;
  for (int step = 0; step < state.size; ++step) {
    const int to = (state.rank + step) % state.size;
    const int from = (state.rank - step + state.size) % state.size;
    switch (job.call.operation) {
      case Operation::kAllGather:
        if (step == 0) {
          copy_own(out_block(to), in_block(0));
        } else {
          round.send(state.world(to), in_block(0));
          round.receive(state.world(from), out_block(from));
        }
        break;
      case Operation::kAllToAll:
        if (step == 0) {
          copy_own(out_block(to), in_block(to));
        } else {
          round.send(state.world(to), in_block(to));
          round.receive(state.world(from), out_block(from));
        }
        break;
      case Operation::kGather:
        if (at_root && step == 0) copy_own(out_block(from), in_block(0));
        if (at_root && step != 0) round.receive(state.world(from), out_block(from));
        if (!at_root && to == job.call.root) round.send(state.world(to), in_block(0));
        break;
      case Operation::kScatter:
        if (at_root && step == 0) copy_own(out_block(0), in_block(to));
        if (at_root && step != 0) round.send(state.world(to), in_block(to));
        if (!at_root && from == job.call.root) round.receive(state.world(from), out_block(0));
        break;
      default:
        break;
    }
  }
  std::vector<Round> rounds;
  rounds.push_back(std::move(round));
  return job.messages(std::move(rounds));
}

}  // namespace

std::unique_ptr<Task> make_task_across_nodes(State& state, const Call& call,
                                             std::uint64_t sequence) {
  const Job job{state, call, sequence};
  switch (call.operation) {
    case Operation::kBarrier:
      return barrier(job);
    case Operation::kAllReduce:
      return all_reduce(job);
    case Operation::kReduce:
      return reduce_to_root(job);
    case Operation::kReduceScatter:
      return reduce_scatter(job);
    case Operation::kBroadcast:
      return broadcast(job);
    case Operation::kAllGather:
      return has_equal_nodes(state) ? all_gather(job) : move_blocks(job);
    case Operation::kGather:
    case Operation::kAllToAll:
    case Operation::kScatter:
    case Operation::kSend:
      return move_blocks(job);
  }
  return nullptr;
}

}  // namespace tandem::comm
