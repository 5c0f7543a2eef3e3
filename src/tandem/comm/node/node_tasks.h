// Collectives among the ranks of one node, through shared memory. All ranks and roots here are
// local.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tandem/comm/algorithms/reduce.h"
#include "tandem/comm/algorithms/task.h"
#include "tandem/comm/node/copy_bytes.h"
#include "tandem/comm/node/node_channel.h"
#include "tandem/comm/node/staged_plan.h"
#include "tandem/comm/node/staging.h"

namespace tandem::comm {

// The order in which the numbers of the node's ranks are combined. More than one program: the
// node's subtrees of a tree that extends beyond it; result p is written `stride` bytes after result
// p − 1.
struct NodeReduction {
  Reduction how;
  std::span<const SumProgram> programs;
  std::size_t stride = 0;
};

// The inputs of a node operation besides the call.
struct NodeContext {
  NodeChannel& channel;
  const kernels::CombineKernels& kernels;
  std::uint64_t collective = 0;  // for messages
  Whole whole = {};
};

// Up to kSlotBytes from each rank, in one step. Every rank writes its contribution to its line (up
// to 56 bytes) or slot and reads from those of the others. If all ranks need the result, every rank
// computes all of it, in the same order.
class SlotTask final : public CommTask {
 public:
  // `reduction` is used only by calls that reduce, and must outlive the task.
  SlotTask(const NodeContext& context, const Call& call, const NodeReduction& reduction)
      : context_(context), call_(call), reduction_(reduction) {}
  Progress advance() override;
  int waiting_for() const override { return missing_; }

 private:
  void post_header();
  bool sources_announced();
  bool is_source(int local) const;
  bool needs_sources() const;
  const std::byte* given_by(int local, std::size_t offset) const;
  void take();
  void combine(std::size_t offset);

  NodeContext context_;
  Call call_;
  NodeReduction reduction_;
  bool announced_ = false;
  int missing_ = -1;
};

// Larger operations between private buffers: through the staging ring (staging.h).
class StagedTask final : public CommTask {
 public:
  StagedTask(const NodeContext& context, StagedPlan plan, const NodeReduction& reduction);
  Progress advance() override;
  int waiting_for() const override { return missing_; }

 private:
  bool stage();
  bool consume();
  bool collect();
  void reduce_band(std::uint32_t band);
  std::byte* cell(int owner, std::uint32_t band, int reader) const;
  std::byte* cell_for_all(int owner, std::uint32_t band) const;
  std::size_t length(std::size_t bytes, std::uint32_t band) const;
  template <class Byte>
  std::span<Byte> piece(std::span<Byte> whole, std::uint32_t band) const {
    const std::size_t begin = std::min(whole.size(), band * step_);
    return whole.subspan(begin, std::min(step_, whole.size() - begin));
  }

  NodeContext context_;
  StagedPlan plan_;
  NodeReduction reduction_;
  std::size_t step_;
  std::uint32_t bands_;
  std::uint32_t base_;
  staging::Cursor cursor_;
  std::vector<const std::byte*> operands_;
  int missing_ = -1;
};

// Large operations: announces the location of the buffers. If all buffers that other ranks must
// reach are in memory of the communicator, it works on them in place (each rank reduces its slice
// of all buffers, or copies directly from them). Otherwise it stages.
class LargeTask final : public CommTask {
 public:
  LargeTask(const NodeContext& context, const Call& call, const NodeReduction& reduction);
  // A part of an operation across nodes, staged along this plan; `call` is compared between the
  // ranks.
  LargeTask(const NodeContext& context, const Call& call, StagedPlan plan,
            const NodeReduction& reduction);
  Progress advance() override;
  int waiting_for() const override;

 private:
  enum class State { kStart, kAnnounced, kDirectDone, kStaged };
  void post_header();
  bool all_reachable() const;
  void work_directly();
  void reduce_directly();
  void broadcast_directly();
  void gather_directly();
  bool others_may_write(int local) const;
  std::byte* in_of(int local) const;
  std::byte* out_of(int local) const;

  NodeContext context_;
  Call call_;
  NodeReduction reduction_;
  std::optional<StagedPlan> plan_;
  State state_ = State::kStart;
  int missing_ = -1;
  std::unique_ptr<StagedTask> staged_;
};

}  // namespace tandem::comm
