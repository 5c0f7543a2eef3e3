#include "tandem/kernels/scratch.h"

#include "tandem/core/error.h"

namespace tandem::kernels {

Scratch::Scratch(int num_threads)
    : shared_(kSharedBytes), threads_(static_cast<std::size_t>(num_threads)) {
  for (PerThread& thread : threads_) thread.memory = Buffer(kThreadBytes);
}

Scratch::PerThread& Scratch::of(int thread) {
  const auto index = static_cast<std::size_t>(thread);
  TANDEM_CHECK(index < threads_.size(), "scratch for {} threads was asked for thread {}",
               threads_.size(), thread);
  return threads_[index];
}

Buffer& Scratch::grown(Buffer& buffer, std::size_t bytes) {
  if (buffer.size() < bytes) {
    buffer = Buffer();  // give the old memory back before asking for more
    buffer = Buffer(align_up(bytes, std::size_t{64} << 10));
  }
  return buffer;
}

std::size_t Scratch::bytes() const {
  std::size_t total = shared_.size();
  for (const PerThread& thread : threads_) total += thread.memory.size();
  return total;
}

}  // namespace tandem::kernels
