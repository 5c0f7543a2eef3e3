// Every collective across nodes in up to three stages: the ranks of a node together (shared
// memory), then rank i of each node with rank i of the others (messages; all rails at once), then
// the ranks of a node again. Operations whose blocks go from one rank to one other need no stages
// and are sent directly.
//
// Sums keep the canonical tree. A node adds up the subtrees that consist of its ranks (one, if the
// ranks are placed in blocks of 2^k; else a few), in the accumulator type. The rails add these
// along the rest of the tree. 16-bit floats are sent in 16 bits if that changes nothing
// (schedule.h).
#include "tandem/comm/api/across_nodes.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tandem/comm/network/schedule_task.h"

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
    return std::make_unique<ScheduleTask>(job.messages(),
                                          schedule_barrier(job.num_nodes(), job.own_node()),
                                          std::array{static_cast<std::byte*>(nullptr)},
                                          job.lane_members(0), *job.state.kernels, DataType::kByte);
  });
  task->add([job] { return node_barrier(job); });
  return task;
}

// Slices of a vector, one per rail; ranks beyond the rails have empty ones.
class Lanes {
 public:
  Lanes(const Job& job, std::size_t elements, std::size_t element_bytes)
      : elements_(elements),
        element_bytes_(element_bytes),
        count_(select_lanes(elements * element_bytes, job.state.lanes)) {}
  int count() const { return count_; }
  Slice of(int local) const {
    return local < count_ ? slice_of(elements_, element_bytes_, local, count_)
                          : Slice{elements_, elements_};
  }
  std::size_t longest() const {
    std::size_t most = 0;
    for (int lane = 0; lane < count_; ++lane) most = std::max(most, of(lane).size());
    return most;
  }

 private:
  std::size_t elements_, element_bytes_;
  int count_;
};

// Before: each rail has its slice of `data`. After: all ranks of the node have all of it.
std::unique_ptr<Task> gather_lanes(const Job& job, const Lanes& lanes, std::byte* data,
                                   std::size_t elements) {
  const int size = job.local_size();
  if (size == 1) return nullptr;
  const std::size_t element = size_of(job.call.type);
  if (lanes.count() == 1) {
    const Call call =
        job.stage(Operation::kBroadcast, data, data, elements, job.call.type, /*root=*/0);
    if (select_node_way(call.operation, call.block_bytes(), job.state.limits) != NodeWay::kStaged)
      return std::make_unique<SlotTask>(job.context(), call, NodeReduction{});
    return std::make_unique<LargeTask>(job.context(), call, NodeReduction{});
  }
  StagedPlan plan(job.state.local_rank, size, lanes.longest() * element);
  plan.show_parts([&](std::size_t i) {
    const Slice slice = lanes.of(static_cast<int>(i));
    return std::span(data + slice.begin * element, slice.size() * element);
  });
  plan.be_read_by_all();
  for (std::size_t i = 0; i < plan.reads.size(); ++i) plan.reads[i] = !plan.take_all[i].empty();
  const Call call = job.stage(Operation::kAllGather, nullptr, nullptr, elements, job.call.type, 0);
  return std::make_unique<LargeTask>(job.context(), call, std::move(plan), NodeReduction{});
}

// The node's partial sums of all elements of its ranks' `in`: for each rail those of its slice, in
// the accumulator type, partial p at wide + p · stride.
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
  if (lanes.count() == 1 &&
      select_node_way(call.operation, call.block_bytes(), job.state.limits) != NodeWay::kStaged)
    return std::make_unique<SlotTask>(job.context(), call, reduction);
  StagedPlan plan(state.local_rank, size, lanes.longest() * element);
  const auto share_of = [&](std::size_t i) {
    const Slice slice = lanes.of(static_cast<int>(i));
    return std::span(in + slice.begin * element, slice.size() * element);
  };
  plan.combine_shares(share_of, wide);
  if (state.local_rank < lanes.count()) plan.read_all();
  for (int i = 0; i < lanes.count(); ++i)
    plan.read_by[static_cast<std::size_t>(i)] = i != state.local_rank;
  return std::make_unique<LargeTask>(job.context(), call, std::move(plan), reduction);
}

// The ranks of a node reduce to the rails, the rails of all nodes to each other, and the node
// gathers.
class AllReduceTask final : public ChainTask {
 public:
  AllReduceTask(const Job& job, const std::byte* in, std::byte* result, std::size_t elements)
      : job_(job),
        in_(in),
        result_(result),
        elements_(elements),
        wide_type_(accumulator_of(job.call.type)),
        lanes_(job, elements, size_of(job.call.type)),
        // With one rail and slots every rank adds up everything; otherwise each rail only its
        // slice.
        own_(lanes_.count() == 1 ? Slice{0, elements} : lanes_.of(job.state.local_rank)),
        stride_(own_.size() * size_of(wide_type_)),
        direct_(job.local_size() == 1 && wide_type_ == job.call.type),
        wide_(direct_ ? 0 : stride_ * job.state.node_programs.size()) {}

 protected:
  std::size_t parts() const override { return 3; }
  std::unique_ptr<Task> make(std::size_t part) override {
    if (part == 0) return reduce_in_node();
    if (part == 1) return reduce_between_nodes();
    return gather_lanes(job_, lanes_, result_, elements_);
  }

 private:
  std::unique_ptr<Task> reduce_in_node() {
    if (!direct_) return reduce_to_lanes(job_, lanes_, in_, elements_, wide_.data(), stride_);
    copy_bytes(result_, in_, elements_ * size_of(job_.call.type));
    return nullptr;
  }

  std::unique_ptr<Task> reduce_between_nodes() {
    const State& s = job_.state;
    if (s.local_rank >= lanes_.count()) return nullptr;
    std::vector<std::byte*> arrays;
    for (std::size_t p = 0; p < s.node_programs.size(); ++p)
      arrays.push_back(direct_ ? result_ : wide_.data() + p * stride_);
    const std::size_t element = size_of(job_.call.type);
    const ScheduleTask::Finish finish{job_.call.type,
                                      job_.call.op == ReduceOp::kAverage ? s.size : 1,
                                      result_ + own_.begin * element};
    return std::make_unique<ScheduleTask>(job_.messages(), schedule(elements_ * element), arrays,
                                          job_.lane_members(s.local_rank), *s.kernels,
                                          Reduction{wide_type_, job_.call.op}, finish);
  }

  Schedule schedule(std::size_t bytes) const {
    const State& s = job_.state;
    const int nodes = job_.num_nodes();
    const Algorithm algorithm = select_between_nodes(s.options.selection, s.limits,
                                                     job_.call.operation, bytes, nodes, s.aligned);
    if (algorithm != Algorithm::kExchange)
      return schedule_all_reduce(algorithm, nodes, job_.own_node(), own_.size());
    return schedule_exchange(nodes, job_.own_node(), own_.size(), s.partials, s.partial_tree);
  }

  Job job_;
  const std::byte* in_;
  std::byte* result_;
  std::size_t elements_;
  DataType wide_type_;
  Lanes lanes_;
  Slice own_;
  std::size_t stride_;
  bool direct_;  // a rank alone on its node whose type is its own accumulator works in the result
  Bytes wide_;   // the node's partial sums of the own slice
};

}  // namespace

std::unique_ptr<Task> all_reduce_across_nodes(const Job& job, const std::byte* in,
                                              std::byte* result, std::size_t elements) {
  return std::make_unique<AllReduceTask>(job, in, result, elements);
}

namespace {

std::unique_ptr<Task> reduce_to_root(const Job& job) {
  if (job.state.rank == job.call.root)
    return all_reduce_across_nodes(job, job.call.in, job.call.out, job.call.count);
  auto task = std::make_unique<SequenceTask>();
  const auto unused = std::make_shared<Bytes>(job.call.block_bytes());
  task->keep(unused);
  task->add([job, result = unused->data()] {
    return all_reduce_across_nodes(job, job.call.in, result, job.call.count);
  });
  return task;
}

// The root's node shares the buffer; its rails send their slices down a binomial tree of nodes; the
// other nodes gather.
std::unique_ptr<Task> broadcast(const Job& job) {
  const State& state = job.state;
  const std::size_t element = size_of(job.call.type);
  const int root_node = job.node_of(job.call.root);
  const bool at_root_node = job.own_node() == root_node;
  const Lanes lanes(job, job.call.count, element);
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
  if (state.local_rank < lanes.count()) {
    task->add([=] {
      const Slice own = lanes.of(job.state.local_rank);
      return std::make_unique<ScheduleTask>(
          job.messages(),
          schedule_broadcast(job.num_nodes(), job.own_node(), root_node, own.size()),
          std::array{data + own.begin * element}, job.lane_members(job.state.local_rank),
          *job.state.kernels, job.call.type);
    });
  }
  if (!at_root_node) {
    task->add([=] { return gather_lanes(job, lanes, data, job.call.count); });
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
      return all_reduce_across_nodes(job, job.call.in, job.call.out, job.call.count);
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
