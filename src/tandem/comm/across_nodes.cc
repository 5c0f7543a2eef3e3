// Every collective across nodes in up to three stages: the ranks of a node together (shared memory), then rank i of each
// node with rank i of the others (messages; all "lanes" at once), then the ranks of a node again. Operations whose blocks
// go from one rank to one other need no stages and are sent as they are.
//
// Sums keep the canonical tree: a node adds up the subtrees that consist of its ranks (one, if the ranks are placed in
// blocks of 2^k; else a few), in the accumulator type, and the lanes add these along the rest of the tree. 16-bit floats travel in
// 16 bits where that changes nothing (schedule.h).
#include "tandem/comm/across_nodes.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace tandem::comm {
namespace {

using State = Communicator::State;
using Bytes = std::vector<std::byte>;

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
    if (select_node_way(call.operation, call.block_bytes(), job.state.limits) != NodeWay::kStaged)
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
      select_node_way(call.operation, call.block_bytes(), job.state.limits) != NodeWay::kStaged)
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

}  // namespace

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
  // A rank alone on its node whose type is its own accumulator works in the result.
  const bool direct = job.local_size() == 1 && wide_type == job.call.type;
  const auto wide = std::make_shared<Bytes>(direct ? 0 : stride * state.node_programs.size());
  const bool uses_network = state.local_rank < lanes->count;
  task.keep(wide);
  task.add([=]() -> std::unique_ptr<Task> {
    if (!direct) return reduce_to_lanes(job, *lanes, in, elements, wide->data(), stride);
    copy_bytes(result, in, elements * element);
    return nullptr;
  });
  task.add([=]() -> std::unique_ptr<Task> {
    if (!uses_network) return nullptr;
    const State& s = job.state;
    const Algorithm algorithm =
        select_between_nodes(s.options.selection, s.limits, job.call.operation, elements * element,
                             job.num_nodes(), s.aligned);
    const Schedule schedule =
        algorithm == Algorithm::kExchange
            ? schedule_exchange(job.num_nodes(), job.own_node(), own.size(), s.partials,
                                s.partial_tree)
            : schedule_all_reduce(algorithm, job.num_nodes(), job.own_node(), own.size());
    std::vector<std::byte*> arrays;
    for (std::size_t p = 0; p < s.node_programs.size(); ++p)
      arrays.push_back(direct ? result : wide->data() + p * stride);
    const int divisor = job.call.op == ReduceOp::kAverage ? s.size : 1;
    return job.messages(rounds_of(schedule, arrays, job.lane_members(s.local_rank), *s.kernels,
                                  {wide_type, job.call.op},
                                  {job.call.type, divisor, result + own.begin * element}));
  });
  task.add([=] { return gather_lanes(job, *lanes, result, elements); });
}

namespace {

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
    if (select_node_way(call.operation, call.block_bytes(), job.state.limits) != NodeWay::kStaged)
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

}  // namespace

std::unique_ptr<Task> make_task_across_nodes(State& state, const Call& call, const Begun& begun) {
  const Job job{state, call, begun};
  switch (call.operation) {
    case Operation::kBarrier:
      return barrier(job);
    case Operation::kAllReduce:
      return all_reduce(job);
    case Operation::kReduce:
      return reduce_to_root(job);
    case Operation::kReduceScatter:
      return reduce_scatter_across_nodes(job);
    case Operation::kBroadcast:
      return broadcast(job);
    case Operation::kAllGather:
      return all_gather_across_nodes(job);
    case Operation::kGather:
    case Operation::kAllToAll:
    case Operation::kScatter:
    case Operation::kSend:
      return move_blocks(job);
  }
  return nullptr;
}

}  // namespace tandem::comm
