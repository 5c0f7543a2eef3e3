#include "tandem/kernels/scratch.h"

namespace tandem::kernels {

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
