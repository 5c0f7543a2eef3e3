// Memory that the ranks of one node have mapped, of a communicator.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "tandem/comm/api/communicator.h"
#include "tandem/comm/node/node_memory.h"

namespace tandem::comm {

// Memory that all ranks of the node have mapped, from mem_alloc(). Movable; its end frees this
// rank's mapping. It must not be destroyed while an operation uses it, and not outlive its
// communicator. Collectives on buffers in it need the mappings of all ranks of the node: on a rank
// that has freed its own they may throw InvalidArgument.
class CommunicatorMemory {
 public:
  CommunicatorMemory();  // no memory
  ~CommunicatorMemory();
  CommunicatorMemory(CommunicatorMemory&& other) noexcept;
  CommunicatorMemory& operator=(CommunicatorMemory&& other) noexcept;
  std::span<std::byte> bytes() const;  // this rank's part; page-aligned, zeroed
  template <class T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(bytes().data()), bytes().size() / sizeof(T)};
  }

 private:
  friend CommunicatorMemory share_with_node(Communicator& communicator, NodeMemory memory);
  struct Impl;
  explicit CommunicatorMemory(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Memory for buffers that collectives inside a node use in place; huge pages where the system gives
// them. Collective; ranks may ask for different sizes. Throws CommError.
CommunicatorMemory mem_alloc(Communicator& communicator, std::size_t bytes);

// Puts such memory in the place of `pages`, whole pages that the caller has mapped and unmaps after
// the end of the result, which leaves them mapped. Their contents stay; nobody writes to them
// meanwhile. `file` becomes the memory file that lies there. Collective; ranks may give different
// sizes. Throws CommError, IoError, InvalidArgument.
CommunicatorMemory mem_replace(Communicator& communicator, std::span<std::byte> pages,
                               rendezvous::FileDescriptor& file);

// Collective over the ranks of this node: every rank contributes a zeroed segment of `bytes` (its
// own wish, may be 0), which the others read and write by themselves. Throws CommError.
NodeMemory share_node_memory(Communicator& communicator, std::size_t bytes);

}  // namespace tandem::comm
