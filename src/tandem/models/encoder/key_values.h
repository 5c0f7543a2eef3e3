// The keys and values of a text that a decoder continues: what its layers keep of the rows before.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "tandem/core/buffer.h"
#include "tandem/nn/weights.h"

namespace tandem::models {

// Made by EncoderModel::make_key_values(), for passes of its precision.
class KeyValues {
 public:
  // widths: elements of a row, by layer.
  KeyValues(std::vector<std::size_t> widths, std::size_t capacity, nn::Precision precision)
      : widths_(std::move(widths)), capacity_(capacity), precision_(precision) {
    for (const std::size_t width : widths_) {
      begin_.push_back(bytes_);
      bytes_ += align_up(width * capacity * element_bytes(), kTensorAlignment);
    }
    memory_ = Buffer(bytes_);
  }

  std::size_t capacity() const { return capacity_; }
  std::size_t rows() const { return rows_; }  // that are kept
  std::size_t bytes() const { return bytes_; }
  nn::Precision precision() const { return precision_; }
  // The first rows stay, for another continuation.
  void keep(std::size_t rows) { rows_ = rows; }
  // The rows of another text of the same model and precision; overwrites. The capacity stays, and
  // has room for them.
  void assign(const KeyValues& other) {
    rows_ = other.rows_;
    for (std::size_t layer = 0; layer < widths_.size(); ++layer)
      std::memcpy(memory_.data() + begin_[layer], other.memory_.data() + other.begin_[layer],
                  widths_[layer] * rows_ * element_bytes());
  }

  // [capacity, width] of a layer.
  template <class T>
  std::span<T> of_layer(std::size_t layer) {
    return {reinterpret_cast<T*>(memory_.data() + begin_[layer]), widths_[layer] * capacity_};
  }

 private:
  std::size_t element_bytes() const { return precision_ == nn::Precision::kFloat32 ? 4 : 2; }

  std::vector<std::size_t> widths_, begin_;
  std::size_t capacity_ = 0, rows_ = 0, bytes_ = 0;
  nn::Precision precision_;
  Buffer memory_;
};

}  // namespace tandem::models
