// Memory of a communicator that all ranks of one node have mapped.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "tandem/comm/communicator.h"
#include "tandem/comm/node/node_memory.h"

namespace tandem::comm {

// Memory that all ranks of the node have mapped, from mem_alloc(). Movable; the destructor frees
// this rank's mapping. It must not be destroyed while an operation uses it, and must not outlive
// its communicator. Collectives on buffers in it need the mappings of all ranks of the node: on a
// rank that has freed its mapping they may throw InvalidArgument.
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

// Memory for buffers that collectives inside a node use in place; huge pages if the system provides
// them. Collective; ranks may request different sizes. Throws CommError.
CommunicatorMemory mem_alloc(Communicator& communicator, std::size_t bytes);

// Replaces `pages`, whole pages that the caller has mapped, by such memory. The caller unmaps them
// after the result is destroyed, which leaves them mapped. Their contents stay; no thread may write
// to them meanwhile. `file` becomes the memory file mapped there. Collective; ranks may pass
// different sizes. Throws CommError, IoError, InvalidArgument.
CommunicatorMemory mem_replace(Communicator& communicator, std::span<std::byte> pages,
                               net::FileDescriptor& file);

// Collective over the ranks of this node: every rank contributes a zeroed segment of `bytes` (may
// differ and may be 0), which the others read and write directly. Throws CommError.
NodeMemory share_node_memory(Communicator& communicator, std::size_t bytes);

}  // namespace tandem::comm
