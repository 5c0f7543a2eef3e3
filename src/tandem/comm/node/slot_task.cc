// Small operations inside a node: one op header, then every rank reads the data that it needs.
#include <array>
#include <cstring>

#include "tandem/comm/node/node_tasks.h"

namespace tandem::comm {
namespace {

// A node has few ranks; their buffers are listed on the stack.
using Pointers = std::array<const std::byte*, NodeChannel::kMaxRanks>;

}  // namespace

Progress SlotTask::advance() {
  if (!announced_) {
    if (!context_.channel.may_post_header(missing_)) return Progress::kWaiting;
    post_header();
    announced_ = true;
  }
  if (needs_sources()) {
    if (!sources_announced()) return Progress::kWaiting;
    take();
  }
  return Progress::kDone;
}

void SlotTask::post_header() {
  NodeChannel& channel = context_.channel;
  std::span<const std::byte> data;
  if (is_source(channel.local_rank())) data = {call_.in, call_.in_bytes(channel.size())};
  if (call_.operation == Operation::kBarrier) data = {};
  if (data.size() > kTinyBytes) {
    std::memcpy(channel.next_slot(), data.data(), data.size());
    data = {};
  }
  channel.post_header(call_, context_.collective, context_.whole, data);
}

bool SlotTask::is_source(int local) const {
  const bool root_gives =
      call_.operation == Operation::kBroadcast || call_.operation == Operation::kScatter;
  return !root_gives || local == call_.root;
}

bool SlotTask::needs_sources() const {
  const bool root_takes =
      call_.operation == Operation::kReduce || call_.operation == Operation::kGather;
  return !root_takes || context_.channel.local_rank() == call_.root;
}

bool SlotTask::sources_announced() {
  NodeChannel& channel = context_.channel;
  const bool one =
      call_.operation == Operation::kBroadcast || call_.operation == Operation::kScatter;
  if (!one) return channel.all_announced(missing_);
  missing_ = call_.root;
  return call_.root == channel.local_rank() || channel.announced(call_.root);
}

const std::byte* SlotTask::given_by(int local, std::size_t offset) const {
  NodeChannel& channel = context_.channel;
  if (local == channel.local_rank()) return call_.in + offset;
  const bool tiny = call_.in_bytes(channel.size()) <= kTinyBytes;
  return (tiny ? channel.tiny(local) : channel.slot(local)) + offset;
}

void SlotTask::combine(std::size_t offset) {
  Pointers operands;
  const int size = context_.channel.size();
  for (int local = 0; local < size; ++local) {
    operands[static_cast<std::size_t>(local)] = given_by(local, offset);
  }
  for (std::size_t p = 0; p < reduction_.programs.size(); ++p) {
    std::byte* const out = call_.out + p * reduction_.stride;
    reduce(context_.kernels, reduction_.how, reduction_.programs[p],
           std::span(operands).first(static_cast<std::size_t>(size)), std::span(&out, 1),
           call_.count);
  }
}

void SlotTask::take() {
  const int size = context_.channel.size();
  const auto own = static_cast<std::size_t>(context_.channel.local_rank());
  const std::size_t block = call_.block_bytes();
  switch (call_.operation) {
    case Operation::kBarrier:
    case Operation::kSend:
      return;
    case Operation::kBroadcast:
      return copy_bytes(call_.out, given_by(call_.root, 0), block);
    case Operation::kScatter:
      return copy_bytes(call_.out, given_by(call_.root, own * block), block);
    case Operation::kAllReduce:
    case Operation::kReduce:
      return combine(0);
    case Operation::kReduceScatter:
      return combine(own * block);
    case Operation::kAllGather:
    case Operation::kGather:
    case Operation::kAllToAll:
      for (int local = 0; local < size; ++local) {
        const std::size_t offset = call_.operation == Operation::kAllToAll ? own * block : 0;
        copy_bytes(call_.out + static_cast<std::size_t>(local) * block, given_by(local, offset),
                   block);
      }
      return;
  }
}

}  // namespace tandem::comm
