#include "tandem/comm/node/node_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>

#include "tandem/comm/node/futex.h"
#include "tandem/core/error.h"
#include "tandem/core/huge_pages.h"

namespace tandem::comm {
namespace {

// Not FUTEX_PRIVATE: the sleepers are other processes.
}  // namespace

// The writer's store and its check of `waiters`, and the sleeper's registration and its check of
// `value`, are sequentially consistent: at least one of the two sees the other, so no wake is lost.
void raise_flag(FlagLine& flag, std::uint32_t value) {
  flag.value.store(value, std::memory_order_seq_cst);
  if (flag.waiters.load(std::memory_order_seq_cst) != 0)
    futex(flag.value, FUTEX_WAKE, INT_MAX, nullptr);
}

void sleep_on_flag(FlagLine& flag, std::uint32_t seen, long timeout_us) {
  const timespec timeout{timeout_us / 1000000, timeout_us % 1000000 * 1000};
  flag.waiters.fetch_add(1, std::memory_order_seq_cst);
  futex(flag.value, FUTEX_WAIT, seen, &timeout);
  flag.waiters.fetch_sub(1, std::memory_order_seq_cst);
}

net::FileDescriptor SharedSegment::create_file(std::size_t bytes) {
  net::FileDescriptor file(::memfd_create("tandem", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) throw io_error("cannot create a memory file", "memfd", errno);
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
    raise<IoError>("cannot get {} MiB of memory to share among the ranks of this node: {}",
                   bytes >> 20, std::strerror(errno));
  }
  // With a file that cannot shrink, a peer's read never ends in SIGBUS.
  ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  return file;
}

SharedSegment::SharedSegment(int descriptor, std::size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  data_ = map_memory(bytes, MAP_SHARED, descriptor);
  if (data_ == nullptr) {
    raise<IoError>("cannot map {} MiB of memory shared among the ranks of this node: {}",
                   bytes >> 20, std::strerror(errno));
  }
}

SharedSegment::SharedSegment(const net::FileDescriptor& descriptor, std::span<std::byte> mapping)
    : size_(mapping.size()), unmaps_(false) {
  if (mapping.empty()) return;
  void* address = ::mmap(mapping.data(), mapping.size(), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_FIXED, descriptor.get(), 0);
  if (address == MAP_FAILED) {
    raise<IoError>("cannot map {} MiB of shared memory over other memory: {}", mapping.size() >> 20,
                   std::strerror(errno));
  }
  data_ = static_cast<std::byte*>(address);
}

SharedSegment::~SharedSegment() {
  if (data_ != nullptr && unmaps_) ::munmap(data_, size_);
}

SharedSegment::SharedSegment(SharedSegment&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      unmaps_(other.unmaps_) {}

SharedSegment& SharedSegment::operator=(SharedSegment&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(unmaps_, other.unmaps_);
  return *this;
}

}  // namespace tandem::comm
