#include "tandem/dist/model_state.h"

#include "tandem/comm/api/memory.h"
#include "tandem/core/error.h"
#include "tandem/core/thread_pool.h"

namespace tandem::dist {
namespace {

constexpr std::size_t kPage = 4096;

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

}  // namespace

ModelState::ModelState(comm::Communicator* communicator, const ModelStateOptions& options)
    : options_(options) {
  if (options.elements == 0) raise<InvalidArgument>("model state: the model has no parameters");
  const std::size_t bytes = place(nullptr);
  if (communicator == nullptr || communicator->size() == 1) {
    own_memory_ = Buffer(bytes);
    place(own_memory_.data());
    return;
  }
  node_memory_.emplace(
      share_node_memory(*communicator, communicator->local_rank() == 0 ? bytes : 0));
  const std::span<std::byte> memory = node_memory_->segment(0);
  if (memory.size() != bytes) {
    raise<CommError>("{} shares {} bytes, expected {}: do all ranks train the same model?",
                     communicator->describe_rank(communicator->node().members[0]), memory.size(),
                     bytes);
  }
  place(memory.data());
}

// Returns the bytes that everything takes.
std::size_t ModelState::place(std::byte* memory) {
  Pieces pieces(memory);
  gradient_ = pieces.take<float>(options_.elements);
  weights_ = pieces.take<float>(options_.elements);
  bf16_weights_ = pieces.take<bfloat16>(options_.bf16_elements);
  optimizer_state_ = pieces.take<float>(options_.optimizer_state_elements);
  norm_partials_ = pieces.take<double>(num_chunks(options_.elements, kChunk));
  return pieces.used();
}

}  // namespace tandem::dist
