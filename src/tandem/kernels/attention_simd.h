// Internal: attention of one (sequence, head of keys), written once over a class `Products`: what
// the products multiply (f32, or pairs of bf16, in which case P and dS are rounded to bf16 as in
// PyTorch's autocast) and how, with vectors (attention_vectors.h) or AMX tiles
// (attention_tiles.h).
//
// K and V are packed once per head into panels. Then blocks of kBlock queries pass: a block's
// scores against all keys (some 100 or 200 KB) stay in the L2 cache between the product that makes
// them and the one that consumes them. A row of scores is complete, so its softmax needs no
// rescaling. Backward recomputes the scores, and P from the saved log-sum-exp:
//   dV = (factor P)^T dO,   dS = P (factor dO V^T - delta),   dQ = scale dS K,   dK = scale dS^T Q,
//   delta = row sums of dO O.
// Dropout's factor is 0 or one value. P gets the zeros; the products O and dV get the value.
// A bias by distance is added to each row of scores before its softmax. The band's values for a row
// begin at the row's first distance; the gradient sums the rows of dS there, in their order.
// Relative positions are added to the scores of a block before its softmax
// (attention_positions.h).
// With a window, a block computes the scores of the keys that its queries reach, and the softmax of
// a row those in its window: work is proportional to the window. A causal block ends at its own
// rows.
// Query heads that share K and V pass one after the other. They share the packed K and V, and their
// gradients add up in the same memory.
// One row of each query head (a step of generation, or the first rows of sequences) takes another
// path with the same sums, unless it has relative positions: the query heads are the rows of the
// products, K is packed one panel at a time into the L1 cache, and V is read where it lies.
// Rows are padded to kMr, columns to kNr and reductions to kDepth units; padding is zero or is
// never read as part of a reduction.
//
// The interface of `Products`, serial and over raw memory; an object of it lives as long as a call
// for one head:
//   Input, Unit      the units (gemm_units.h) that read the tensors and that are multiplied
//   kBlock, kMr, kNr, kDepth
//   row_width()      the distance between rows of scores of so many keys; both are multiples of kNr
//   multiply()       C[rows, columns] = A B; A has rows [depth], B panels [columns /
//                    kNr][b_depth][kNr], of which the first `depth` units are read. Columns beyond
//                    the used ones may be written
//   multiply_panel() the same for at most kMr rows and one panel, C's rows `ldc` apart
//   multiply_values()  C[rows, columns] = P V for at most kMr rows; P has rows of units, V is a
//                    tensor with a row per key
//   pack_block()     dO or Q of a block of queries, as multiply_transposed() wants it
//   pairs_at()       where unit u of P or dS, reduced over queries, begins for kNr keys
//   multiply_transposed()   `keys` rows of a gradient of `all_keys` rows, from row `first` on, = or
//                    += the product of such pairs and such a block
//   gradient_rows()  the rows [first, first + count) of a gradient, `columns` apart: the gradient's
//                    own, or `buffer`, filled
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numbers>
#include <type_traits>

#include "tandem/kernels/attention_positions.h"
#include "tandem/kernels/attention_window.h"
#include "tandem/kernels/dropout_simd.h"
#include "tandem/kernels/gemm_simd.h"
#include "tandem/kernels/kernel_tables.h"
#include "tandem/kernels/simd/loop.h"
#include "tandem/kernels/simd/math.h"
#include "tandem/kernels/simd/sixteen_lanes.h"

namespace tandem::kernels::simd {

// Columns of a result, or keys: those that are used, and their number with the padding.
struct Extent {
  std::size_t used, padded;
};

template <class Products>
struct Attention {
  using Input = typename Products::Input;
  using Inner = typename Products::Unit;
  using V = typename Inner::V;
  using Row = SixteenLanes<V>;  // sums along a row
  using Pair = Twice<V>;
  using T = typename Input::T;
  using Element = typename Inner::T;  // element of P and dS
  static constexpr std::size_t kReduced = Inner::kReduced;
  static_assert(Input::kReduced == kReduced);
  static constexpr std::size_t kBlock = Products::kBlock;  // queries
  static constexpr std::size_t kMr = Products::kMr;
  static constexpr std::size_t kNr = Products::kNr;
  static constexpr std::size_t kDepth = Products::kDepth;
  static constexpr float kLog2E = std::numbers::log2e_v<float>;
  static_assert(kBlock % kMr == 0 && kBlock % (kReduced * kDepth) == 0);
  static_assert(kNr % (kReduced * kDepth) == 0);  // so rows of P and dS are padded enough
  static_assert(kNr % Pair::kLanes == 0);

  static constexpr std::size_t round_up(std::size_t n, std::size_t granule) {
    return (n + granule - 1) / granule * granule;
  }
  static constexpr std::size_t padded(std::size_t n) { return round_up(n, kNr); }
  static constexpr std::size_t whole_groups(std::size_t rows) { return round_up(rows, kMr); }
  static constexpr std::size_t units(std::size_t reduced) {
    return (reduced + kReduced - 1) / kReduced;
  }
  static constexpr std::size_t depth(std::size_t reduced) {
    return round_up(units(reduced), kDepth);
  }

  using Window = AttentionWindow<Products>;
  using Keys = typename Window::Keys;
  using Columns = typename Window::Columns;
  using Positions = AttentionPositions<Products, Attention>;

  // Matrices of one head in scratch memory. Rows of scores have the width of their block.
  struct Scratch {
    std::size_t keys, columns;                   // padded sizes of a head
    std::size_t head_depth;                      // depth of a reduction over the columns of a head
    GemmUnit *k_along, *v_across;                // B: reduced over columns; over keys
    GemmUnit* queries;                           // A: rows [kBlock][head_depth]
    float *scores, *out;                         // [kBlock, width], [kBlock, columns]
    GemmUnit *v_along, *k_across;                // from here on for backward
    GemmUnit* grad_out;                          // A: rows [kBlock][head_depth]
    GemmUnit *queries_across, *grad_out_across;  // panels of pack_block()
    GemmUnit* transposed;                        // [kBlock / kReduced] units, width: pairs_at()
    float* grad_scores;                          // [kBlock, width]
    float *grad_k, *grad_v;                      // from multiply_transposed(), keys times columns
    typename Positions::Scratch positions;       // of heads with positions

    Scratch(const AttentionHead<T>& h)
        : keys(padded(h.keys)), columns(padded(h.head_dim)), head_depth(depth(h.head_dim)) {
      float* memory = h.scratch;
      const std::size_t scores_size = kBlock * Window::widest(h.keys, h.window);
      const auto take = [&memory](std::size_t count) {
        float* piece = memory;
        memory += count;
        return piece;
      };
      const auto take_units = [&take](std::size_t count) {
        return reinterpret_cast<GemmUnit*>(take(count));
      };
      const std::size_t matrix = keys * columns;
      k_along = take_units(matrix);
      v_across = take_units(matrix);
      queries = take_units(kBlock * columns);
      scores = take(scores_size);
      out = take(kBlock * columns);
      v_along = take_units(matrix);
      k_across = take_units(matrix);
      grad_out = take_units(kBlock * columns);
      queries_across = take_units(kBlock * columns);
      grad_out_across = take_units(kBlock * columns);
      grad_scores = take(scores_size);
      grad_k = take(matrix);
      grad_v = take(matrix);
      const std::size_t num_positions = h.positions == nullptr ? 0 : h.positions->rows;
      transposed = take_units(transposed_size(scores_size, num_positions));
      if (h.positions != nullptr) positions = {h, columns, scores_size, memory};
    }
    static std::size_t transposed_size(std::size_t scores_size, std::size_t num_positions) {
      const std::size_t of_positions = kBlock * padded(num_positions);
      return of_positions > scores_size ? of_positions : scores_size;
    }
    static std::size_t size(std::size_t num_keys, std::size_t head_dim,
                            const tandem::kernels::Window& window, std::size_t num_positions) {
      const std::size_t scores_size = kBlock * Window::widest(num_keys, window);
      const std::size_t of_positions =
          num_positions == 0
              ? 0
              : Positions::Scratch::size(num_keys, padded(head_dim), num_positions, scores_size);
      return 6 * padded(num_keys) * padded(head_dim) + 5 * kBlock * padded(head_dim) +
             2 * scores_size + transposed_size(scores_size, num_positions) + of_positions;
    }
  };

  static GemmOperand<T> operand(const T* data, std::size_t ld, bool reduction_is_row) {
    return {.data = data, .ld = ld, .reduction_is_row = reduction_is_row};
  }

  static void clear_units(GemmUnit* units, std::size_t count) {
    std::memset(units, 0, count * sizeof(GemmUnit));
  }

  // Zeros after the units of a reduction in every panel of B.
  static void pad_panels(std::size_t columns, std::size_t reduced, GemmUnit* panels) {
    const std::size_t used = units(reduced);
    const std::size_t whole = depth(reduced);
    if (used == whole) return;
    for (std::size_t column = 0; column < columns; column += kNr)
      clear_units(panels + column * whole + used * kNr, (whole - used) * kNr);
  }

  // B of a reduction over the columns of a head: the product with the transpose of `matrix`.
  static void pack_transpose(std::size_t rows, std::size_t head_dim, const T* matrix,
                             std::size_t ld, GemmUnit* to) {
    pack_along<Input, kNr>(operand(matrix, ld, true), 0, rows, 0, head_dim, depth(head_dim) * kNr,
                           to);
    pad_panels(rows, head_dim, to);
  }
  // B of a reduction over the rows of `matrix`.
  static void pack_rows(std::size_t rows, std::size_t head_dim, const T* matrix, std::size_t ld,
                        GemmUnit* to) {
    pack_across<Input, kNr>(operand(matrix, ld, false), 0, head_dim, 0, rows, depth(rows) * kNr,
                            to);
    pad_panels(head_dim, rows, to);
  }
  // A of a reduction over the columns of a head: a block of rows.
  static void stage(std::size_t rows, std::size_t head_dim, const T* matrix, std::size_t ld,
                    GemmUnit* to) {
    const std::size_t whole = depth(head_dim);
    if (whole != units(head_dim)) clear_units(to, whole_groups(rows) * whole);
    stage_rows<Input, kMr>(operand(matrix, ld, true), 0, rows, 0, head_dim, whole, to);
  }

  static Extent extent(const Keys& keys) { return {keys.end - keys.begin, keys.width}; }
  static Extent columns_of(const AttentionHead<T>& h) { return {h.head_dim, padded(h.head_dim)}; }

  // The product of a block of rows of a head with the keys or values of the block, packed along:
  // scores, which are not scaled.
  static void multiply_along(Products& products, const Scratch& s, const Keys& keys,
                             std::size_t rows, const GemmUnit* a, const GemmUnit* along,
                             float* scores) {
    products.multiply(whole_groups(rows), extent(keys), s.head_depth, a, s.head_depth,
                      along + keys.begin * s.head_depth, s.head_depth, scores);
  }
  // s.out = P V or dS K: the product of rows of scores with values or keys, packed across.
  static void multiply_across(Products& products, const AttentionHead<T>& h, const Scratch& s,
                              const Keys& keys, std::size_t rows, const float* scores,
                              const GemmUnit* across) {
    products.multiply(whole_groups(rows), columns_of(h), depth(keys.end - keys.begin),
                      as_units(scores), keys.width, across + units(keys.begin) * kNr, depth(h.keys),
                      s.out);
  }

  // P and dS overwrite the scores: a row of them begins where the row of scores began.
  static Element* in_place(float* scores) { return reinterpret_cast<Element*>(scores); }

  static void clear(Element* row, std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) row[i] = Element{};
  }

  // Several chains, because one alone would wait for each comparison.
  static float largest_of(std::size_t count, const float* x) {
    constexpr int kChains = 4;
    V chains[kChains];
    unroll<kChains>([&](auto i) __attribute__((always_inline)) { chains[i] = V::set1(x[0]); });
    std::size_t at = 0;
    for (; at + kChains * V::kLanes <= count; at += kChains * V::kLanes) {
      unroll<kChains>([&](auto i) __attribute__((always_inline)) {
        chains[i] = V::max(chains[i], V::load(x + at + i * V::kLanes));
      });
    }
    V largest = V::max(V::max(chains[0], chains[1]), V::max(chains[2], chains[3]));
    for_each_vector<V>(
        count - at, [&](auto rest) __attribute__((always_inline)) {
          largest = V::max(largest, rest.keep_or(rest.load(x + at), largest));
        });
    return V::largest(largest);
  }

  // Whether a row of scores, or of P or dS, has room for whole pairs of vectors from `start` on.
  static bool has_room(std::size_t start) { return start % Pair::kLanes == 0; }

  // The scores are not scaled yet, so neither is the bias that is added to them.
  static void add_bias(const AttentionHead<T>& h, const float* bias, std::size_t count,
                       float* scores) {
    const V unscaled = V::set1(1.0f / h.scale);
    for_each_vector<V>(
        count, [&](auto at) __attribute__((always_inline)) {
          at.store(V::fma(at.load(bias), unscaled, at.load(scores)), scores);
        });
  }

  // Adds the bias to a row of scores, and lets no column before its window count. Gives the
  // distance of its first score.
  static std::ptrdiff_t prepare_row(const AttentionHead<T>& h, const Keys& keys, std::size_t row,
                                    const Columns& at, float* scores) {
    const auto distance =
        static_cast<std::ptrdiff_t>(keys.begin + at.start) - static_cast<std::ptrdiff_t>(row);
    if (h.bias != nullptr) add_bias(h, h.bias + distance, at.end - at.start, scores + at.start);
    if (at.start < at.begin) scores[at.start] = -std::numeric_limits<float>::infinity();
    return distance;
  }

  // Zeros around the window of a row of P or dS.
  static void clear_around(const Keys& keys, const Columns& at, Element* row) {
    clear(row, 0, at.begin);
    clear(row, at.end, keys.width);
  }

  // The lanes of a row and of a pair are 16 each, or the halves of the pair follow one another.
  static Row add(Row sum, Pair x) {
    if constexpr (std::is_same_v<Row, Pair>) {
      return sum + x;
    } else {
      return sum + x.low + x.high;
    }
  }

  // One half after the other: both at once would need more registers than AVX2 has.
  static Pair exp2(Pair y) { return {Inner::exp2(y.low), Inner::exp2(y.high)}; }

  // Turns a row of scores into exp(scale (score - largest)), with zeros for those that dropout
  // drops; gives the largest score and the sum before dropout.
  struct RowSum {
    float largest, sum;
  };
  static RowSum softmax_row(const AttentionHead<T>& h, const Keys& keys, std::size_t row,
                            float* scores) {
    const Columns at_row = Window::columns_of_row(h, keys, row);
    prepare_row(h, keys, row, at_row, scores);
    const float* from = scores + at_row.start;
    Element* to = in_place(scores) + at_row.start;
    const std::size_t count = at_row.end - at_row.start;
    // The column before the window has the least score of all.
    const float largest =
        count == 0 ? -std::numeric_limits<float>::infinity() : largest_of(count, from);
    const float scale2 = h.scale * kLog2E;
    const Pair shift = Pair::set1(-largest * scale2);
    const Pair scales = Pair::set1(scale2);
    Row total = Row::zero();
    for_each_kept_pair<V>(
        *h.masks, static_cast<std::uint32_t>(row), keys.begin + at_row.start, count,
        has_room(at_row.start), [&](auto at, const auto& kept) __attribute__((always_inline)) {
          const Pair p = at.keep(exp2(Pair::fma(at.load(from), scales, shift)));
          total = add(total, p);
          Inner::store_kept(at, kept, p, to);
        });
    clear_around(keys, at_row, in_place(scores));
    return {largest, Row::sum(total)};
  }

  // Asks for a row of a head. Rows lie a hidden size apart, which the hardware does not foresee; a
  // block's would come one after the other, each when it is needed.
  enum class Access { kRead = 0, kWrite = 1 };
  template <Access kAccess>
  static void fetch_row(std::size_t head_dim, const T* row) {
    for (std::size_t at = 0; at < head_dim; at += 64 / sizeof(T))
      __builtin_prefetch(row + at, static_cast<int>(kAccess), 2);
  }

  static void forward(const AttentionHead<T>& h) {
    if (h.positions == nullptr && h.rows - h.first_row == 1) return forward_row(h);
    Products products;
    const Scratch s(h);
    pack_transpose(h.keys, h.head_dim, h.k, h.ld_qkv, s.k_along);
    pack_rows(h.keys, h.head_dim, h.v, h.ld_qkv, s.v_across);
    if (h.positions != nullptr) Positions::begin(products, h, s);
    for (std::size_t i = 0; i < h.group; ++i) {
      const AttentionHead<T> head = query_head(h, i);
      for (std::size_t first = h.first_row; first < h.rows; first += kBlock)
        forward_block(products, head, s, first, Window::at_most(h.rows - first, kBlock));
    }
  }

  // One of the query heads alone.
  static AttentionHead<T> query_head(const AttentionHead<T>& group, std::size_t i) {
    AttentionHead<T> h = group;
    h.q += i * h.head_dim;
    h.masks += i;
    h.log_sum_exp += i * h.ld_log_sum_exp;
    if (h.out != nullptr) h.out += i * h.head_dim;
    return h;
  }
  static AttentionHeadBackward<T> query_head(const AttentionHeadBackward<T>& group, std::size_t i) {
    AttentionHeadBackward<T> b = group;
    b.head = query_head(group.head, i);
    const std::size_t columns = i * b.head.head_dim;
    b.out += columns;
    b.grad_out += columns;
    b.grad_q += columns;
    return b;
  }

  static void forward_block(Products& products, const AttentionHead<T>& h, const Scratch& s,
                            std::size_t first, std::size_t rows) {
    const Keys keys = Window::keys_of_block(h, first, rows);
    const std::size_t at = first - h.first_row;
    stage(rows, h.head_dim, h.q + at * h.ld_q, h.ld_q, s.queries);
    multiply_along(products, s, keys, rows, s.queries, s.k_along, s.scores);
    if (h.positions != nullptr) Positions::add_to_scores(products, h, s, keys, first, rows);
    RowSum sums[kBlock];
    for (std::size_t i = 0; i < rows; ++i) {
      const std::size_t row = first + i;
      if (const std::size_t next = row + kBlock; next < h.rows)
        fetch_row<Access::kRead>(h.head_dim, h.q + (next - h.first_row) * h.ld_q);
      fetch_row<Access::kWrite>(h.head_dim, h.out + (at + i) * h.ld_out);
      sums[i] = softmax_row(h, keys, row, s.scores + i * keys.width);
    }
    for (std::size_t i = 0; i < rows; ++i)
      h.log_sum_exp[at + i] = sums[i].largest * h.scale + __builtin_logf(sums[i].sum);
    multiply_across(products, h, s, keys, rows, s.scores, s.v_across);
    for (std::size_t i = 0; i < rows; ++i)
      store_row(h.head_dim, s.out + i * s.columns, factor(h, sums[i]), h.out + (at + i) * h.ld_out);
  }

  // The row of each query head.
  static void forward_row(const AttentionHead<T>& h) {
    Products products;
    const Scratch s(h);
    for (std::size_t i = 0; i < h.group; i += kMr)
      forward_row_of(products, query_head(h, i), s, Window::at_most(h.group - i, kMr));
  }

  // That of the first `heads` query heads.
  static void forward_row_of(Products& products, const AttentionHead<T>& h, const Scratch& s,
                             std::size_t heads) {
    const Keys keys = Window::keys_of_block(h, h.first_row, 1);
    stage(heads, h.head_dim, h.q, h.head_dim, s.queries);
    for (std::size_t key = keys.begin; key < keys.end; key += kNr) {
      fetch_keys(h, key + kNr, Window::at_most(keys.end, key + 2 * kNr));
      pack_transpose(Window::at_most(keys.end - key, kNr), h.head_dim, h.k + key * h.ld_qkv,
                     h.ld_qkv, s.k_along);
      products.multiply_panel(heads, s.head_depth, s.queries, s.head_depth, s.k_along,
                              s.scores + (key - keys.begin), keys.width);
    }
    RowSum sums[kMr];
    for (std::size_t i = 0; i < heads; ++i)
      sums[i] = softmax_row(query_head(h, i), keys, h.first_row, s.scores + i * keys.width);
    products.multiply_values(heads, as_units(s.scores), keys.width,
                             operand(h.v + keys.begin * h.ld_qkv, h.ld_qkv, false),
                             keys.end - keys.begin, h.head_dim, s.v_across, s.out, s.columns);
    for (std::size_t i = 0; i < heads; ++i) {
      const AttentionHead<T> head = query_head(h, i);
      *head.log_sum_exp = sums[i].largest * h.scale + __builtin_logf(sums[i].sum);
      store_row(h.head_dim, s.out + i * s.columns, factor(head, sums[i]), head.out);
    }
  }

  static void fetch_keys(const AttentionHead<T>& h, std::size_t begin, std::size_t end) {
    for (std::size_t key = begin; key < end; ++key)
      fetch_row<Access::kRead>(h.head_dim, h.k + key * h.ld_qkv);
  }

  // The factor of a row of P V: that of dropout's kept elements over the sum. The output of a row
  // without keys is zero.
  static float factor(const AttentionHead<T>& h, const RowSum& row) {
    return row.sum == 0 ? 0.0f : h.masks->scale / row.sum;
  }

  static const GemmUnit* as_units(const float* scores) {
    return reinterpret_cast<const GemmUnit*>(scores);
  }

  static void store_row(std::size_t head_dim, const float* from, float factor, T* to) {
    const V scale = V::set1(factor);
    for_each_vector<V>(
        head_dim, [&](auto at)
                      __attribute__((always_inline)) { at.store(at.load(from) * scale, to); });
  }

  static void store_sum(std::size_t head_dim, const float* a, const float* b, float factor, T* to) {
    const V scale = V::set1(factor);
    for_each_vector<V>(
        head_dim, [&](auto at) __attribute__((always_inline)) {
          at.store((at.load(a) + at.load(b)) * scale, to);
        });
  }

  static float dot_row(std::size_t head_dim, const T* a, const T* b) {
    Row sum = Row::zero();
    for_each_vector<Row>(
        head_dim, [&](auto at) __attribute__((always_inline)) {
          sum = Row::fma(at.load(a), at.load(b), sum);
        });
    return Row::sum(sum);
  }

  // Another reader of dS before it is rounded: none, the sums by distance, which it is added to, or
  // rows of their own.
  enum class Sums { kNone, kByDistance, kRows };

  // One row: scores become P with zeros for what dropout drops, grad_scores (which hold dO V^T)
  // become dS. other: for the other reader, the sums from the distance 0 or the row.
  template <Sums kSums>
  static void backward_row(const AttentionHead<T>& h, const Keys& keys, std::size_t row,
                           float delta, float* scores, float* grad_scores,
                           [[maybe_unused]] float* other) {
    const Columns at_row = Window::columns_of_row(h, keys, row);
    const std::ptrdiff_t distance = prepare_row(h, keys, row, at_row, scores);
    const std::size_t start = at_row.start;
    const float *p_from = scores + start, *grad_from = grad_scores + start;
    Element *p_to = in_place(scores) + start, *grad_to = in_place(grad_scores) + start;
    [[maybe_unused]] float* other_to = nullptr;
    if constexpr (kSums == Sums::kByDistance) other_to = other + distance;
    if constexpr (kSums == Sums::kRows) other_to = other + start;
    const Pair shift = Pair::set1(-h.log_sum_exp[row] * kLog2E);
    const Pair scales = Pair::set1(h.scale * kLog2E);
    const Pair factor = Pair::set1(h.masks->scale);
    const Pair offset = Pair::set1(-delta);
    for_each_kept_pair<V>(
        *h.masks, static_cast<std::uint32_t>(row), keys.begin + start, at_row.end - start,
        kSums != Sums::kByDistance && has_room(start),
        [&](auto at, const auto& kept) __attribute__((always_inline)) {
          const Pair p = at.keep(exp2(Pair::fma(at.load(p_from), scales, shift)));
          const Pair grad_p = at.load(grad_from).zero_unless(kept);
          Inner::store_kept(at, kept, p, p_to);
          const Pair grad_score = at.keep(p * Pair::fma(factor, grad_p, offset));
          if constexpr (kSums == Sums::kByDistance)
            at.store(at.load(other_to) + grad_score, other_to);
          if constexpr (kSums == Sums::kRows) at.store(grad_score, other_to);
          Inner::store_operand(at, grad_score, grad_to);
        });
    clear_around(keys, at_row, in_place(scores));
    clear_around(keys, at_row, in_place(grad_scores));
  }

  // The rows of P or dS as an operand of a reduction over them: f32 rows are that already.
  static const GemmUnit* transpose_rows(const Scratch& s, std::size_t width, std::size_t rows,
                                        const float* scores) {
    if constexpr (kReduced == 1) {
      return as_units(scores);
    } else {
      const auto* elements = reinterpret_cast<const Element*>(scores);
      const std::size_t ld = width * sizeof(float) / sizeof(Element);
      for (std::size_t u = 0; u < units(rows); ++u) {
        const Element* even = elements + u * kReduced * ld;
        const Element* odd = u * kReduced + 1 == rows ? nullptr : even + ld;
        for (std::size_t c = 0; c < width; c += 2 * V::kLanes) {
          GemmUnit* to = s.transposed + Products::pairs_at(width, depth(rows), u, c);
          typename V::Words pairs[2];
          V::interleave_two(even + c, odd == nullptr ? nullptr : odd + c, pairs[0], pairs[1]);
          V::store_words(pairs[0], to);
          V::store_words(pairs[1], to + V::kLanes);
        }
      }
      for (std::size_t u = units(rows); u < depth(rows); ++u) {
        for (std::size_t c = 0; c < width; c += kNr)
          clear_units(s.transposed + Products::pairs_at(width, depth(rows), u, c), kNr);
      }
      return s.transposed;
    }
  }

  static void backward(const AttentionHeadBackward<T>& b) {
    const AttentionHead<T>& h = b.head;
    Products products;
    const Scratch s(h);
    pack_transpose(h.keys, h.head_dim, h.k, h.ld_qkv, s.k_along);
    pack_transpose(h.keys, h.head_dim, h.v, h.ld_qkv, s.v_along);
    pack_rows(h.keys, h.head_dim, h.k, h.ld_qkv, s.k_across);
    if (b.grad_bias != nullptr) clear_bias(b);
    if (h.positions != nullptr) {
      Positions::begin(products, h, s);
      Positions::begin_backward(h, s);
    }
    const bool cleared = !Window::reaches_all(h.window);
    if (cleared) clear_key_gradients(s);
    for (std::size_t i = 0; i < h.group; ++i) {
      const AttentionHeadBackward<T> head = query_head(b, i);
      for (std::size_t first = 0; first < h.rows; first += kBlock) {
        backward_block(products, head, s, first, Window::at_most(h.rows - first, kBlock),
                       /*accumulate=*/cleared || i > 0 || first > 0);
      }
    }
    if (h.positions != nullptr) {
      store_position_gradients(products, b, s);
    } else {
      store_key_gradient(h, s, s.grad_k, h.scale, b.grad_k);
      clear_pad_rows(h, b.grad_k);
    }
    store_key_gradient(h, s, s.grad_v, h.masks->scale, b.grad_v);
    clear_pad_rows(h, b.grad_v);
  }

  // The gradient of the keys, with the part of the positions, and those of the positions.
  static void store_position_gradients(Products& products, const AttentionHeadBackward<T>& b,
                                       const Scratch& s) {
    const AttentionHead<T>& h = b.head;
    Positions::backward_keys(
        products, h, s, [&](std::size_t first, std::size_t count, const float* share) {
          const float* rows =
              Products::gradient_rows(s.keys, s.columns, first, count, s.grad_k, s.out);
          for (std::size_t i = 0; i < count; ++i) {
            store_sum(h.head_dim, rows + i * s.columns, share + i * s.columns, h.scale,
                      b.grad_k + (first + i) * h.ld_qkv);
          }
        });
    clear_pad_rows(h, b.grad_k);
    Positions::store_gradients(b, s);
  }

  // Blocks reach different keys: none of them is the first one for all.
  static void clear_key_gradients(const Scratch& s) {
    std::memset(s.grad_k, 0, s.keys * s.columns * sizeof(float));
    std::memset(s.grad_v, 0, s.keys * s.columns * sizeof(float));
  }

  static void clear_bias(const AttentionHeadBackward<T>& b) {
    std::memset(b.grad_bias - (b.head.rows - 1), 0,
                (b.head.rows + b.head.keys - 1) * sizeof(float));
  }

  // Fetches what the next block reads in place of `row`, and what this block writes.
  static void fetch_rows(const AttentionHeadBackward<T>& b, std::size_t row) {
    const AttentionHead<T>& h = b.head;
    if (const std::size_t next = row + kBlock; next < h.rows) {
      fetch_row<Access::kRead>(h.head_dim, h.q + next * h.ld_qkv);
      fetch_row<Access::kRead>(h.head_dim, b.grad_out + next * h.ld_out);
      fetch_row<Access::kRead>(h.head_dim, b.out + next * h.ld_out);
    }
    fetch_row<Access::kWrite>(h.head_dim, b.grad_q + row * h.ld_qkv);
  }

  static void backward_block(Products& products, const AttentionHeadBackward<T>& b,
                             const Scratch& s, std::size_t first, std::size_t rows,
                             bool accumulate) {
    const AttentionHead<T>& h = b.head;
    const Keys keys = Window::keys_of_block(h, first, rows);
    const T* grad_out = b.grad_out + first * h.ld_out;
    stage(rows, h.head_dim, h.q + first * h.ld_qkv, h.ld_qkv, s.queries);
    multiply_along(products, s, keys, rows, s.queries, s.k_along, s.scores);
    if (h.positions != nullptr) Positions::add_to_scores(products, h, s, keys, first, rows);
    stage(rows, h.head_dim, grad_out, h.ld_out, s.grad_out);
    multiply_along(products, s, keys, rows, s.grad_out, s.v_along, s.grad_scores);
    backward_rows(b, s, keys, first, rows);
    const auto add_to = [&](const float* scores, const GemmUnit* block, float* gradient) {
      products.multiply_transposed(extent(keys), columns_of(h), depth(rows),
                                   transpose_rows(s, keys.width, rows, scores), block, gradient,
                                   s.keys, keys.begin, accumulate);
    };
    Products::pack_block(rows, h.head_dim, operand(grad_out, h.ld_out, false), s.grad_out_across);
    add_to(s.scores, s.grad_out_across, s.grad_v);
    Products::pack_block(rows, h.head_dim, operand(h.q + first * h.ld_qkv, h.ld_qkv, false),
                         s.queries_across);
    add_to(s.grad_scores, s.queries_across, s.grad_k);
    multiply_across(products, h, s, keys, rows, s.grad_scores, s.k_across);
    if (h.positions != nullptr) Positions::backward_block(products, h, s, keys, first, rows);
    for (std::size_t i = 0; i < rows; ++i) {
      store_row(h.head_dim, s.out + i * s.columns, h.scale, b.grad_q + (first + i) * h.ld_qkv);
    }
  }

  // The rows of a block: P and dS.
  static void backward_rows(const AttentionHeadBackward<T>& b, const Scratch& s, const Keys& keys,
                            std::size_t first, std::size_t rows) {
    const AttentionHead<T>& h = b.head;
    float delta[kBlock];
    for (std::size_t i = 0; i < rows; ++i) {
      const std::size_t at = (first + i) * h.ld_out;
      delta[i] = dot_row(h.head_dim, b.grad_out + at, b.out + at);
    }
    for (std::size_t i = 0; i < rows; ++i) {
      fetch_rows(b, first + i);
      const std::size_t at = i * keys.width;
      float *const scores = s.scores + at, *const grad_scores = s.grad_scores + at;
      if (h.positions != nullptr) {
        backward_row<Sums::kRows>(h, keys, first + i, delta[i], scores, grad_scores,
                                  s.positions.grad_scores + at);
      } else if (b.grad_bias != nullptr) {
        backward_row<Sums::kByDistance>(h, keys, first + i, delta[i], scores, grad_scores,
                                        b.grad_bias);
      } else {
        backward_row<Sums::kNone>(h, keys, first + i, delta[i], scores, grad_scores, nullptr);
      }
    }
  }

  // The gradient of keys or values.
  static void store_key_gradient(const AttentionHead<T>& h, const Scratch& s, const float* gradient,
                                 float factor, T* to) {
    for (std::size_t first = 0; first < h.keys; first += kBlock) {
      const std::size_t count = h.keys - first < kBlock ? h.keys - first : kBlock;
      const float* rows = Products::gradient_rows(s.keys, s.columns, first, count, gradient, s.out);
      for (std::size_t i = 0; i < count; ++i)
        store_row(h.head_dim, rows + i * s.columns, factor, to + (first + i) * h.ld_qkv);
    }
  }

  static void clear_pad_rows(const AttentionHead<T>& h, T* to) {
    for (std::size_t key = h.keys; key < h.rows; ++key) {
      T* row = to + key * h.ld_qkv;
      for_each_vector<V>(
          h.head_dim, [&](auto at) __attribute__((always_inline)) { at.store(V::zero(), row); });
    }
  }
};

template <class Products>
constexpr AttentionOf<typename Products::Input::T> attention_of() {
  using A = Attention<Products>;
  return {.forward = A::forward, .backward = A::backward, .scratch_size = A::Scratch::size};
}

}  // namespace tandem::kernels::simd
