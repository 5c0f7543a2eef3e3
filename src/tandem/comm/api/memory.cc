#include "tandem/comm/api/memory.h"

#include "tandem/comm/api/communicator_state.h"

namespace tandem::comm {

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

CommunicatorMemory mem_alloc(Communicator& communicator, std::size_t bytes) {
  Communicator::State& s = *communicator.state_;
  NodeMemory memory = share_node_memory(communicator, bytes);
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

NodeMemory share_node_memory(Communicator& communicator, std::size_t bytes) {
  communicator.state_->check_open();
  return communicator.state_->share_memory(bytes);
}

}  // namespace tandem::comm
