// Large operations inside a node between private buffers: through the staging ring.
#include <algorithm>
#include <array>

#include "tandem/comm/node/node_tasks.h"

namespace tandem::comm {
namespace {

constexpr std::size_t kLine = 64;

}  // namespace

// Pieces long enough to be worth a post, and short enough for several in flight at once.
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
    if (local == own) {  // the own block of all_to_all and scatter is not sent
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

// This rank's share of a band: its own part from private memory, the other parts from the ring
// slots of their ranks.
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
