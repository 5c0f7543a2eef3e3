// Positions as vectors that all layers share (He et al. 2021, DeBERTa; its version 3): a table with
// a row for each bucket of the distance between a query and a key, through a LayerNorm. Each layer
// projects them with its own queries and keys (position_pass.h).
//
// A pass makes a matrix of the rows that its longest text needs, in the order of the distance key −
// query, as attention reads it (kernels/disentangled_attention.h). Backward collects the gradient
// of these rows over all layers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "tandem/models/encoder/layer.h"
#include "tandem/nn/layer_norm.h"

namespace tandem::models {

// The bucket of a distance from a query to a key before it; the bucket of −distance is its
// negative. Distances below buckets / 2 have one each; above, the logarithm decides up to
// `farthest`, where the last bucket begins. In f32, as transformers computes it.
std::ptrdiff_t position_bucket(std::ptrdiff_t distance, std::size_t buckets, std::size_t farthest);

struct RelativeEmbeddingsOptions {
  std::size_t hidden_size = 0;
  std::size_t max_rows = 0;  // most rows of a sequence
  std::size_t buckets = 0;   // of one direction: the table has twice as many rows
  std::size_t farthest = 0;
  double layer_norm_eps = 0;
};

class RelativeEmbeddings final : public SharedPart {
 public:
  explicit RelativeEmbeddings(const RelativeEmbeddingsOptions& options);
  // Adds the norm and the table, [2 buckets, hidden_size].
  void add_to(nn::ParameterLayout& layout, const std::string& norm, std::string table);

  // The positions of sequences of up to `rows` rows.
  std::size_t positions(std::size_t rows) const;
  // Products of one column that attention makes with positions, for a sequence of `rows` rows with
  // `keys` tokens: each query and each key has one with every position that its distances reach.
  std::size_t products(std::size_t rows, std::size_t keys) const;

  std::size_t product_rows(std::size_t rows) const override { return positions(rows); }
  std::size_t bytes(std::size_t rows, nn::Precision precision, bool training) const override;
  // Throws InvalidArgument for a sequence of more than max_rows rows.
  void forward(const nn::Pass& pass, std::span<std::byte> memory) const override;
  void clear_sums(const nn::Pass& pass, std::span<std::byte> memory) const override;
  void backward(const nn::Pass& pass, std::span<std::byte> memory,
                const nn::Gradients& grads) const override;

  // The result of forward(): P rows.
  struct Positions {
    std::span<std::int32_t> row_of;  // [2 reach + 1] rows by distance
    std::size_t rows = 0;            // P
    std::size_t first = 0;           // number of the first row among the 2 buckets + 1 of any pass
    // One sequence of P rows, of no sample.
    std::span<std::uint32_t> row_begin, key_count;
    std::span<std::uint64_t> sample;
    nn::LayerNormActivations norm;
    std::span<float> normed;      // [P, hidden_size]
    std::span<bfloat16> rounded;  // the same as operand; in bf16 only
    std::span<float> grad;        // the sum of the gradient over layers; training only

    template <class T>
    std::span<T> operand() const {
      if constexpr (std::is_same_v<T, float>) {
        return normed;
      } else {
        return rounded;
      }
    }
    // For products and norms of these rows.
    nn::Pass pass_of(const nn::Pass& texts) const;
  };
  Positions positions_of(const nn::Pass& pass, std::span<std::byte> memory) const;

 private:
  std::size_t bucket(std::size_t distance) const;
  std::size_t table_row(std::size_t numbered) const;
  template <class T>
  void norm_forward(const nn::Pass& pass, const Positions& positions) const;

  RelativeEmbeddingsOptions options_;
  std::vector<std::size_t> buckets_;  // [max_rows] by distance
  std::vector<std::size_t> sums_;     // [max_rows + 1] of the buckets before
  nn::LayerNormParameters norm_;
  std::size_t table_ = 0;  // offset in the parameter arena
};

}  // namespace tandem::models
