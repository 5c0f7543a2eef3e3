#include "tandem/core/buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "tandem/core/error.h"
#include "tandem/core/memory_limits.h"

namespace tandem {
namespace {
constexpr std::size_t kHugePage = std::size_t{2} << 20;
}

Buffer::Buffer(std::size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  const bool large = bytes >= 2 * kHugePage;
  mapped_ = align_up(bytes, large ? kHugePage : 4096);
  // Map one huge page more than needed and give back the ends, so that the start is aligned.
  const std::size_t asked = mapped_ + (large ? kHugePage : 0);
  void* address =
      ::mmap(nullptr, asked, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    raise<IoError>(
        "cannot get {} MiB of memory: {}{}; try a smaller batch, or fewer ranks on this machine",
        bytes >> 20, std::strerror(errno), describe_address_space_limit());
  }
  auto* start = static_cast<std::byte*>(address);
  if (large) {
    auto* aligned =
        reinterpret_cast<std::byte*>(align_up(reinterpret_cast<std::size_t>(start), kHugePage));
    if (aligned > start) ::munmap(start, static_cast<std::size_t>(aligned - start));
    if (start + asked > aligned + mapped_) {
      ::munmap(aligned + mapped_, static_cast<std::size_t>(start + asked - (aligned + mapped_)));
    }
    start = aligned;
    ::madvise(start, mapped_, MADV_HUGEPAGE);  // a wish; ordinary pages work too
  }
  data_ = start;
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
