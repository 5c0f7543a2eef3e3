// Every collective across nodes in up to three stages: the ranks of a node together (shared
// memory), then rank i of each node with rank i of the others (messages; all rails at once), then
// the ranks of a node again. Operations whose blocks go from one rank to one other need no stages
// and are sent directly.
//
// Sums keep the canonical tree. A node adds up the subtrees that consist of its ranks (one, if the
// ranks are placed in blocks of 2^k; else a few), in the accumulator type. The rails add these
// along the rest of the tree. 16-bit floats are sent in 16 bits if that changes nothing
// (schedule.h).
#include "tandem/comm/collectives/across_nodes.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tandem/comm/network/schedule_task.h"

namespace tandem::comm {
namespace {

using State = Communicator::State;
using Bytes = std::vector<std::byte>;

std::unique_ptr<CommTask> node_barrier(const Collective& collective) {
  if (collective.local_size() == 1) return nullptr;
  return std::make_unique<SlotTask>(collective.context(), Call{}, NodeReduction{});
}

std::unique_ptr<CommTask> barrier(const Collective& collective) {
  auto task = std::make_unique<SequenceTask>();
  task->add([collective] { return node_barrier(collective); });
  task->add([collective]() -> std::unique_ptr<CommTask> {
    if (collective.state.local_rank != 0) return nullptr;
    return std::make_unique<ScheduleTask>(
        collective.messages(), schedule_barrier(collective.num_nodes(), collective.own_node()),
        std::array{static_cast<std::byte*>(nullptr)}, collective.rail_members(0),
        *collective.state.kernels, DataType::kByte);
  });
  task->add([collective] { return node_barrier(collective); });
  return task;
}

// Slices of a vector, one per rail; ranks beyond the rails have empty ones.
class Rails {
 public:
  Rails(const Collective& collective, std::size_t elements, std::size_t element_bytes)
      : elements_(elements),
        element_bytes_(element_bytes),
        count_(select_rails(elements * element_bytes, collective.state.rails)) {}
  int count() const { return count_; }
  Slice of(int local) const {
    return local < count_ ? slice_of(elements_, element_bytes_, local, count_)
                          : Slice{elements_, elements_};
  }
  std::size_t longest() const {
    std::size_t most = 0;
    for (int rail = 0; rail < count_; ++rail) most = std::max(most, of(rail).size());
    return most;
  }

 private:
  std::size_t elements_, element_bytes_;
  int count_;
};

// Before: each rail has its slice of `data`. After: all ranks of the node have all of it.
std::unique_ptr<CommTask> gather_rails(const Collective& collective, const Rails& rails,
                                       std::byte* data, std::size_t elements) {
  const int size = collective.local_size();
  if (size == 1) return nullptr;
  const std::size_t element = size_of(collective.call.type);
  if (rails.count() == 1) {
    const Call call = collective.stage(Operation::kBroadcast, data, data, elements,
                                       collective.call.type, /*root=*/0);
    if (select_node_algorithm(call.operation, call.block_bytes(), collective.state.limits) !=
        NodeAlgorithm::kStaged)
      return std::make_unique<SlotTask>(collective.context(), call, NodeReduction{});
    return std::make_unique<LargeTask>(collective.context(), call, NodeReduction{});
  }
  StagedPlan plan(collective.state.local_rank, size, rails.longest() * element);
  plan.show_parts([&](std::size_t i) {
    const Slice slice = rails.of(static_cast<int>(i));
    return std::span(data + slice.begin * element, slice.size() * element);
  });
  plan.be_read_by_all();
  for (std::size_t i = 0; i < plan.reads.size(); ++i) plan.reads[i] = !plan.take_all[i].empty();
  const Call call =
      collective.stage(Operation::kAllGather, nullptr, nullptr, elements, collective.call.type, 0);
  return std::make_unique<LargeTask>(collective.context(), call, std::move(plan), NodeReduction{});
}

// The node's partial sums of all elements of its ranks' `in`: for each rail those of its slice, in
// the accumulator type, partial p at wide + p · stride.
std::unique_ptr<CommTask> reduce_to_rails(const Collective& collective, const Rails& rails,
                                          const std::byte* in, std::size_t elements,
                                          std::byte* wide, std::size_t stride) {
  const State& state = collective.state;
  const int size = collective.local_size();
  const std::size_t element = size_of(collective.call.type);
  NodeReduction reduction;
  reduction.how = {collective.call.type, collective.call.op, 1, /*wide_result=*/true};
  reduction.programs = state.node_programs;
  reduction.stride = stride;
  if (size == 1) {
    const std::byte* const inputs[] = {in};
    std::byte* const output = wide;
    reduce(*state.kernels, reduction.how, state.node_programs[0], inputs, std::span(&output, 1),
           elements);
    return nullptr;
  }
  const Call call{
      Operation::kAllReduce, collective.call.type, collective.call.op, 0, elements, in, wide};
  if (rails.count() == 1 &&
      select_node_algorithm(call.operation, call.block_bytes(), collective.state.limits) !=
          NodeAlgorithm::kStaged)
    return std::make_unique<SlotTask>(collective.context(), call, reduction);
  StagedPlan plan(state.local_rank, size, rails.longest() * element);
  const auto share_of = [&](std::size_t i) {
    const Slice slice = rails.of(static_cast<int>(i));
    return std::span(in + slice.begin * element, slice.size() * element);
  };
  plan.combine_shares(share_of, wide);
  if (state.local_rank < rails.count()) plan.read_all();
  for (int i = 0; i < rails.count(); ++i)
    plan.read_by[static_cast<std::size_t>(i)] = i != state.local_rank;
  return std::make_unique<LargeTask>(collective.context(), call, std::move(plan), reduction);
}

// The ranks of a node reduce to the rails, the rails of all nodes to each other, and the node
// gathers.
class AllReduceTask final : public ChainTask {
 public:
  AllReduceTask(const Collective& collective, const std::byte* in, std::byte* result,
                std::size_t elements)
      : collective_(collective),
        in_(in),
        result_(result),
        elements_(elements),
        wide_type_(accumulator_of(collective.call.type)),
        rails_(collective, elements, size_of(collective.call.type)),
        // With one rail and slots every rank adds up everything; otherwise each rail only its
        // slice.
        own_(rails_.count() == 1 ? Slice{0, elements} : rails_.of(collective.state.local_rank)),
        stride_(own_.size() * size_of(wide_type_)),
        direct_(collective.local_size() == 1 && wide_type_ == collective.call.type),
        wide_(direct_ ? 0 : stride_ * collective.state.node_programs.size()) {}

 protected:
  std::size_t parts() const override { return 3; }
  std::unique_ptr<CommTask> make(std::size_t part) override {
    if (part == 0) return reduce_in_node();
    if (part == 1) return reduce_between_nodes();
    return gather_rails(collective_, rails_, result_, elements_);
  }

 private:
  std::unique_ptr<CommTask> reduce_in_node() {
    if (!direct_)
      return reduce_to_rails(collective_, rails_, in_, elements_, wide_.data(), stride_);
    copy_bytes(result_, in_, elements_ * size_of(collective_.call.type));
    return nullptr;
  }

  std::unique_ptr<CommTask> reduce_between_nodes() {
    const State& s = collective_.state;
    if (s.local_rank >= rails_.count()) return nullptr;
    std::vector<std::byte*> arrays;
    for (std::size_t p = 0; p < s.node_programs.size(); ++p)
      arrays.push_back(direct_ ? result_ : wide_.data() + p * stride_);
    const std::size_t element = size_of(collective_.call.type);
    const ScheduleTask::Finish finish{collective_.call.type,
                                      collective_.call.op == ReduceOp::kAverage ? s.size : 1,
                                      result_ + own_.begin * element};
    return std::make_unique<ScheduleTask>(collective_.messages(), schedule(elements_ * element),
                                          arrays, collective_.rail_members(s.local_rank),
                                          *s.kernels, Reduction{wide_type_, collective_.call.op},
                                          finish);
  }

  Schedule schedule(std::size_t bytes) const {
    const State& s = collective_.state;
    const int nodes = collective_.num_nodes();
    const Algorithm algorithm = select_between_nodes(
        s.options.selection, s.limits, collective_.call.operation, bytes, nodes, s.aligned);
    if (algorithm != Algorithm::kExchange)
      return schedule_all_reduce(algorithm, nodes, collective_.own_node(), own_.size());
    return schedule_exchange(nodes, collective_.own_node(), own_.size(), s.partials,
                             s.partial_tree);
  }

  Collective collective_;
  const std::byte* in_;
  std::byte* result_;
  std::size_t elements_;
  DataType wide_type_;
  Rails rails_;
  Slice own_;
  std::size_t stride_;
  bool direct_;  // a rank alone on its node whose type is its own accumulator works in the result
  Bytes wide_;   // the node's partial sums of the own slice
};

}  // namespace

std::unique_ptr<CommTask> all_reduce_across_nodes(const Collective& collective, const std::byte* in,
                                                  std::byte* result, std::size_t elements) {
  return std::make_unique<AllReduceTask>(collective, in, result, elements);
}

namespace {

std::unique_ptr<CommTask> reduce_to_root(const Collective& collective) {
  if (collective.state.rank == collective.call.root)
    return all_reduce_across_nodes(collective, collective.call.in, collective.call.out,
                                   collective.call.count);
  auto task = std::make_unique<SequenceTask>();
  const auto unused = std::make_shared<Bytes>(collective.call.block_bytes());
  task->keep(unused);
  task->add([collective, result = unused->data()] {
    return all_reduce_across_nodes(collective, collective.call.in, result, collective.call.count);
  });
  return task;
}

// The root's node shares the buffer; its rails send their slices down a binomial tree of nodes; the
// other nodes gather.
std::unique_ptr<CommTask> broadcast(const Collective& collective) {
  const State& state = collective.state;
  const std::size_t element = size_of(collective.call.type);
  const int root_node = collective.node_of(collective.call.root);
  const bool at_root_node = collective.own_node() == root_node;
  const Rails rails(collective, collective.call.count, element);
  std::byte* const data = collective.call.out;
  auto task = std::make_unique<SequenceTask>();
  if (collective.state.rank == collective.call.root && collective.call.in != data) {
    task->then([collective, data] {
      std::memcpy(data, collective.call.in, collective.call.block_bytes());
    });
  }
  task->add([=]() -> std::unique_ptr<CommTask> {
    if (!at_root_node || collective.local_size() == 1) return nullptr;
    const auto& members = collective.members(root_node);
    const auto local_root =
        std::find(members.begin(), members.end(), collective.call.root) - members.begin();
    const Call call = collective.stage(Operation::kBroadcast, data, data, collective.call.count,
                                       collective.call.type, static_cast<int>(local_root));
    if (select_node_algorithm(call.operation, call.block_bytes(), collective.state.limits) !=
        NodeAlgorithm::kStaged)
      return std::make_unique<SlotTask>(collective.context(), call, NodeReduction{});
    return std::make_unique<LargeTask>(collective.context(), call, NodeReduction{});
  });
  if (state.local_rank < rails.count()) {
    task->add([=] {
      const Slice own = rails.of(collective.state.local_rank);
      return std::make_unique<ScheduleTask>(
          collective.messages(),
          schedule_broadcast(collective.num_nodes(), collective.own_node(), root_node, own.size()),
          std::array{data + own.begin * element},
          collective.rail_members(collective.state.local_rank), *collective.state.kernels,
          collective.call.type);
    });
  }
  if (!at_root_node) {
    task->add([=] { return gather_rails(collective, rails, data, collective.call.count); });
  }
  return task;
}

}  // namespace

std::unique_ptr<CommTask> make_task_across_nodes(State& state, const Call& call,
                                                 const Begun& begun) {
  const Collective collective{state, call, begun};
  switch (call.operation) {
    case Operation::kBarrier:
      return barrier(collective);
    case Operation::kAllReduce:
      return all_reduce_across_nodes(collective, collective.call.in, collective.call.out,
                                     collective.call.count);
    case Operation::kReduce:
      return reduce_to_root(collective);
    case Operation::kReduceScatter:
      return reduce_scatter_across_nodes(collective);
    case Operation::kBroadcast:
      return broadcast(collective);
    case Operation::kAllGather:
      return all_gather_across_nodes(collective);
    case Operation::kGather:
    case Operation::kAllToAll:
    case Operation::kScatter:
    case Operation::kSend:
      return move_blocks(collective);
  }
  return nullptr;
}

}  // namespace tandem::comm
