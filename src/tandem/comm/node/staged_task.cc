// Large operations inside a node between private buffers: through the staging ring.
#include <algorithm>
#include <array>

#include "tandem/comm/node/node_tasks.h"

namespace tandem::comm {
namespace {

constexpr std::size_t kLine = 64;

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

// Pieces that are long enough to pay for a post, and short enough for a few of them to be under way
// at once.
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

}  // namespace tandem::comm
