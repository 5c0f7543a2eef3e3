#include "tandem/comm/node/staged_plan.h"

#include <algorithm>

namespace tandem::comm {
namespace {

constexpr std::size_t kPlanLine = 64;

std::span<const std::byte> in_block(const Call& call, std::size_t i) {
  return {call.in + i * call.block_bytes(), call.block_bytes()};
}

std::span<std::byte> out_block(const Call& call, std::size_t i) {
  return {call.out + i * call.block_bytes(), call.block_bytes()};
}

bool is_root(const Call& call, std::size_t rank) { return static_cast<int>(rank) == call.root; }

// all_reduce and reduce: each rank combines a slice and offers the result to all, or to the root.
void plan_reduction(StagedPlan& plan, const Call& call) {
  const std::size_t element = size_of(call.type);
  const bool takes = call.operation == Operation::kAllReduce || is_root(call, plan.own);
  const auto slice = [&](std::size_t i) {
    return slice_of(call.count, element, static_cast<int>(i), plan.ranks());
  };
  const auto share_of = [&](std::size_t i) {
    return std::span(call.in + slice(i).begin * element, slice(i).size() * element);
  };
  std::byte* const result =
      call.out == nullptr ? nullptr : call.out + slice(plan.own).begin * element;
  plan.combine_shares(share_of, result);
  plan.shares_result = true;
  plan.give_all = plan.own_share;
  plan.longest = 0;
  for (std::size_t i = 0; i < plan.give.size(); ++i) {
    plan.longest = std::max(plan.longest, slice(i).size() * element);
    if (i != plan.own && takes)
      plan.take_all[i] = {call.out + slice(i).begin * element, slice(i).size() * element};
  }
  plan.read_all();
  plan.be_read_by_all();
}

void plan_reduce_scatter(StagedPlan& plan, const Call& call) {
  plan.combine_shares([&](std::size_t i) { return in_block(call, i); }, call.out);
  plan.read_all();
  plan.be_read_by_all();
}

// all_to_all and scatter: different data for different ranks.
void plan_blocks(StagedPlan& plan, const Call& call) {
  const bool scatter = call.operation == Operation::kScatter;
  const bool gives = !scatter || is_root(call, plan.own);
  plan.to_each = true;
  for (std::size_t i = 0; i < plan.give.size(); ++i) {
    const bool takes = !scatter || is_root(call, i);
    if (gives) plan.give[i] = in_block(call, i);
    if (takes) plan.take[i] = out_block(call, scatter ? 0 : i);
    plan.read_by[i] = gives && i != plan.own;
    plan.reads[i] = takes && i != plan.own;
  }
}

// all_gather and gather: one block of each rank for all, or for the root.
void plan_gather(StagedPlan& plan, const Call& call) {
  const bool all = call.operation == Operation::kAllGather;
  const bool takes = all || is_root(call, plan.own);
  plan.give_all = in_block(call, 0);
  for (std::size_t i = 0; i < plan.give.size(); ++i) {
    if (takes) plan.take_all[i] = out_block(call, i);
    plan.reads[i] = takes && i != plan.own;
    plan.read_by[i] = (all || is_root(call, i)) && i != plan.own;
  }
}

void plan_broadcast(StagedPlan& plan, const Call& call) {
  if (is_root(call, plan.own)) {
    plan.give_all = in_block(call, 0);
    plan.be_read_by_all();
    if (call.out != call.in) plan.take_all[plan.own] = out_block(call, 0);
    return;
  }
  const auto root = static_cast<std::size_t>(call.root);
  plan.take_all[root] = out_block(call, 0);
  plan.reads[root] = true;
}

}  // namespace

StagedPlan::StagedPlan(int local_rank, int ranks, std::size_t longest_span)
    : own(static_cast<std::size_t>(local_rank)),
      give(static_cast<std::size_t>(ranks)),
      take(give.size()),
      take_all(give.size()),
      read_by(give.size(), false),
      reads(give.size(), false),
      longest(longest_span) {}

void StagedPlan::mark_others(std::vector<bool>& flags) const {
  flags.assign(give.size(), true);
  flags[own] = false;
}

StagedPlan plan_staging(const Call& call, int local_rank, int size) {
  StagedPlan plan(local_rank, size, call.block_bytes());
  switch (call.operation) {
    case Operation::kAllReduce:
    case Operation::kReduce:
      plan_reduction(plan, call);
      break;
    case Operation::kReduceScatter:
      plan_reduce_scatter(plan, call);
      break;
    case Operation::kAllToAll:
    case Operation::kScatter:
      plan_blocks(plan, call);
      break;
    case Operation::kAllGather:
    case Operation::kGather:
      plan_gather(plan, call);
      break;
    case Operation::kBroadcast:
      plan_broadcast(plan, call);
      break;
    case Operation::kBarrier:
    case Operation::kSend:
      break;
  }
  return plan;
}

Slice slice_of(std::size_t count, std::size_t element_bytes, int part, int parts) {
  const std::size_t per_line = kPlanLine / element_bytes;
  const std::size_t lines = (count + per_line - 1) / per_line;
  const auto cut = [&](int i) {
    return std::min(
        count, lines * static_cast<std::size_t>(i) / static_cast<std::size_t>(parts) * per_line);
  };
  return {cut(part), cut(part + 1)};
}

}  // namespace tandem::comm
