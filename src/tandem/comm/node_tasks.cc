#include "tandem/comm/node_tasks.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tandem/core/error.h"

namespace tandem::comm {
namespace {

constexpr std::size_t kLine = 64;

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes != 0 && to != from) std::memcpy(to, from, bytes);
}

// The ranks of a node are few; their buffers are listed on the stack.
constexpr int kMaxLocal = 512;
using Pointers = std::array<const std::byte*, kMaxLocal>;

}  // namespace

Slice slice_of(std::size_t count, std::size_t element_bytes, int part, int parts) {
  const std::size_t per_line = kLine / element_bytes;
  const std::size_t lines = (count + per_line - 1) / per_line;
  const auto cut = [&](int i) {
    return std::min(
        count, lines * static_cast<std::size_t>(i) / static_cast<std::size_t>(parts) * per_line);
  };
  return {cut(part), cut(part + 1)};
}

// ---- small ----

Progress SlotTask::advance() {
  if (!announced_) {
    if (!context_.channel.may_announce(missing_)) return Progress::kWaiting;
    announce();
    announced_ = true;
  }
  if (needs_sources()) {
    if (!sources_announced()) return Progress::kWaiting;
    take();
  }
  return Progress::kDone;
}

void SlotTask::announce() {
  NodeChannel& channel = context_.channel;
  std::span<const std::byte> data;
  if (is_source(channel.local_rank())) data = {call_.in, call_.in_bytes(channel.size())};
  if (call_.operation == Operation::kBarrier) data = {};
  if (data.size() > NodeChannel::kTinyBytes) {
    std::memcpy(channel.next_slot(), data.data(), data.size());
    data = {};
  }
  channel.announce(call_, context_.collective, data);
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
  const bool tiny = call_.in_bytes(channel.size()) <= NodeChannel::kTinyBytes;
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

// ---- through the ring ----

StagedPlan plan_staging(const Call& call, int local_rank, int size) {
  const auto ranks = static_cast<std::size_t>(size);
  const auto own = static_cast<std::size_t>(local_rank);
  const std::size_t block = call.block_bytes();
  const bool at_root = local_rank == call.root;
  StagedPlan plan;
  plan.give.resize(ranks);
  plan.take.resize(ranks);
  plan.take_all.resize(ranks);
  plan.read_by.assign(ranks, false);
  plan.reads.assign(ranks, false);
  plan.longest = block;
  const auto in_block = [&](std::size_t i) {
    return std::span<const std::byte>(call.in + i * block, block);
  };
  const auto out_block = [&](std::size_t i) { return std::span(call.out + i * block, block); };
  const auto others = [&](std::vector<bool>& flags) {
    flags.assign(ranks, true);
    flags[own] = false;
  };
  switch (call.operation) {
    case Operation::kAllReduce:
    case Operation::kReduce: {
      const std::size_t element = size_of(call.type);
      const bool for_root = call.operation == Operation::kReduce;
      plan.to_each = plan.reduces = plan.shares_result = true;
      plan.longest = 0;
      for (std::size_t i = 0; i < ranks; ++i) {
        const Slice slice = slice_of(call.count, element, static_cast<int>(i), size);
        plan.longest = std::max(plan.longest, slice.size() * element);
        const std::span<const std::byte> bytes(call.in + slice.begin * element,
                                               slice.size() * element);
        if (i == own) {
          plan.own_share = plan.give_all = bytes;
          if (call.out != nullptr) plan.result = call.out + slice.begin * element;
        } else {
          plan.give[i] = bytes;
          if (!for_root || at_root)
            plan.take_all[i] = {call.out + slice.begin * element, bytes.size()};
        }
      }
      others(plan.reads);
      others(plan.read_by);
      return plan;
    }
    case Operation::kReduceScatter:
      plan.to_each = plan.reduces = true;
      for (std::size_t i = 0; i < ranks; ++i) {
        if (i != own) plan.give[i] = in_block(i);
      }
      plan.own_share = in_block(own);
      plan.result = call.out;
      others(plan.reads);
      others(plan.read_by);
      return plan;
    case Operation::kAllToAll:
    case Operation::kScatter:
      plan.to_each = true;
      for (std::size_t i = 0; i < ranks; ++i) {
        const bool gives = call.operation == Operation::kAllToAll || at_root;
        const bool takes =
            call.operation == Operation::kAllToAll || static_cast<int>(i) == call.root;
        if (gives) plan.give[i] = in_block(i);
        if (takes)
          plan.take[i] = call.operation == Operation::kScatter ? out_block(0) : out_block(i);
        plan.read_by[i] = gives && i != own;
        plan.reads[i] = takes && i != own;
      }
      return plan;
    case Operation::kAllGather:
    case Operation::kGather:
      plan.give_all = in_block(0);
      for (std::size_t i = 0; i < ranks; ++i) {
        const bool all = call.operation == Operation::kAllGather;
        if (all || at_root) plan.take_all[i] = out_block(i);
        plan.reads[i] = (all || at_root) && i != own;
        plan.read_by[i] = (all || static_cast<int>(i) == call.root) && i != own;
      }
      return plan;
    case Operation::kBroadcast:
      if (at_root) {
        plan.give_all = in_block(0);
        others(plan.read_by);
        if (call.out != call.in) plan.take_all[own] = out_block(0);
      } else {
        plan.take_all[static_cast<std::size_t>(call.root)] = out_block(0);
        plan.reads[static_cast<std::size_t>(call.root)] = true;
      }
      return plan;
    case Operation::kBarrier:
    case Operation::kSend:
      return plan;
  }
  return plan;
}

// Pieces that are long enough to pay for a post, and short enough for a few of them to be under way at once.
static std::size_t step_of(const StagedPlan& plan, int size) {
  constexpr std::size_t kShortest = 8192;
  constexpr std::size_t kLongest = std::size_t{64} << 10;
  const std::size_t cells = plan.to_each ? static_cast<std::size_t>(size) : 1;
  const std::size_t room = NodeChannel::kRingStride / cells / kLine * kLine;
  const std::size_t wish = (plan.longest / 4 + kLine - 1) / kLine * kLine;
  return std::min(room, std::clamp(wish, kShortest, kLongest));
}

StagedTask::StagedTask(const NodeContext& context, StagedPlan plan, const NodeReduction& reduction)
    : context_(context),
      plan_(std::move(plan)),
      reduction_(reduction),
      step_(step_of(plan_, context.channel.size())),
      bands_(static_cast<std::uint32_t>((plan_.longest + step_ - 1) / step_)),
      base_(context.channel.bands()),
      operands_(static_cast<std::size_t>(context.channel.size())) {
  context.channel.skip_bands(bands_);
}

Progress StagedTask::advance() {
  bool moved = false;
  while (!cursor_.done(bands_)) {
    bool now = false;
    if (cursor_.may_stage(bands_)) now = stage();
    if (cursor_.may_consume()) now = consume() || now;
    if (cursor_.may_collect()) now = collect() || now;
    if (!now) return moved ? Progress::kMoved : Progress::kWaiting;
    moved = true;
  }
  return Progress::kDone;
}

std::byte* StagedTask::cell(int owner, std::uint32_t band, int reader) const {
  return context_.channel.ring(owner, band) + static_cast<std::size_t>(reader) * step_;
}

std::byte* StagedTask::cell_for_all(int owner, std::uint32_t band) const {
  return cell(owner, band, plan_.to_each ? owner : 0);
}

bool StagedTask::stage() {
  NodeChannel& channel = context_.channel;
  const std::uint32_t index = cursor_.staged;
  const std::uint32_t band = base_ + index;
  for (int local = 0; local < channel.size(); ++local) {
    if (local == channel.local_rank()) continue;
    const std::uint32_t needed = staging::consumed_before_staging(
        base_, band, NodeChannel::kRingDepth, plan_.read_by[static_cast<std::size_t>(local)]);
    if (channel.reached(local, NodeChannel::kConsumed, needed)) continue;
    missing_ = local;
    return false;
  }
  const int own = channel.local_rank();
  for (int local = 0; local < channel.size(); ++local) {
    const auto share = piece(plan_.give[static_cast<std::size_t>(local)], index);
    if (local == own) {  // all_to_all's and scatter's own block does not travel
      const auto to = piece(plan_.take[static_cast<std::size_t>(own)], index);
      copy_bytes(to.data(), share.data(), to.size());
    } else {
      copy_bytes(cell(own, band, local), share.data(), share.size());
    }
  }
  if (!plan_.shares_result) {
    const auto share = piece(plan_.give_all, index);
    copy_bytes(cell_for_all(own, band), share.data(), share.size());
    const auto to = piece(plan_.take_all[static_cast<std::size_t>(own)], index);
    copy_bytes(to.data(), share.data(), to.size());
  }
  ++cursor_.staged;
  channel.post(NodeChannel::kStaged, staging::count_with(band));
  return true;
}

bool StagedTask::consume() {
  NodeChannel& channel = context_.channel;
  const std::uint32_t index = cursor_.consumed;
  const std::uint32_t band = base_ + index;
  const int own = channel.local_rank();
  for (int local = 0; local < channel.size(); ++local) {
    if (!plan_.reads[static_cast<std::size_t>(local)] ||
        channel.reached(local, NodeChannel::kStaged, staging::count_with(band)))
      continue;
    missing_ = local;
    return false;
  }
  if (plan_.reduces) {
    reduce_band(index);
    if (plan_.shares_result) channel.post(NodeChannel::kReduced, staging::count_with(band));
  } else {
    for (int local = 0; local < channel.size(); ++local) {
      if (local == own) continue;
      const auto part = piece(plan_.take[static_cast<std::size_t>(local)], index);
      copy_bytes(part.data(), cell(local, band, own), part.size());
      const auto shared = piece(plan_.take_all[static_cast<std::size_t>(local)], index);
      copy_bytes(shared.data(), cell_for_all(local, band), shared.size());
    }
  }
  ++cursor_.consumed;
  if (!plan_.shares_result) {
    cursor_.collected = cursor_.consumed;
    channel.post(NodeChannel::kConsumed, staging::count_with(band));
  }
  return true;
}

// This rank's share of a band: its own part from private memory, the others' from their cells.
void StagedTask::reduce_band(std::uint32_t index) {
  const auto own_part = piece(plan_.own_share, index);
  if (own_part.empty()) return;
  const int own = context_.channel.local_rank();
  const std::uint32_t band = base_ + index;
  for (int local = 0; local < context_.channel.size(); ++local) {
    operands_[static_cast<std::size_t>(local)] =
        local == own ? own_part.data() : cell(local, band, own);
  }
  const std::size_t element = size_of(reduction_.how.type);
  const std::size_t count = own_part.size() / element;
  const std::size_t begin = index * step_ / element;
  const DataType result_type =
      reduction_.how.wide_result ? accumulator_of(reduction_.how.type) : reduction_.how.type;
  for (std::size_t p = 0; p < reduction_.programs.size(); ++p) {
    std::array<std::byte*, 2> outputs;
    std::size_t num_outputs = 0;
    if (plan_.result != nullptr)
      outputs[num_outputs++] = plan_.result + p * reduction_.stride + begin * size_of(result_type);
    if (plan_.shares_result) outputs[num_outputs++] = cell_for_all(own, band);
    reduce(context_.kernels, reduction_.how, reduction_.programs[p], operands_,
           std::span(outputs).first(num_outputs), count);
  }
}

bool StagedTask::collect() {
  NodeChannel& channel = context_.channel;
  const std::uint32_t index = cursor_.collected;
  const std::uint32_t band = base_ + index;
  for (int local = 0; local < channel.size(); ++local) {
    if (plan_.take_all[static_cast<std::size_t>(local)].empty() ||
        channel.reached(local, NodeChannel::kReduced, staging::count_with(band)))
      continue;
    missing_ = local;
    return false;
  }
  for (int local = 0; local < channel.size(); ++local) {
    const auto part = piece(plan_.take_all[static_cast<std::size_t>(local)], index);
    copy_bytes(part.data(), cell_for_all(local, band), part.size());
  }
  ++cursor_.collected;
  channel.post(NodeChannel::kConsumed, staging::count_with(band));
  return true;
}

// ---- large ----

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
    if (!channel.may_announce(missing_)) return Progress::kWaiting;
    announce();
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
  // Nobody may touch its buffers before all have read and written what they must.
  for (int local = 0; local < channel.size(); ++local) {
    if (local == channel.local_rank() ||
        channel.reached(local, NodeChannel::kStaged, channel.bands()))
      continue;
    missing_ = local;
    return moved ? Progress::kMoved : Progress::kWaiting;
  }
  return Progress::kDone;
}

void LargeTask::announce() {
  NodeChannel& channel = context_.channel;
  Locations where;
  if (!plan_ && call_.in != nullptr)
    where.in = channel.locate(call_.in, call_.in_bytes(channel.size()));
  if (!plan_ && call_.out != nullptr)
    where.out = channel.locate(call_.out, call_.out_bytes(channel.size()));
  channel.announce(call_, context_.collective, std::as_bytes(std::span(&where, 1)));
}

namespace {

Locations locations_of(const NodeChannel& channel, int local) {
  Locations where;
  std::memcpy(&where, channel.tiny(local), sizeof where);
  return where;
}

}  // namespace

// Buffers that others read: of all that give something. Buffers that others write: of everybody in all_reduce, of the root
// in reduce.
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

void LargeTask::work_directly() {
  const NodeChannel& channel = context_.channel;
  const int size = channel.size();
  const auto own = static_cast<std::size_t>(channel.local_rank());
  const bool at_root = channel.local_rank() == call_.root;
  const std::size_t block = call_.block_bytes();
  if (call_.reduces()) return reduce_directly();
  switch (call_.operation) {
    case Operation::kBroadcast:
      return copy_bytes(call_.out, in_of(call_.root), block);
    case Operation::kScatter:
      return copy_bytes(call_.out, in_of(call_.root) + own * block, block);
    case Operation::kGather:
      if (!at_root) return;
      [[fallthrough]];
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
