// Large operations inside a node: in place if every rank reaches the buffers, otherwise staged.
#include <cstring>

#include "tandem/comm/node/node_tasks.h"
#include "tandem/core/error.h"

namespace tandem::comm {

LargeTask::LargeTask(const NodeContext& context, const Call& call, const NodeReduction& reduction)
    : context_(context), call_(call), reduction_(reduction) {}

LargeTask::LargeTask(const NodeContext& context, const Call& call, StagedPlan plan,
                     const NodeReduction& reduction)
    : context_(context), call_(call), reduction_(reduction), plan_(std::move(plan)) {}

int LargeTask::waiting_for() const {
  return state_ == State::kStaged ? staged_->waiting_for() : missing_;
}

Progress LargeTask::advance() {
  NodeChannel& channel = context_.channel;
  bool moved = false;
  if (state_ == State::kStart) {
    if (!channel.may_post_header(missing_)) return Progress::kWaiting;
    post_header();
    state_ = State::kAnnounced;
    moved = true;
  }
  if (state_ == State::kAnnounced) {
    if (!channel.all_announced(missing_)) return moved ? Progress::kMoved : Progress::kWaiting;
    if (all_reachable()) {
      work_directly();
      channel.skip_bands(1);
      channel.post(NodeChannel::kReduced, channel.bands());
      channel.post(NodeChannel::kConsumed, channel.bands());
      channel.post(NodeChannel::kStaged, channel.bands());
      state_ = State::kDirectDone;
    } else {
      StagedPlan plan =
          plan_ ? std::move(*plan_) : plan_staging(call_, channel.local_rank(), channel.size());
      staged_ = std::make_unique<StagedTask>(context_, std::move(plan), reduction_);
      state_ = State::kStaged;
    }
    moved = true;
  }
  if (state_ == State::kStaged) return staged_->advance();
  // No rank may change its buffers before all have finished their reads and writes.
  for (int local = 0; local < channel.size(); ++local) {
    if (local == channel.local_rank() ||
        channel.reached(local, NodeChannel::kStaged, channel.bands()))
      continue;
    missing_ = local;
    return moved ? Progress::kMoved : Progress::kWaiting;
  }
  return Progress::kDone;
}

void LargeTask::post_header() {
  NodeChannel& channel = context_.channel;
  Locations where;
  if (!plan_ && call_.in != nullptr)
    where.in = channel.locate(call_.in, call_.in_bytes(channel.size()));
  if (!plan_ && call_.out != nullptr)
    where.out = channel.locate(call_.out, call_.out_bytes(channel.size()));
  channel.post_header(call_, context_.collective, context_.whole,
                      std::as_bytes(std::span(&where, 1)));
}

namespace {

Locations locations_of(const NodeChannel& channel, int local) {
  Locations where;
  std::memcpy(&where, channel.tiny(local), sizeof where);
  return where;
}

}  // namespace

// Buffers that others read: those of all contributing ranks. Buffers that others must write: those
// of all ranks in all_reduce, the root's in reduce.
bool LargeTask::all_reachable() const {
  const NodeChannel& channel = context_.channel;
  const bool root_gives =
      call_.operation == Operation::kBroadcast || call_.operation == Operation::kScatter;
  for (int local = 0; local < channel.size(); ++local) {
    const Locations where = locations_of(channel, local);
    const bool gives = !root_gives || local == call_.root;
    const bool is_written = call_.operation == Operation::kAllReduce ||
                            (call_.operation == Operation::kReduce && local == call_.root);
    if (gives && where.in.allocation == 0) return false;
    if (is_written && where.out.allocation == 0) return false;
  }
  return true;
}

bool LargeTask::others_may_write(int local) const {
  return locations_of(context_.channel, local).out.allocation != 0;
}

std::byte* LargeTask::in_of(int local) const {
  const NodeChannel& channel = context_.channel;
  if (local == channel.local_rank()) return const_cast<std::byte*>(call_.in);
  std::byte* found =
      channel.resolve(local, locations_of(channel, local).in, call_.in_bytes(channel.size()));
  if (found == nullptr) {
    raise<InvalidArgument>(
        "{}: another rank's buffer lies in communicator memory that this rank has freed",
        describe(call_, context_.collective));
  }
  return found;
}

std::byte* LargeTask::out_of(int local) const {
  const NodeChannel& channel = context_.channel;
  if (local == channel.local_rank()) return call_.out;
  std::byte* found =
      channel.resolve(local, locations_of(channel, local).out, call_.out_bytes(channel.size()));
  if (found == nullptr) {
    raise<InvalidArgument>(
        "{}: another rank's result lies in communicator memory that this rank has freed",
        describe(call_, context_.collective));
  }
  return found;
}

void LargeTask::reduce_directly() {
  const NodeChannel& channel = context_.channel;
  const int size = channel.size();
  const std::size_t element = size_of(call_.type);
  const bool scatter = call_.operation == Operation::kReduceScatter;
  const Slice slice =
      scatter ? Slice{0, call_.count} : slice_of(call_.count, element, channel.local_rank(), size);
  const std::size_t in_offset =
      (scatter ? static_cast<std::size_t>(channel.local_rank()) * call_.count : slice.begin) *
      element;
  std::vector<const std::byte*> operands;
  std::vector<std::byte*> outputs;
  for (int local = 0; local < size; ++local) {
    operands.push_back(in_of(local) + in_offset);
    if (call_.operation == Operation::kAllReduce)
      outputs.push_back(out_of(local) + slice.begin * element);
  }
  if (call_.operation == Operation::kReduce)
    outputs.push_back(out_of(call_.root) + slice.begin * element);
  if (scatter) outputs.push_back(call_.out);
  reduce(context_.kernels, reduction_.how, reduction_.programs[0], operands, outputs, slice.size());
}

// One core copies about half as fast as two. The root writes the last of `size` parts into the
// other ranks' buffers while they copy the rest, so that all ranks have the same work. The root
// cannot reach a private buffer; that rank copies everything.
void LargeTask::broadcast_directly() {
  const NodeChannel& channel = context_.channel;
  const int size = channel.size();
  const int own = channel.local_rank();
  const std::size_t element = size_of(call_.type);
  const std::size_t cut = slice_of(call_.count, element, size - 1, size).begin * element;
  const std::size_t end = call_.block_bytes();
  const std::byte* from = in_of(call_.root);
  if (own != call_.root) return copy_bytes(call_.out, from, others_may_write(own) ? cut : end);
  copy_bytes(call_.out, from, end);
  for (int local = 0; local < size; ++local) {
    if (local != own && others_may_write(local))
      copy_bytes(out_of(local) + cut, from + cut, end - cut);
  }
}

// Either every rank writes its block into the root's buffer, or the root reads all blocks.
void LargeTask::gather_directly() {
  const NodeChannel& channel = context_.channel;
  const auto own = static_cast<std::size_t>(channel.local_rank());
  const std::size_t block = call_.block_bytes();
  if (others_may_write(call_.root))
    return copy_bytes(out_of(call_.root) + own * block, call_.in, block);
  if (channel.local_rank() != call_.root) return;
  for (int local = 0; local < channel.size(); ++local)
    copy_bytes(call_.out + static_cast<std::size_t>(local) * block, in_of(local), block);
}

void LargeTask::work_directly() {
  const NodeChannel& channel = context_.channel;
  const int size = channel.size();
  const auto own = static_cast<std::size_t>(channel.local_rank());
  const std::size_t block = call_.block_bytes();
  if (call_.reduces()) return reduce_directly();
  switch (call_.operation) {
    case Operation::kBroadcast:
      return broadcast_directly();
    case Operation::kScatter:
      return copy_bytes(call_.out, in_of(call_.root) + own * block, block);
    case Operation::kGather:
      return gather_directly();
    case Operation::kAllGather:
      for (int local = 0; local < size; ++local)
        copy_bytes(call_.out + static_cast<std::size_t>(local) * block, in_of(local), block);
      return;
    case Operation::kAllToAll:
      for (int local = 0; local < size; ++local)
        copy_bytes(call_.out + static_cast<std::size_t>(local) * block, in_of(local) + own * block,
                   block);
      return;
    default:
      return;
  }
}

}  // namespace tandem::comm
