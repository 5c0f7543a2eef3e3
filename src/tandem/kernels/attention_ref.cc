// The reference attention of one (sequence, head): one query row after the other, in f64.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "tandem/kernels/attention.h"
#include "tandem/kernels/kernel_tables.h"

namespace tandem::kernels {
namespace {

template <class T>
double dot(std::size_t count, const T* a, const T* b) {
  double sum = 0;
  for (std::size_t d = 0; d < count; ++d)
    sum += static_cast<double>(to_float(a[d])) * static_cast<double>(to_float(b[d]));
  return sum;
}

std::ptrdiff_t distance(std::size_t row, std::size_t key) {
  return static_cast<std::ptrdiff_t>(key) - static_cast<std::ptrdiff_t>(row);
}

template <class T>
double score(const AttentionHead<T>& h, std::size_t row, std::size_t key) {
  const double product =
      dot(h.head_dim, h.q + row * h.ld_qkv, h.k + key * h.ld_qkv) * static_cast<double>(h.scale);
  return h.bias == nullptr ? product : product + static_cast<double>(h.bias[distance(row, key)]);
}

template <class T>
double factor(const AttentionHead<T>& h, std::size_t row, std::size_t key) {
  return dropout_factor(h.mask, static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(key));
}

// The keys of a row, or the rows of a key: those of `count` in the window around `at`.
struct Range {
  std::size_t begin, end;
};

Range around(std::size_t at, std::size_t window, std::size_t count) {
  const std::size_t begin = at - std::min(at, window);
  const std::size_t end = count - std::min(count, at) > window ? at + window + 1 : count;
  return {begin, std::max(begin, end)};
}

// The results of a row without keys.
template <class T>
void forward_nothing(const AttentionHead<T>& h, std::size_t row) {
  h.log_sum_exp[row] = -std::numeric_limits<float>::infinity();
  std::fill_n(h.out + row * h.ld_out, h.head_dim, T{});
}

template <class T>
void forward(const AttentionHead<T>& h) {
  for (std::size_t row = 0; row < h.rows; ++row) {
    const Range keys = around(row, h.window, h.keys);
    if (keys.begin == keys.end) {
      forward_nothing(h, row);
      continue;
    }
    double largest = score(h, row, keys.begin);
    for (std::size_t key = keys.begin + 1; key < keys.end; ++key)
      largest = std::max(largest, score(h, row, key));
    double sum = 0;
    for (std::size_t key = keys.begin; key < keys.end; ++key)
      sum += std::exp(score(h, row, key) - largest);
    const double log_sum_exp = largest + std::log(sum);
    h.log_sum_exp[row] = static_cast<float>(log_sum_exp);
    double out[kMaxHeadDim] = {};
    for (std::size_t key = keys.begin; key < keys.end; ++key) {
      const double p = std::exp(score(h, row, key) - log_sum_exp) * factor(h, row, key);
      for (std::size_t d = 0; d < h.head_dim; ++d)
        out[d] += p * static_cast<double>(to_float(h.v[key * h.ld_qkv + d]));
    }
    for (std::size_t d = 0; d < h.head_dim; ++d)
      h.out[row * h.ld_out + d] = to_storage<T>(static_cast<float>(out[d]));
  }
}

// P of forward, dropout factor and score gradient of one element:  dS = P (factor dOut.V -
// dOut.Out).
struct Element {
  double probability, factor, grad_score;
};

template <class T>
Element element(const AttentionHeadBackward<T>& b, std::size_t row, std::size_t key) {
  const AttentionHead<T>& h = b.head;
  const double p = std::exp(score(h, row, key) - static_cast<double>(h.log_sum_exp[row]));
  const double f = factor(h, row, key);
  const T* grad_out = b.grad_out + row * h.ld_out;
  const double grad_p = f * dot(h.head_dim, grad_out, h.v + key * h.ld_qkv);
  const double delta = dot(h.head_dim, grad_out, b.out + row * h.ld_out);
  return {p, f, p * (grad_p - delta)};
}

// Gradients of the queries, one row at a time:  dQ = scale dS K.
template <class T>
void backward_queries(const AttentionHeadBackward<T>& b) {
  const AttentionHead<T>& h = b.head;
  for (std::size_t row = 0; row < h.rows; ++row) {
    double grad_q[kMaxHeadDim] = {};
    const Range keys = around(row, h.window, h.keys);
    for (std::size_t key = keys.begin; key < keys.end; ++key) {
      const double grad_score = element(b, row, key).grad_score * static_cast<double>(h.scale);
      for (std::size_t d = 0; d < h.head_dim; ++d) {
        grad_q[d] += grad_score * static_cast<double>(to_float(h.k[key * h.ld_qkv + d]));
      }
    }
    for (std::size_t d = 0; d < h.head_dim; ++d) {
      b.grad_q[row * h.ld_qkv + d] = to_storage<T>(static_cast<float>(grad_q[d]));
    }
  }
}

// Gradients of the keys and values, one key at a time:  dK = scale dS^T Q,  dV = dropout(P)^T dOut;
// zeros for pad rows.
template <class T>
void backward_keys_values(const AttentionHeadBackward<T>& b) {
  const AttentionHead<T>& h = b.head;
  for (std::size_t key = 0; key < h.rows; ++key) {
    double grad_k[kMaxHeadDim] = {};
    double grad_v[kMaxHeadDim] = {};
    const Range rows = around(key, h.window, h.rows);
    for (std::size_t row = rows.begin; key < h.keys && row < rows.end; ++row) {
      const Element e = element(b, row, key);
      for (std::size_t d = 0; d < h.head_dim; ++d) {
        grad_k[d] += e.grad_score * static_cast<double>(h.scale) *
                     static_cast<double>(to_float(h.q[row * h.ld_qkv + d]));
        grad_v[d] += e.probability * e.factor *
                     static_cast<double>(to_float(b.grad_out[row * h.ld_out + d]));
      }
    }
    for (std::size_t d = 0; d < h.head_dim; ++d) {
      b.grad_k[key * h.ld_qkv + d] = to_storage<T>(static_cast<float>(grad_k[d]));
      b.grad_v[key * h.ld_qkv + d] = to_storage<T>(static_cast<float>(grad_v[d]));
    }
  }
}

// Gradients of the bias, one distance at a time.
template <class T>
void backward_bias(const AttentionHeadBackward<T>& b) {
  const auto rows = static_cast<std::ptrdiff_t>(b.head.rows);
  const auto keys = static_cast<std::ptrdiff_t>(b.head.keys);
  for (std::ptrdiff_t at = 1 - rows; at < keys; ++at) {
    double sum = 0;
    const bool inside = static_cast<std::size_t>(std::abs(at)) <= b.head.window;
    const std::ptrdiff_t end = inside ? std::min(rows, keys - at) : 0;
    for (std::ptrdiff_t row = std::max<std::ptrdiff_t>(0, -at); row < end; ++row)
      sum +=
          element(b, static_cast<std::size_t>(row), static_cast<std::size_t>(row + at)).grad_score;
    b.grad_bias[at] = static_cast<float>(sum);
  }
}

template <class T>
void backward(const AttentionHeadBackward<T>& b) {
  backward_queries(b);
  backward_keys_values(b);
  if (b.grad_bias != nullptr) backward_bias(b);
}

std::size_t scratch_size(std::size_t, std::size_t, std::size_t) { return 1; }

constexpr AttentionOf<float> kReferenceF32 = {forward<float>, backward<float>, scratch_size};
constexpr AttentionOf<bfloat16> kReferenceBf16 = {forward<bfloat16>, backward<bfloat16>,
                                                  scratch_size};

}  // namespace

const AttentionKernels kAttentionReference = {.f32 = &kReferenceF32, .bf16 = &kReferenceBf16};

}  // namespace tandem::kernels
