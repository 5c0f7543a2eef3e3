// Constant arrays that may lie in a file.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace tandem::tasks {

// A constant array on the heap or in a mapped file. Copies share its memory.
template <class T>
class StoredArray {
 public:
  static_assert(std::is_trivially_copyable_v<T>);

  StoredArray() = default;
  StoredArray(std::vector<T> values) {
    auto memory = std::make_shared<const std::vector<T>>(std::move(values));
    view_ = *memory;
    memory_ = std::move(memory);
  }
  // `memory` keeps what `view` points into alive.
  StoredArray(std::span<const T> view, std::shared_ptr<const void> memory)
      : view_(view), memory_(std::move(memory)) {}

  std::span<const T> view() const { return view_; }
  std::size_t size() const { return view_.size(); }
  std::size_t size_bytes() const { return view_.size_bytes(); }
  const T& operator[](std::size_t i) const { return view_[i]; }
  const T& back() const { return view_.back(); }
  std::span<const T> subspan(std::size_t begin, std::size_t size) const {
    return view_.subspan(begin, size);
  }

 private:
  std::span<const T> view_;
  std::shared_ptr<const void> memory_;
};

}  // namespace tandem::tasks
