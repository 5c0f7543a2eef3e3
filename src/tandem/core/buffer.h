// Aligned memory for tensors, and an arena that hands out pieces of it.
#pragma once

#include <cstddef>
#include <new>
#include <span>
#include <utility>

namespace tandem {

// Every tensor starts at a multiple of this: one cache line, one AVX-512 register.
inline constexpr std::size_t kTensorAlignment = 64;

constexpr std::size_t align_up(std::size_t value, std::size_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

// Zeroed anonymous memory, 2 MiB-aligned with huge pages requested when large; a page belongs to
// the NUMA node of the thread that first writes to it. Movable, not copyable. Throws IoError when
// the system has no memory.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  template <class T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(data_), size_ / sizeof(T)};
  }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(mapped_, other.mapped_);
  }
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t mapped_ = 0;
};

// Hands out aligned pieces of one Buffer, in order; reset() frees all of them at once. It can be
// run "dry" first, to learn how much a sequence of allocations needs: Arena measure; plan(measure);
// Arena arena(measure.used()); plan(arena). Not thread-safe.
class Arena {
 public:
  Arena() = default;  // measuring: allocate() returns null spans of the right size
  explicit Arena(std::size_t bytes) : buffer_(bytes) {}

  template <class T>
  std::span<T> allocate(std::size_t count) {
    return {reinterpret_cast<T*>(allocate_bytes(count * sizeof(T))), count};
  }
  std::size_t used() const { return used_; }
  std::size_t capacity() const { return buffer_.size(); }
  bool measuring() const { return buffer_.data() == nullptr; }
  void reset() { used_ = 0; }
  // Frees everything allocated since `used()` was `mark`.
  void rewind(std::size_t mark) { used_ = mark; }

 private:
  std::byte* allocate_bytes(std::size_t bytes);  // TANDEM_CHECKs the capacity
  Buffer buffer_;
  std::size_t used_ = 0;
};

}  // namespace tandem
