// Inputs of attention, and its results in both directions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tandem/kernels/attention.h"
#include "tandem/kernels/kernel_test_support.h"

namespace tandem::kernels::testing {

struct Shape {
  std::vector<std::uint32_t> lengths;
  std::uint32_t pads;
  std::size_t heads, head_dim;
  std::size_t key_heads = 0;  // 0: heads

  AttentionShape attention(const Window& window = {}) const {
    return {heads, head_dim, key_heads, window};
  }
};

inline const Shape kShapes[] = {
    {{1}, 0, 1, 32},       {{5, 1, 7}, 0, 2, 32},   {{17, 65}, 3, 2, 64},
    {{384, 33}, 5, 1, 32}, {{129, 64}, 64, 1, 128}, {{40, 9}, 2, 3, 20},
    {{70}, 1, 1, 256},     {{31}, 0, 2, 7},         {{145}, 20, 1, 33}};

enum class Bias { kNone, kByDistance };

template <class T>
struct Case {
  Case(const Shape& s, float p, Bias with = Bias::kNone)
      : shape(s),
        batch(s.lengths, s.pads),
        hidden(s.attention().out_width()),
        width(s.attention().qkv_width()),
        dropout{.p = p, .seed = 42, .step = 3, .site = dropout_site(1, kAttentionSite)},
        qkv(random_values<T>(batch.rows() * width, 1)),
        grad_out(random_values<T>(batch.rows() * hidden, 2)) {
    if (with == Bias::kNone) return;
    // A reach beyond the longest sequence: the rest of the band is not read.
    reach = *std::max_element(s.lengths.begin(), s.lengths.end()) + 2;
    band = random_values<float>(s.heads * (2 * reach + 1), 3);
  }
  bool has_bias() const { return !band.empty(); }
  PositionBias bias() const { return {.reach = reach, .values = band.data()}; }
  // The bias of a key for a query of a head.
  double bias_of(std::size_t head, std::size_t row, std::size_t key) const {
    return has_bias() ? static_cast<double>(band[head * (2 * reach + 1) + reach + key - row]) : 0.0;
  }

  Shape shape;
  Batch batch;
  std::size_t hidden, width;
  Dropout dropout;
  std::vector<T> qkv, grad_out;
  std::size_t reach = 0;
  std::vector<float> band;  // empty: no bias
  Window window;
};

template <class T>
Case<T> windowed(const Window& window, const Shape& shape, float p, Bias bias = Bias::kNone) {
  Case<T> c(shape, p, bias);
  c.window = window;
  return c;
}

template <class T>
struct Results {
  std::vector<T> out;
  std::vector<float> log_sum_exp;
  std::vector<T> grad_qkv;
  std::vector<float> grad_bias;
};

template <class T>
Results<T> run(const Context& ctx, const Case<T>& c, const Results<T>* forward = nullptr) {
  Results<T> r{
      std::vector<T>(c.batch.rows() * c.hidden), std::vector<float>(c.shape.heads * c.batch.rows()),
      std::vector<T>(c.qkv.size(), to_storage<T>(7.0f)), std::vector<float>(c.band.size())};
  const PositionBias bias = c.bias();
  const PositionBias* const added = c.has_bias() ? &bias : nullptr;
  const AttentionShape shape = c.shape.attention(c.window);
  attention_forward(ctx, c.batch.sequences(), shape, c.dropout, c.qkv.data(), r.out.data(),
                    r.log_sum_exp.data(), added);
  // Both versions differentiate the same saved values, so that only backward is compared.
  const Results<T>& saved = forward != nullptr ? *forward : r;
  attention_backward(ctx, c.batch.sequences(), shape, c.dropout, c.qkv.data(), saved.out.data(),
                     saved.log_sum_exp.data(), c.grad_out.data(), r.grad_qkv.data(), added,
                     r.grad_bias.data());
  return r;
}

}  // namespace tandem::kernels::testing
