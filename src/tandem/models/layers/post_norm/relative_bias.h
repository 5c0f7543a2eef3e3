// Positions as a bias of attention scores: score(query, key) += table[bucket(key − query)][head],
// one table for all layers (Raffel et al. 2020; Song et al. 2020, MPNet). Near distances have a
// bucket each, far ones share one.
//
// A pass expands the table once to the band that attention reads (kernels/attention.h). Backward
// collects the gradient of the band over all layers, and then sums it by bucket.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "tandem/kernels/attention.h"
#include "tandem/models/encoder/layer.h"

namespace tandem::models {

inline constexpr std::size_t kRelativeBuckets = 32;  // rows of the table

// The bucket of distance = key − query: 0 … 15 for keys up to the query, 16 … 31 for keys behind
// it. 8 buckets of each half hold one distance, and 8 hold ranges that grow to 128.
std::size_t relative_bucket(std::ptrdiff_t distance);

class RelativeBias final : public SharedPart {
 public:
  // max_rows: most rows of a sequence.
  RelativeBias(std::size_t heads, std::size_t max_rows) : heads_(heads), max_rows_(max_rows) {}
  // Adds the table [kRelativeBuckets, heads]. It is a bias, which does not decay: the Trainer of
  // transformers goes by the word in the name.
  void add_to(nn::ParameterLayout& layout, std::string name);

  std::size_t bytes(std::size_t rows, nn::Precision precision, bool training) const override;
  // Throws InvalidArgument for a sequence of more than max_rows rows.
  void forward(const nn::Pass& pass, std::span<std::byte> memory) const override;
  void clear_sums(const nn::Pass& pass, std::span<std::byte> memory) const override;
  void backward(const nn::Pass& pass, std::span<std::byte> memory,
                const nn::Gradients& grads) const override;

  // The result of forward(), for the attention of each layer.
  kernels::PositionBias band(const nn::Pass& pass, std::span<std::byte> memory) const;
  // The sums of its gradient over layers, which each layer's attention adds to.
  float* band_sums(const nn::Pass& pass, std::span<std::byte> memory) const;

 private:
  struct Band {
    std::size_t reach = 0;
    std::span<float> values;  // [heads, 2 reach + 1]
    std::span<float> sums;    // the same; training only
  };
  Band band_of(std::size_t longest, std::span<std::byte> memory) const;

  std::size_t heads_;
  std::size_t max_rows_;
  std::size_t table_ = 0;  // offset in the parameter arena
};

}  // namespace tandem::models
