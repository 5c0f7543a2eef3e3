// The collectives: argument checks and the choice of the task. Inside a node the tasks of
// node_tasks.h do all work; across nodes across_nodes.cc combines them with messages.
#include <algorithm>
#include <cstring>

#include "tandem/comm/collectives/across_nodes.h"
#include "tandem/comm/collectives/communicator_state.h"
#include "tandem/core/error.h"

namespace tandem::comm {
namespace {

// The collectives of a single rank.
void copy_to_itself(const Call& call) {
  const std::size_t bytes = call.block_bytes();
  if (call.operation != Operation::kBarrier && call.out != nullptr && call.in != nullptr &&
      call.in != call.out && bytes != 0)
    std::memcpy(call.out, call.in, bytes);
}

NodeReduction whole_reduction(const Call& call, int size, std::span<const SumProgram> programs) {
  NodeReduction reduction;
  reduction.how.type = call.type;
  reduction.how.op = call.op;
  reduction.how.divisor = call.op == ReduceOp::kAverage ? size : 1;
  reduction.programs = programs;
  return reduction;
}

}  // namespace

void Communicator::check_sizes(const char* operation, std::size_t expected, std::size_t found) {
  if (expected == found) return;
  raise<InvalidArgument>("{}: expected a buffer of {} elements, found one of {}", operation,
                         expected, found);
}

void Communicator::call(const Call& call) {
  State& s = *state_;
  const auto inside = s.comm_context->progress_thread.enter();
  s.check_open();
  s.check_peer(call.root, name_of(call.operation));
  if (call.reduces()) check_reducible(call.type, call.op);
  if (s.size == 1) return copy_to_itself(call);
  if (s.group_depth > 0 || !s.pending.empty()) {
    const Request request = start(call);
    if (s.group_depth == 0) wait(request);
    return;
  }
  const Begun begun = s.begin(call);
  const auto describe = [&] { return comm::describe(call, begun.sequence); };
  if (s.nodes.size() == 1 && select_node_algorithm(call.operation, call.in_bytes(s.size),
                                                   s.limits) != NodeAlgorithm::kStaged) {
    SlotTask task({*s.channel, *s.kernels, begun.sequence}, call,
                  whole_reduction(call, s.size, s.node_programs));
    s.drive(task, describe, s.options.timeout);
  } else {
    const std::unique_ptr<CommTask> task = s.make_task(call, begun);
    s.drive(*task, describe, s.options.timeout);
  }
  s.comm_context->recorder.end(begun.ticket);
}

Begun Communicator::State::begin(const Call& call) {
  comm_context->monitor->note_operations(++comm_context->operations);
  FlightRecorder::Entry entry{sequence++, call.operation, call.type,
                              call.op,    call.root,      call.count};
  // Inside one node op headers carry the hash (node_channel.h).
  if (nodes.size() > 1) {
    entry.communicator = identity;
    entry.history = history = hash_of_calls(history, call, entry.sequence);
  }
  return {entry.sequence, entry.history, comm_context->recorder.begin(entry)};
}

Request Communicator::start(const Call& call) {
  State& s = *state_;
  const auto inside = s.comm_context->progress_thread.enter();
  s.check_open();
  s.check_peer(call.root, name_of(call.operation));
  if (call.reduces()) check_reducible(call.type, call.op);
  auto started = std::make_shared<PendingCall>();
  started->call = call;
  if (s.group_depth > 0) {
    s.grouped.push_back(started);
    return Request(started);
  }
  if (s.size == 1) {
    copy_to_itself(call);
    return {};
  }
  started->begun = s.begin(call);
  started->task = s.make_task(call, started->begun);
  s.pending.push_back(started);
  s.advance_pending();
  return Request(started);
}

std::unique_ptr<CommTask> Communicator::State::make_task(const Call& call, const Begun& begun) {
  if (nodes.size() > 1) return make_task_across_nodes(*this, call, begun);
  const NodeContext context{*channel, *kernels, begun.sequence};
  const NodeReduction reduction = whole_reduction(call, size, node_programs);
  if (select_node_algorithm(call.operation, call.in_bytes(size), limits) != NodeAlgorithm::kStaged)
    return std::make_unique<SlotTask>(context, call, reduction);
  return std::make_unique<LargeTask>(context, call, reduction);
}

// ---- groups ----

void Communicator::group_begin() {
  state_->check_open();
  ++state_->group_depth;
}

namespace {

constexpr std::size_t kFuseBytes = 16384;
constexpr std::size_t kFusedBytes = std::size_t{1} << 20;

bool can_fuse(const Call& call) {
  return call.operation == Operation::kAllReduce && call.block_bytes() <= kFuseBytes;
}

// Number of calls from `first` that run as one: neighbours of one type and operation, each small
// and not too large together.
std::size_t fusable_from(std::span<const std::shared_ptr<PendingCall>> calls, std::size_t first) {
  const Call& head = calls[first]->call;
  if (!can_fuse(head)) return 1;
  std::size_t bytes = 0;
  std::size_t end = first;
  while (end < calls.size()) {
    const Call& next = calls[end]->call;
    bytes += next.block_bytes();
    if (!can_fuse(next) || next.type != head.type || next.op != head.op || bytes > kFusedBytes)
      break;
    ++end;
  }
  return end - first;
}

}  // namespace

void Communicator::group_end() {
  State& s = *state_;
  if (s.group_depth == 0) raise<InvalidArgument>("group_end without group_begin");
  if (--s.group_depth > 0) return;
  const std::vector<std::shared_ptr<PendingCall>> calls = std::move(s.grouped);
  s.grouped.clear();
  std::vector<std::byte> packed;
  for (std::size_t first = 0; first < calls.size();) {
    const std::size_t number = fusable_from(calls, first);
    const std::span<const std::shared_ptr<PendingCall>> together(&calls[first], number);
    Call whole = together[0]->call;
    if (number > 1) {
      packed.clear();
      whole.count = 0;
      for (const auto& one : together) {
        packed.insert(packed.end(), one->call.in, one->call.in + one->call.block_bytes());
        whole.count += one->call.count;
      }
      whole.in = whole.out = packed.data();
    }
    call(whole);
    std::size_t offset = 0;
    for (const auto& one : together) {
      if (number > 1 && one->call.count != 0) {
        std::memcpy(one->call.out, &packed[offset], one->call.block_bytes());
        offset += one->call.block_bytes();
      }
      one->done = true;
    }
    first += number;
  }
}

// ---- tables ----

std::string Communicator::describe_selection() const {
  const State& s = *state_;
  std::string text = comm::describe_selection(s.options.selection, s.limits, local_size(),
                                              static_cast<int>(s.nodes.size()), s.aligned);
  if (s.size > 1) text += "limits: " + s.tuning + "\n";
  return text;
}

}  // namespace tandem::comm
