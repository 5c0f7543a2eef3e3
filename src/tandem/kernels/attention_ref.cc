// The reference attention of one (sequence, head of keys): one query row after the other, in f64.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

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

// The query and the key of the distance between two rows.
template <class T>
struct Position {
  Position(const AttentionHead<T>& h, std::size_t row_of_query, std::size_t key_row)
      : row(static_cast<std::size_t>(h.positions->row_of[distance(row_of_query, key_row)])),
        query(h.positions->queries + row * h.positions->ld),
        key(h.positions->keys + row * h.positions->ld) {}
  std::size_t row;
  const T *query, *key;
};

template <class T>
double position_score(const AttentionHead<T>& h, std::size_t row, std::size_t key) {
  const Position<T> at(h, row, key);
  const T* const query = h.q + (row - h.first_row) * h.ld_q;
  return (dot(h.head_dim, query, at.key) + dot(h.head_dim, h.k + key * h.ld_qkv, at.query)) *
         static_cast<double>(h.scale);
}

template <class T>
double score(const AttentionHead<T>& h, std::size_t row, std::size_t key) {
  const double product = dot(h.head_dim, h.q + (row - h.first_row) * h.ld_q, h.k + key * h.ld_qkv) *
                         static_cast<double>(h.scale);
  if (h.positions != nullptr) return product + position_score(h, row, key);
  return h.bias == nullptr ? product : product + static_cast<double>(h.bias[distance(row, key)]);
}

template <class T>
double factor(const AttentionHead<T>& h, std::size_t row, std::size_t key) {
  return dropout_factor(*h.masks, static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(key));
}

struct Range {
  std::size_t begin, end;
};

// Those of `count` that are at most `before` before `at` and at most `after` behind it.
Range around(std::size_t at, std::size_t before, std::size_t after, std::size_t count) {
  const std::size_t begin = at - std::min(at, before);
  const std::size_t end = count - std::min(count, at) > after ? at + after + 1 : count;
  return {begin, std::max(begin, end)};
}

template <class T>
Range keys_of_row(const AttentionHead<T>& h, std::size_t row) {
  return around(row, h.window.before, h.window.after, h.keys);
}
template <class T>
Range rows_of_key(const AttentionHead<T>& h, std::size_t key) {
  return around(key, h.window.after, h.window.before, h.rows);
}

// One of the query heads alone.
template <class T>
AttentionHead<T> query_head(const AttentionHead<T>& group, std::size_t i) {
  AttentionHead<T> h = group;
  h.q += i * h.head_dim;
  h.masks += i;
  h.log_sum_exp += i * h.ld_log_sum_exp;
  if (h.out != nullptr) h.out += i * h.head_dim;
  return h;
}

// The results of a row without keys.
template <class T>
void forward_nothing(const AttentionHead<T>& h, std::size_t row) {
  h.log_sum_exp[row - h.first_row] = -std::numeric_limits<float>::infinity();
  std::fill_n(h.out + (row - h.first_row) * h.ld_out, h.head_dim, T{});
}

template <class T>
void forward_head(const AttentionHead<T>& h) {
  for (std::size_t row = h.first_row; row < h.rows; ++row) {
    const Range keys = keys_of_row(h, row);
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
    h.log_sum_exp[row - h.first_row] = static_cast<float>(log_sum_exp);
    double out[kMaxHeadDim] = {};
    for (std::size_t key = keys.begin; key < keys.end; ++key) {
      const double p = std::exp(score(h, row, key) - log_sum_exp) * factor(h, row, key);
      for (std::size_t d = 0; d < h.head_dim; ++d)
        out[d] += p * static_cast<double>(to_float(h.v[key * h.ld_qkv + d]));
    }
    for (std::size_t d = 0; d < h.head_dim; ++d)
      h.out[(row - h.first_row) * h.ld_out + d] = to_storage<T>(static_cast<float>(out[d]));
  }
}

template <class T>
void forward(const AttentionHead<T>& group) {
  for (std::size_t i = 0; i < group.group; ++i) forward_head(query_head(group, i));
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

// Element d of a key, or of a query, with that of its position.
template <class T>
double key_at(const AttentionHead<T>& h, std::size_t row, std::size_t key, std::size_t d) {
  const double value = static_cast<double>(to_float(h.k[key * h.ld_qkv + d]));
  if (h.positions == nullptr) return value;
  return value + static_cast<double>(to_float(Position<T>(h, row, key).key[d]));
}
template <class T>
double query_at(const AttentionHead<T>& h, std::size_t row, std::size_t key, std::size_t d) {
  const double value = static_cast<double>(to_float(h.q[row * h.ld_qkv + d]));
  if (h.positions == nullptr) return value;
  return value + static_cast<double>(to_float(Position<T>(h, row, key).query[d]));
}

// Gradients of the queries, one row at a time:  dQ = scale dS K.
template <class T>
void backward_queries(const AttentionHeadBackward<T>& b) {
  const AttentionHead<T>& h = b.head;
  for (std::size_t row = 0; row < h.rows; ++row) {
    double grad_q[kMaxHeadDim] = {};
    const Range keys = keys_of_row(h, row);
    for (std::size_t key = keys.begin; key < keys.end; ++key) {
      const double grad_score = element(b, row, key).grad_score * static_cast<double>(h.scale);
      for (std::size_t d = 0; d < h.head_dim; ++d) {
        grad_q[d] += grad_score * key_at(h, row, key, d);
      }
    }
    for (std::size_t d = 0; d < h.head_dim; ++d) {
      b.grad_q[row * h.ld_qkv + d] = to_storage<T>(static_cast<float>(grad_q[d]));
    }
  }
}

// One of the query heads alone.
template <class T>
AttentionHeadBackward<T> query_head(const AttentionHeadBackward<T>& group, std::size_t i) {
  AttentionHeadBackward<T> b = group;
  b.head = query_head(group.head, i);
  const std::size_t columns = i * b.head.head_dim;
  b.out += columns;
  b.grad_out += columns;
  b.grad_q += columns;
  return b;
}

// Adds a query head's part of the gradients of a key and its value.
template <class T>
void add_key_value(const AttentionHeadBackward<T>& b, std::size_t key, double* grad_k,
                   double* grad_v) {
  const AttentionHead<T>& h = b.head;
  const Range rows = rows_of_key(h, key);
  for (std::size_t row = rows.begin; row < rows.end; ++row) {
    const Element e = element(b, row, key);
    for (std::size_t d = 0; d < h.head_dim; ++d) {
      grad_k[d] += e.grad_score * static_cast<double>(h.scale) * query_at(h, row, key, d);
      grad_v[d] +=
          e.probability * e.factor * static_cast<double>(to_float(b.grad_out[row * h.ld_out + d]));
    }
  }
}

// Gradients of the keys and values, one key at a time:  dK = scale dS^T Q,  dV = dropout(P)^T dOut,
// summed over the query heads; zeros for pad rows.
template <class T>
void backward_keys_values(const AttentionHeadBackward<T>& b) {
  const AttentionHead<T>& h = b.head;
  for (std::size_t key = 0; key < h.rows; ++key) {
    double grad_k[kMaxHeadDim] = {};
    double grad_v[kMaxHeadDim] = {};
    for (std::size_t i = 0; key < h.keys && i < h.group; ++i)
      add_key_value(query_head(b, i), key, grad_k, grad_v);
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
    const auto distance = static_cast<std::size_t>(std::abs(at));
    const bool inside = distance <= (at < 0 ? b.head.window.before : b.head.window.after);
    const std::ptrdiff_t end = inside ? std::min(rows, keys - at) : 0;
    for (std::ptrdiff_t row = std::max<std::ptrdiff_t>(0, -at); row < end; ++row)
      sum +=
          element(b, static_cast<std::size_t>(row), static_cast<std::size_t>(row + at)).grad_score;
    b.grad_bias[at] = static_cast<float>(sum);
  }
}

// Adds the gradients of the positions: of each query its scores' share goes to the key of their
// distance, of each key to the query of it.
template <class T>
void backward_positions(const AttentionHeadBackward<T>& b) {
  const AttentionHead<T>& h = b.head;
  const std::size_t D = h.head_dim;
  std::vector<double> queries(h.positions->rows * D), keys(queries.size());
  for (std::size_t row = 0; row < h.rows; ++row) {
    for (std::size_t key = 0; key < h.keys; ++key) {
      const double grad_score = element(b, row, key).grad_score * static_cast<double>(h.scale);
      const std::size_t at = Position<T>(h, row, key).row * D;
      for (std::size_t d = 0; d < D; ++d) {
        keys[at + d] += grad_score * static_cast<double>(to_float(h.q[row * h.ld_qkv + d]));
        queries[at + d] += grad_score * static_cast<double>(to_float(h.k[key * h.ld_qkv + d]));
      }
    }
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {
    b.grad_position_queries[i] += static_cast<float>(queries[i]);
    b.grad_position_keys[i] += static_cast<float>(keys[i]);
  }
}

template <class T>
void backward(const AttentionHeadBackward<T>& b) {
  for (std::size_t i = 0; i < b.head.group; ++i) backward_queries(query_head(b, i));
  backward_keys_values(b);
  if (b.grad_bias != nullptr) backward_bias(b);
  if (b.head.positions != nullptr) backward_positions(b);
}

std::size_t scratch_size(std::size_t, std::size_t, const Window&, std::size_t) { return 1; }

constexpr AttentionOf<float> kReferenceF32 = {forward<float>, backward<float>, scratch_size};
constexpr AttentionOf<bfloat16> kReferenceBf16 = {forward<bfloat16>, backward<bfloat16>,
                                                  scratch_size};

}  // namespace

const AttentionKernels kAttentionReference = {.f32 = &kReferenceF32, .bf16 = &kReferenceBf16};

}  // namespace tandem::kernels
