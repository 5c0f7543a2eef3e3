// Memory that operations reuse from call to call, so that a training step allocates nothing once it
// has run for the first time.
#pragma once

#include <any>
#include <cstddef>
#include <span>
#include <vector>

#include "tandem/core/buffer.h"

namespace tandem::kernels {

// One region shared by all threads of a call and one region per thread. Their initial size exceeds
// the needs of a training step; it is address space only, and becomes memory page by page as it is
// used. A region still grows when an operation asks for more than ever before, and never shrinks;
// its contents are undefined at the start of a call. One operation at a time may use a Scratch;
// inside it, every thread touches only its own region.
class Scratch {
 public:
  // The largest packed matrix of a product (32 MiB), with room for its rounding.
  static constexpr std::size_t kSharedBytes = std::size_t{40} << 20;
  // A chunk of a product (2 MiB), or one head of attention over some thousand tokens; as much as
  // map_memory() gives huge pages.
  static constexpr std::size_t kThreadBytes = std::size_t{4} << 20;

  explicit Scratch(int num_threads);

  // `count` elements for the whole call, 64-byte aligned. Call from the thread that runs the
  // operation, not from a chunk.
  template <class T>
  std::span<T> shared(std::size_t count) {
    return grown(shared_, count * sizeof(T)).template as<T>().first(count);
  }

  // `count` elements for one thread, 64-byte aligned. Call from that thread.
  template <class T>
  std::span<T> of_thread(int thread, std::size_t count) {
    return grown(of(thread).memory, count * sizeof(T)).template as<T>().first(count);
  }

  // A place where an implementation keeps what it made for this thread (primitives of a library,
  // for example).
  std::any& state_of_thread(int thread) { return threads_[static_cast<std::size_t>(thread)].state; }

  int num_threads() const { return static_cast<int>(threads_.size()); }
  std::size_t bytes() const;  // bytes of address space

 private:
  struct alignas(kTensorAlignment) PerThread {
    Buffer memory;
    std::any state;
  };
  PerThread& of(int thread);  // TANDEM_CHECKs that there is such a thread
  static Buffer& grown(Buffer& buffer, std::size_t bytes);
  Buffer shared_;
  std::vector<PerThread> threads_;
};

}  // namespace tandem::kernels
