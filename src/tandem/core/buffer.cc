#include "tandem/core/buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "tandem/core/error.h"
#include "tandem/core/huge_pages.h"
#include "tandem/core/memory_limits.h"

namespace tandem {
Buffer::Buffer(std::size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  mapped_ = align_up(bytes, bytes >= 2 * kHugePage ? kHugePage : 4096);
  data_ = map_memory(mapped_, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  if (data_ == nullptr) {
    raise<IoError>(
        "cannot get {} MiB of memory: {}{}; try a smaller batch, or fewer ranks on this machine",
        bytes >> 20, std::strerror(errno), describe_address_space_limit());
  }
}

Buffer::~Buffer() {
  if (data_ != nullptr) ::munmap(data_, mapped_);
}

std::byte* Arena::allocate_bytes(std::size_t bytes) {
  const std::size_t begin = align_up(used_, kTensorAlignment);
  used_ = begin + bytes;
  if (measuring()) return nullptr;
  TANDEM_CHECK(used_ <= buffer_.size(), "arena of {} bytes asked for {}", buffer_.size(), used_);
  return buffer_.data() + begin;
}

}  // namespace tandem
