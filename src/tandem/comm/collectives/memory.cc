#include "tandem/comm/memory.h"

#include <unistd.h>

#include <cerrno>

#include "tandem/comm/collectives/communicator_state.h"
#include "tandem/core/error.h"

namespace tandem::comm {
namespace {

void write_all(const net::FileDescriptor& file, std::span<const std::byte> data) {
  std::size_t done = 0;
  while (done < data.size()) {
    const ssize_t count =
        ::pwrite(file.get(), data.data() + done, data.size() - done, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw io_error("cannot write", "memfd", errno);
    done += static_cast<std::size_t>(count);
  }
}

}  // namespace

struct CommunicatorMemory::Impl {
  NodeMemory memory;
  std::span<std::byte> own;
  std::weak_ptr<NodeChannel> channel;  // the communicator may be closed first
  std::uint32_t id = 0;

  explicit Impl(NodeMemory shared) : memory(std::move(shared)) {}
  ~Impl() {
    if (const auto alive = channel.lock()) alive->remove_allocation(id);
  }
};

CommunicatorMemory::CommunicatorMemory(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CommunicatorMemory::CommunicatorMemory() = default;
CommunicatorMemory::~CommunicatorMemory() = default;
CommunicatorMemory::CommunicatorMemory(CommunicatorMemory&& other) noexcept = default;
CommunicatorMemory& CommunicatorMemory::operator=(CommunicatorMemory&& other) noexcept = default;
std::span<std::byte> CommunicatorMemory::bytes() const {
  return impl_ ? impl_->own : std::span<std::byte>();
}

// From here on collectives use `memory`.
CommunicatorMemory share_with_node(Communicator& communicator, NodeMemory memory) {
  Communicator::State& s = *communicator.state_;
  std::vector<std::span<std::byte>> segments;
  for (int i = 0; i < communicator.local_size(); ++i) segments.push_back(memory.segment(i));
  auto impl = std::make_unique<CommunicatorMemory::Impl>(std::move(memory));
  impl->own = segments[static_cast<std::size_t>(s.local_rank)];
  if (s.channel) {
    impl->channel = s.channel;
    impl->id = s.channel->add_allocation(std::move(segments));
  }
  return CommunicatorMemory(std::move(impl));
}

CommunicatorMemory mem_alloc(Communicator& communicator, std::size_t bytes) {
  return share_with_node(communicator, share_node_memory(communicator, bytes));
}

CommunicatorMemory mem_replace(Communicator& communicator, std::span<std::byte> pages,
                               net::FileDescriptor& file) {
  Communicator::State& s = *communicator.state_;
  s.check_open();
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  if (reinterpret_cast<std::uintptr_t>(pages.data()) % page != 0) {
    raise<InvalidArgument>("the memory to replace begins at {}, expected the beginning of a page",
                           static_cast<const void*>(pages.data()));
  }
  file = SharedSegment::create_file(pages.size());
  write_all(file, pages);
  return share_with_node(communicator, s.share_file(file, SharedSegment(file, pages)));
}

NodeMemory share_node_memory(Communicator& communicator, std::size_t bytes) {
  communicator.state_->check_open();
  return communicator.state_->share_memory(bytes);
}

}  // namespace tandem::comm
