// The memory of a training job that outlives a set of ranks: weights, what the optimizer keeps, the
// mean gradient of the newest step. Everything in it is a function of the step alone, so any
// process that maps it can continue.
//
// There is one copy per node, in memory shared by its ranks; every rank maps all of it, and what is
// mapped stays when others die. A world of one uses ordinary memory. Gradients of shards, buckets
// and flags belong to one set of ranks: gradient_engine.h.
//
// A step on a node is computing, reduced (the mean gradient is whole: begin_update), then applied
// (all weights are updated). step() is the last applied one. If ranks die in between, the survivors
// finish the update with GradientEngine::finish_update(): the gradient, the update's parameters and
// the overwritten values are here too (update_journal.h). A rank must be dead before others finish
// for it: a stopped process would continue writing when it wakes up.
//
// Thread-safety: reading is safe for all; each array states its writer and the time.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/bfloat16.h"
#include "tandem/core/buffer.h"
#include "tandem/dist/update_journal.h"
#include "tandem/optim/optimizer.h"

namespace tandem::dist {

struct ModelStateOptions {
  std::size_t elements = 0;         // f32 elements of the trained zone of the parameter layout
  std::size_t frozen_elements = 0;  // f32 weights behind them that no step changes
  // Size of the bf16 copy; 0: none. Its part behind all f32 weights exists in bf16 alone.
  std::size_t bf16_elements = 0;
  // f32 elements that the optimizer keeps (optim::Optimizer)
  std::size_t optimizer_state_elements = 0;
  // How the optimizer cuts an update, and the threads of this rank that work on it.
  optim::UpdatePieces pieces = {};
  int threads = 1;
  std::size_t record_values = 0;  // values of record()
};

// A memory file that a process outside the computation keeps: the agent of an elastic job's node.
// Workers that start again find in it what was there.
struct KeptMemory {
  int descriptor = -1;  // empty (0 bytes) until the first worker has sized it
  int worker = 0;       // this process's place among `workers`; no other live process has it
  int workers = 1;
};

class ModelState {
 public:
  // Elements whose squared norm is one partial sum; what ranks reduce and update begins and ends at
  // multiples of it.
  static constexpr std::size_t kChunk = 65536;

  // Ordinary memory, for one process. All arrays start as zeros. Throws InvalidArgument (no
  // parameters).
  explicit ModelState(const ModelStateOptions& options);
  // Collective over the node: the first of its ranks in `communicator` contributes the memory; in a
  // world of one it is ordinary memory. All arrays start as zeros. The memory does not need the
  // communicator afterwards. Throws InvalidArgument (no parameters), IoError (no memory),
  // CommError.
  ModelState(comm::Communicator& communicator, const ModelStateOptions& options);
  // The state that lies in `memory`, or will. Not collective: every worker of the node maps it when
  // it starts, with the same options but for `threads`. Throws InvalidArgument (no parameters; a
  // file of another model), IoError.
  ModelState(const KeptMemory& memory, const ModelStateOptions& options);
  ModelState(const ModelState&) = delete;
  ModelState& operator=(const ModelState&) = delete;

  const ModelStateOptions& options() const { return options_; }
  std::size_t elements() const { return options_.elements; }
  bool shared() const { return node_memory_.has_value() || kept_; }

  // Written by the node leader at start, then by each rank in the ranges that its engine gives it,
  // in GradientEngine::update(); otherwise read only.
  std::span<float> weights() const { return weights_; }
  // The weights that steps change, and those behind them, which the node leader fills once.
  std::span<float> trained_weights() const { return weights_.first(options_.elements); }
  std::span<float> frozen_weights() const { return weights_.subspan(options_.elements); }
  // The frozen weights that exist in bf16 alone. The part of the copy next to frozen_weights() is
  // never touched, so it takes no memory.
  std::span<bfloat16> frozen_operands() const {
    return bf16_weights_.subspan(std::min(bf16_weights_.size(), weights_.size()));
  }
  // Whether the frozen weights and operands were filled, in this process or before it.
  bool frozen_filled() const { return header_->frozen_filled.load(std::memory_order_acquire) != 0; }
  void set_frozen_filled() { header_->frozen_filled.store(1, std::memory_order_release); }
  std::span<bfloat16> bf16_weights() const { return bf16_weights_; }
  std::span<float> optimizer_state() const { return optimizer_state_; }

  // ---- the newest update ----

  // The last step whose update is complete, counted from 1; 0: the initial weights, or nothing.
  std::uint64_t step() const { return unless_replaced(header_->applied); }
  // The arrays hold the state after `step`, from a checkpoint or another node. Called by the node
  // leader, while no rank updates.
  void set_step(std::uint64_t step, std::span<const double> record = {});
  // Whether weights were put here, in this process or before it.
  bool filled() const { return header_->filled.load(std::memory_order_acquire) == kWhole; }
  void set_filled() { header_->filled.store(kWhole, std::memory_order_release); }
  // Another node's state is about to overwrite this one. Until set_filled() it is nothing: step 0,
  // not filled. The new state counts from set_filled() on, with the set_step() before it.
  void begin_replacing();
  // Before it is filled: what an interrupted replacement has left is cleared.
  void clear_remains();
  // The last step that this node has, or can finish: step(), or that of unfinished_update().
  std::uint64_t reachable_step() const { return unless_replaced(header_->step); }
  // The gradient of update.step is whole and its update begins: every rank of the node calls it
  // with the same values. `record` (options.record_values): what the job counts in this step.
  void begin_update(const optim::OptimizerStep& update, std::span<const double> record);
  // All ranks of the node have done their part of it.
  void end_update(std::uint64_t step);
  // The update that was begun and is not known to be complete.
  std::optional<optim::OptimizerStep> unfinished_update() const;
  // Puts back what interrupted threads were overwriting. Called by one rank, while no rank updates.
  void restore_pieces() { journal_.restore(); }
  // The record passed to begin_update() for the newest step; available also to a rank that did not
  // get there.
  std::vector<double> record() const;
  // Null in ordinary memory, where no other rank could finish an update.
  optim::UpdateGuard* guard() { return guarded_ ? &journal_ : nullptr; }
  // The arenas that an optimizer needs.
  optim::ParameterArenas arenas() const {
    return {.weights = weights_,
            .weights_bf16 = bf16_weights_,
            .gradients = gradient_,
            .state = optimizer_state_};
  }
  // Size of this rank's undo log.
  std::size_t undo_bytes() const { return guarded_ ? num_slots() * slot_bytes() : 0; }

  // ---- for the engine ----
  // The mean gradient [elements], and the squared norm of each chunk. Until the
  // shards of a step are summed, the node leader's backward may write its first shard here.
  std::span<float> gradient() const { return gradient_; }
  std::span<double> norm_partials() const { return norm_partials_; }

 private:
  enum : std::uint64_t { kEmpty, kWhole, kBeingReplaced };  // values of UpdateHeader::filled
  bool being_replaced() const {
    return header_->filled.load(std::memory_order_acquire) == kBeingReplaced;
  }
  std::uint64_t unless_replaced(const std::atomic<std::uint64_t>& step) const {
    return being_replaced() ? 0 : step.load(std::memory_order_acquire);
  }
  void use_own_memory();
  std::size_t lay_out(std::byte* memory);
  void write_record(std::span<const double> values);
  std::size_t kept_slots() const;
  std::size_t num_slots() const {
    return options_.pieces.largest_whole > 0 ? 1 : static_cast<std::size_t>(options_.threads);
  }
  std::size_t slot_bytes() const { return UndoSlot::bytes(options_.pieces); }

  ModelStateOptions options_;
  Buffer own_memory_;                            // world of one
  std::optional<comm::NodeMemory> node_memory_;  // otherwise
  std::optional<comm::SharedSegment> kept_;      // or this
  std::span<float> weights_;
  std::span<bfloat16> bf16_weights_;
  std::span<float> optimizer_state_;
  std::span<float> gradient_;
  std::span<double> norm_partials_;
  UpdateHeader* header_ = nullptr;
  std::span<std::atomic<double>> record_;
  std::span<std::atomic<std::uint64_t>> progress_;  // by piece (update_journal.h)
  bool guarded_ = false;
  UpdateJournal journal_;
};

}  // namespace tandem::dist
