#include "tandem/dist/model_state.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tandem/comm/memory.h"
#include "tandem/core/error.h"
#include "tandem/core/pages.h"
#include "tandem/core/thread_pool.h"

namespace tandem::dist {
namespace {

// Hands out page-aligned pieces of memory; of none, to learn how much is needed.
class Pieces {
 public:
  explicit Pieces(std::byte* memory) : memory_(memory) {}
  template <class T>
  std::span<T> take(std::size_t count) {
    std::byte* at = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ = align_up(used_ + count * sizeof(T), kPage);
    return {reinterpret_cast<T*>(at), count};
  }
  std::size_t used() const { return used_; }

 private:
  std::byte* memory_;
  std::size_t used_ = 0;
};

const ModelStateOptions& checked(const ModelStateOptions& options) {
  if (options.elements == 0) raise<InvalidArgument>("model state: the model has no parameters");
  return options;
}

}  // namespace

ModelState::ModelState(const ModelStateOptions& options) : options_(checked(options)) {
  use_own_memory();
}

void ModelState::use_own_memory() {
  own_memory_ = Buffer(lay_out(nullptr));
  lay_out(own_memory_.data());
}

ModelState::ModelState(comm::Communicator& communicator, const ModelStateOptions& options)
    : options_(checked(options)) {
  if (communicator.size() == 1) {
    use_own_memory();
    return;
  }
  const std::size_t bytes = lay_out(nullptr);
  guarded_ = communicator.local_size() > 1 && options.pieces.count > 0;
  const bool leader = communicator.local_rank() == 0;
  node_memory_.emplace(share_node_memory(communicator, (leader ? bytes : 0) + undo_bytes()));
  const std::span<std::byte> memory = node_memory_->segment(0);
  if (memory.size() < bytes || (!guarded_ && memory.size() != bytes)) {
    raise<CommError>("{} shares {} bytes, expected {}; train the same model on all ranks",
                     communicator.describe_rank(communicator.node().members[0]), memory.size(),
                     bytes);
  }
  lay_out(memory.data());
  if (!guarded_) return;
  std::vector<std::span<std::byte>> slots;
  for (int rank = 0; rank < communicator.local_size(); ++rank)
    slots.push_back(node_memory_->segment(rank).subspan(rank == 0 ? bytes : 0));
  const auto own = static_cast<std::size_t>(communicator.local_rank());
  journal_ = UpdateJournal(*header_, reinterpret_cast<float*>(memory.data()), progress_, slots[own],
                           slots, slot_bytes());
}

// Those of the worker with the most threads that this machine is likely to see: every worker must
// know where the slots of the others lie.
std::size_t ModelState::kept_slots() const {
  if (options_.pieces.largest_whole > 0) return 1;
  const long processors = ::sysconf(_SC_NPROCESSORS_CONF);
  return std::max(num_slots(), static_cast<std::size_t>(std::max(processors, 1L)));
}

ModelState::ModelState(const KeptMemory& memory, const ModelStateOptions& options)
    : options_(checked(options)) {
  guarded_ = options.pieces.count > 0;
  const std::size_t arrays = lay_out(nullptr);
  const std::size_t of_worker = guarded_ ? align_up(kept_slots() * slot_bytes(), kPage) : 0;
  const std::size_t bytes = arrays + of_worker * static_cast<std::size_t>(memory.workers);
  struct stat file {};
  if (::fstat(memory.descriptor, &file) != 0 ||
      (file.st_size == 0 && ::ftruncate(memory.descriptor, static_cast<off_t>(bytes)) != 0)) {
    throw io_error("cannot size", "the memory that the agent keeps", errno);
  }
  if (file.st_size != 0 && static_cast<std::size_t>(file.st_size) != bytes) {
    raise<InvalidArgument>(
        "the memory of the job's model is {} bytes on this node, and this worker needs {}: give "
        "all workers the same model, flags and OMP_NUM_THREADS",
        file.st_size, bytes);
  }
  kept_.emplace(memory.descriptor, bytes);
  const std::span<std::byte> mapped = kept_->bytes();
  lay_out(mapped.data());
  if (!guarded_) return;
  std::vector<std::span<std::byte>> slots;
  for (int worker = 0; worker < memory.workers; ++worker) {
    slots.push_back(mapped.subspan(arrays + of_worker * static_cast<std::size_t>(worker),
                                   kept_slots() * slot_bytes()));
  }
  const std::span<std::byte> own = slots[static_cast<std::size_t>(memory.worker)];
  journal_ = UpdateJournal(*header_, reinterpret_cast<float*>(mapped.data()), progress_, own, slots,
                           slot_bytes());
}

// Returns the bytes that everything takes.
std::size_t ModelState::lay_out(std::byte* memory) {
  Pieces pieces(memory);
  gradient_ = pieces.take<float>(options_.elements);
  weights_ = pieces.take<float>(options_.elements + options_.frozen_elements);
  bf16_weights_ = pieces.take<bfloat16>(options_.bf16_elements);
  optimizer_state_ = pieces.take<float>(options_.optimizer_state_elements);
  norm_partials_ = pieces.take<double>(num_chunks(options_.elements, kChunk));
  header_ = pieces.take<UpdateHeader>(1).data();
  record_ = pieces.take<std::atomic<double>>(options_.record_values);
  progress_ = pieces.take<std::atomic<std::uint64_t>>(options_.pieces.count);
  return pieces.used();
}

void ModelState::set_step(std::uint64_t step, std::span<const double> record) {
  write_record(record);
  header_->step.store(step, std::memory_order_relaxed);
  header_->applied.store(step, std::memory_order_release);
}

void ModelState::begin_replacing() {
  header_->filled.store(kBeingReplaced, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // before anything is overwritten
}

void ModelState::clear_remains() {
  if (!being_replaced()) return;
  set_step(0);
  std::fill(optimizer_state_.begin(), optimizer_state_.end(), 0.0f);
  for (std::atomic<std::uint64_t>& piece : progress_) piece.store(0);  // its steps come again
}

void ModelState::begin_update(const optim::OptimizerStep& update, std::span<const double> record) {
  TANDEM_CHECK(record.size() == record_.size(), "a record of {} values instead of {}",
               record.size(), record_.size());
  header_->learning_rate.store(update.learning_rate, std::memory_order_relaxed);
  header_->gradient_scale.store(update.gradient_scale, std::memory_order_relaxed);
  write_record(record);
  header_->step.store(update.step, std::memory_order_release);
}

void ModelState::write_record(std::span<const double> values) {
  for (std::size_t i = 0; i < values.size(); ++i)
    record_[i].store(values[i], std::memory_order_relaxed);
}

void ModelState::end_update(std::uint64_t step) {
  header_->applied.store(step, std::memory_order_release);
}

std::optional<optim::OptimizerStep> ModelState::unfinished_update() const {
  const std::uint64_t begun = reachable_step();
  if (begun == step()) return std::nullopt;
  return optim::OptimizerStep{.step = begun,
                              .learning_rate = header_->learning_rate.load(),
                              .gradient_scale = header_->gradient_scale.load()};
}

std::vector<double> ModelState::record() const {
  std::vector<double> values;
  for (const std::atomic<double>& value : record_) values.push_back(value.load());
  return values;
}

}  // namespace tandem::dist
