// Internal: relative positions in the attention of one head (disentangled_attention.h), written
// once over the class Attention of attention_simd.h.
//
// Before the blocks of queries pass, the keys of the text are multiplied by the queries of the
// positions; each block of queries is multiplied by the keys of the positions. Rows of these
// products are gathered into rows of scores. Backward adds the rows of dS to rows of the same form,
// from which products make all gradients:
//   C[i, r] = sum of dS[i, j] over the j of distance r      P[j, r] = sum of dS[i, j] over such i
//   dQ += scale C kp    dkp = scale C^T Q                   dK += scale P qp    dqp = scale P^T K
// Blocks of rows see a range of the positions each: only these columns are computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tandem/kernels/attention_window.h"
#include "tandem/kernels/gemm_units.h"
#include "tandem/kernels/kernel_tables.h"

namespace tandem::kernels::simd {

template <class Products, class Attention>
struct AttentionPositions {
  using A = Attention;
  using T = typename Products::Input::T;
  using Inner = typename Products::Unit;
  using V = typename Inner::V;
  using Head = AttentionHead<T>;
  using Window = AttentionWindow<Products>;
  using Keys = typename Window::Keys;
  static constexpr std::size_t kBlock = Products::kBlock;
  static constexpr std::size_t kNr = Products::kNr;

  // The scratch memory of a head, for the positions [first, first + count).
  struct Scratch {
    std::size_t first = 0, count = 0, width = 0;  // width: padded
    std::ptrdiff_t near = 0;                      // up to here each distance has a position
    // B: reduced over the columns of a head; over the positions, for backward.
    GemmUnit *keys_along = nullptr, *queries_along = nullptr;
    GemmUnit *keys_across = nullptr, *queries_across = nullptr;
    float* of_queries = nullptr;     // [kBlock, width of the block] of a block of queries
    float* of_keys = nullptr;        // blocks of [kBlock, width of the block], of all keys
    std::int32_t* at_key = nullptr;  // [keys] of_keys[at_key[j] + r] is that of key j, position r
    float* query_sums = nullptr;     // as of_queries: C; from here on for backward
    float* key_sums = nullptr;       // as of_keys: P
    float* grad_scores = nullptr;    // [kBlock, width of scores] dS, not rounded
    float *grad_keys = nullptr, *grad_queries = nullptr;  // from multiply_transposed()
    float* out = nullptr;                                 // [kBlock, columns]

    Scratch() = default;
    Scratch(const Head& h, std::size_t columns, std::size_t scores_size, float* memory) {
      const HeadPositions<T>& p = *h.positions;
      const auto row_at = [&](std::ptrdiff_t distance) {
        return static_cast<std::size_t>(p.row_of[distance]);
      };
      first = row_at(1 - static_cast<std::ptrdiff_t>(h.rows));
      count = row_at(static_cast<std::ptrdiff_t>(h.keys) - 1) + 1 - first;
      width = A::padded(count);
      const auto longest = static_cast<std::ptrdiff_t>(h.rows > h.keys ? h.rows : h.keys) - 1;
      const auto is_own = [&](std::ptrdiff_t distance) {
        return p.row_of[distance] == p.row_of[0] + distance;
      };
      while (near < longest && is_own(near + 1) && is_own(-near - 1)) ++near;
      const std::size_t matrix = width * columns;
      const std::size_t rows = A::round_up(h.keys, kBlock);
      const auto take = [&memory](std::size_t size) {
        float* piece = memory;
        memory += size;
        return piece;
      };
      const auto take_units = [&take](std::size_t size) {
        return reinterpret_cast<GemmUnit*>(take(size));
      };
      keys_along = take_units(matrix);
      queries_along = take_units(matrix);
      keys_across = take_units(matrix);
      queries_across = take_units(matrix);
      of_queries = take(kBlock * width);
      of_keys = take(rows * width);
      at_key = reinterpret_cast<std::int32_t*>(take(rows));
      query_sums = take(kBlock * width);
      key_sums = take(rows * width);
      grad_scores = take(scores_size);
      grad_keys = take(matrix);
      grad_queries = take(matrix);
      out = take(kBlock * columns);
    }
    static std::size_t size(std::size_t num_keys, std::size_t columns, std::size_t positions,
                            std::size_t scores_size) {
      const std::size_t width = A::padded(positions), rows = A::round_up(num_keys, kBlock);
      return 6 * width * columns + 2 * (kBlock + rows) * width + rows + scores_size +
             kBlock * columns;
    }
  };

  // The positions, counted from s.first, between the distances of a block's rows and keys.
  static Keys range(const Head& h, const Scratch& s, std::ptrdiff_t lowest,
                    std::ptrdiff_t highest) {
    const std::int32_t* row_of = h.positions->row_of;
    const std::size_t begin = (static_cast<std::size_t>(row_of[lowest]) - s.first) / kNr * kNr;
    const std::size_t end = static_cast<std::size_t>(row_of[highest]) - s.first + 1;
    return {begin, end, A::padded(end - begin)};
  }
  static Keys range_of_queries(const Head& h, const Scratch& s, std::size_t first,
                               std::size_t rows) {
    return range(h, s, 1 - static_cast<std::ptrdiff_t>(first + rows),
                 static_cast<std::ptrdiff_t>(h.keys - 1) - static_cast<std::ptrdiff_t>(first));
  }
  static Keys range_of_keys(const Head& h, const Scratch& s, std::size_t first, std::size_t rows) {
    return range(h, s, static_cast<std::ptrdiff_t>(first) - static_cast<std::ptrdiff_t>(h.rows - 1),
                 static_cast<std::ptrdiff_t>(first + rows - 1));
  }

  // Calls visit(first key, keys, range of positions, begin in of_keys) for the blocks of keys.
  template <class Visit>
  static void for_each_key_block(const Head& h, const Scratch& s, Visit visit) {
    std::size_t at = 0;
    for (std::size_t first = 0; first < h.keys; first += kBlock) {
      const std::size_t rows = Window::at_most(h.keys - first, kBlock);
      const Keys positions = range_of_keys(h, s, first, rows);
      visit(first, rows, positions, at);
      at += kBlock * positions.width;
    }
  }

  // Packs the positions, and multiplies all keys by their queries. all.queries: room for a block.
  template <class AllScratch>
  static void begin(Products& products, const Head& h, const AllScratch& all) {
    const Scratch& s = all.positions;
    const HeadPositions<T>& p = *h.positions;
    const T* const keys = p.keys + s.first * p.ld;
    const T* const queries = p.queries + s.first * p.ld;
    A::pack_transpose(s.count, h.head_dim, keys, p.ld, s.keys_along);
    A::pack_transpose(s.count, h.head_dim, queries, p.ld, s.queries_along);
    for_each_key_block(
        h, s, [&](std::size_t first, std::size_t rows, const Keys& positions, std::size_t at) {
          A::stage(rows, h.head_dim, h.k + first * h.ld_qkv, h.ld_qkv, all.queries);
          A::multiply_along(products, all, positions, rows, all.queries, s.queries_along,
                            s.of_keys + at);
          for (std::size_t i = 0; i < rows; ++i) {
            s.at_key[first + i] = static_cast<std::int32_t>(at + i * positions.width) -
                                  static_cast<std::int32_t>(positions.begin);
          }
        });
  }

  // Adds the products with positions to the scores of a block. all.queries: its queries, staged.
  template <class AllScratch>
  static void add_to_scores(Products& products, const Head& h, const AllScratch& all,
                            const Keys& keys, std::size_t first, std::size_t rows) {
    const Scratch& s = all.positions;
    const Keys positions = range_of_queries(h, s, first, rows);
    A::multiply_along(products, all, positions, rows, all.queries, s.keys_along, s.of_queries);
    const Block block{first, rows, keys.width, positions.width, positions.begin};
    for_each_tile(
        h, s, block,
        [&](std::size_t row, std::size_t key) { add_near_tile(h, s, block, row, key, all.scores); },
        [&](std::size_t row, std::size_t key) {
          const std::size_t r = position_of(h, s, first + row, key);
          all.scores[row * keys.width + key] +=
              s.of_queries[block.at(row, r)] + *(s.of_keys + s.at_key[key] + r);
        });
  }

  // Backward, before the blocks of queries.
  template <class AllScratch>
  static void begin_backward(const Head& h, const AllScratch& all) {
    const Scratch& s = all.positions;
    const HeadPositions<T>& p = *h.positions;
    A::pack_rows(s.count, h.head_dim, p.keys + s.first * p.ld, p.ld, s.keys_across);
    A::pack_rows(s.count, h.head_dim, p.queries + s.first * p.ld, p.ld, s.queries_across);
    std::size_t size = 0;
    for_each_key_block(h, s, [&](std::size_t, std::size_t, const Keys& positions, std::size_t at) {
      size = at + kBlock * positions.width;
    });
    std::memset(s.key_sums, 0, size * sizeof(float));
    std::memset(s.grad_keys, 0, s.width * all.columns * sizeof(float));
    std::memset(s.grad_queries, 0, s.width * all.columns * sizeof(float));
  }

  // A block of queries: sums of dS, and with them the gradient of the positions' keys. Adds to
  // all.out, which has dS K. all.queries_across: the block's queries.
  template <class AllScratch>
  static void backward_block(Products& products, const Head& h, const AllScratch& all,
                             const Keys& keys, std::size_t first, std::size_t rows) {
    const Scratch& s = all.positions;
    const Keys positions = range_of_queries(h, s, first, rows);
    std::memset(s.query_sums, 0, rows * positions.width * sizeof(float));
    const Block block{first, rows, keys.width, positions.width, positions.begin};
    for_each_tile(
        h, s, block,
        [&](std::size_t row, std::size_t key) { sum_near_tile(h, s, block, row, key); },
        [&](std::size_t row, std::size_t key) {
          const std::size_t r = position_of(h, s, first + row, key);
          const float grad_score = s.grad_scores[row * keys.width + key];
          s.query_sums[block.at(row, r)] += grad_score;
          *(s.key_sums + s.at_key[key] + r) += grad_score;
        });
    round_rows(rows, positions.width, s.query_sums);
    multiply_across(products, h, all, positions, rows, s.query_sums, s.keys_across);
    add_rows(rows * all.columns, s.out, all.out);
    products.multiply_transposed(A::extent(positions), A::columns_of(h), A::depth(rows),
                                 A::transpose_rows(all, positions.width, rows, s.query_sums),
                                 all.queries_across, s.grad_keys, s.width, positions.begin,
                                 /*accumulate=*/true);
  }

  // All keys, after the blocks of queries: visit(first key, keys, their share of dK, not scaled),
  // [keys, all.columns]; and the gradient of the positions' queries. all.queries_across is
  // overwritten.
  template <class AllScratch, class Visit>
  static void backward_keys(Products& products, const Head& h, const AllScratch& all, Visit visit) {
    const Scratch& s = all.positions;
    for_each_key_block(
        h, s, [&](std::size_t first, std::size_t rows, const Keys& positions, std::size_t at) {
          float* const sums = s.key_sums + at;
          round_rows(rows, positions.width, sums);
          Products::pack_block(rows, h.head_dim,
                               A::operand(h.k + first * h.ld_qkv, h.ld_qkv, false),
                               all.queries_across);
          products.multiply_transposed(A::extent(positions), A::columns_of(h), A::depth(rows),
                                       A::transpose_rows(all, positions.width, rows, sums),
                                       all.queries_across, s.grad_queries, s.width, positions.begin,
                                       /*accumulate=*/true);
          multiply_across(products, h, all, positions, rows, sums, s.queries_across);
          visit(first, rows, s.out);
        });
  }

  // Adds the gradients of the positions, [count, head_dim], to those of all sequences.
  template <class AllScratch>
  static void store_gradients(const AttentionHeadBackward<T>& b, const AllScratch& all) {
    add_gradient(b.head, all, all.positions.grad_keys, b.grad_position_keys);
    add_gradient(b.head, all, all.positions.grad_queries, b.grad_position_queries);
  }

 private:
  static constexpr std::size_t kTile = 8;

  // A block of queries: its rows of scores, and its rows of products or sums, which begin with the
  // position `begin`.
  struct Block {
    std::size_t first, rows, scores_width, width, begin;

    std::size_t at(std::size_t row, std::size_t position) const {
      return row * width + position - begin;
    }
  };

  // The position of a pair, counted from s.first.
  static std::size_t position_of(const Head& h, const Scratch& s, std::size_t row,
                                 std::size_t key) {
    return static_cast<std::size_t>(h.positions->row_of[distance(row, key)]) - s.first;
  }
  static std::ptrdiff_t distance(std::size_t row, std::size_t key) {
    return static_cast<std::ptrdiff_t>(key) - static_cast<std::ptrdiff_t>(row);
  }

  // Calls near(row, key) for the whole tiles, from their first row and key, whose distances have a
  // position each, and far(row, key) for all other pairs. Rows count within the block. For a row
  // the keys ascend, for a key the rows.
  template <class Near, class Far>
  static void for_each_tile(const Head& h, const Scratch& s, const Block& block, Near near,
                            Far far) {
    for (std::size_t row = 0; row < block.rows; row += kTile) {
      const std::size_t rows = Window::at_most(block.rows - row, kTile);
      for (std::size_t key = 0; key < h.keys; key += kTile) {
        const std::size_t keys = Window::at_most(h.keys - key, kTile);
        const std::size_t in_text = block.first + row;
        if (rows == kTile && keys == kTile && distance(in_text + kTile - 1, key) >= -s.near &&
            distance(in_text, key + kTile - 1) <= s.near) {
          near(row, key);
          continue;
        }
        for (std::size_t i = 0; i < rows; ++i)
          for (std::size_t j = 0; j < keys; ++j) far(row + i, key + j);
      }
    }
  }

  // 8 rows of 8 values, turned.
  struct Turned {
    std::uint32_t bits[kTile * kTile];

    explicit Turned(typename V::Eight (&rows)[kTile]) { V::store_transposed(rows, bits, kTile); }
    float at(std::size_t row, std::size_t column) const {
      float value;
      std::memcpy(&value, bits + row * kTile + column, sizeof(value));
      return value;
    }
  };

  // In a tile, position r + a + b is that of row 7 - b and key a.
  static void add_near_tile(const Head& h, const Scratch& s, const Block& block, std::size_t row,
                            std::size_t key, float* scores) {
    const std::size_t r = position_of(h, s, block.first + row + kTile - 1, key);
    typename V::Eight of_keys[kTile];
    for (std::size_t a = 0; a < kTile; ++a)
      of_keys[a] = V::load_8(s.of_keys + s.at_key[key + a] + r + a);
    const Turned of_rows(of_keys);
    for (std::size_t b = 0; b < kTile; ++b) {
      const std::size_t i = row + kTile - 1 - b;
      const float* const of_query = s.of_queries + block.at(i, r + b);
      float* const to = scores + i * block.scores_width + key;
      float sums[kTile];
      for (std::size_t a = 0; a < kTile; ++a) sums[a] = to[a] + (of_query[a] + of_rows.at(b, a));
      for (std::size_t a = 0; a < kTile; ++a) to[a] = sums[a];
    }
  }

  static void sum_near_tile(const Head& h, const Scratch& s, const Block& block, std::size_t row,
                            std::size_t key) {
    const std::size_t r = position_of(h, s, block.first + row + kTile - 1, key);
    typename V::Eight of_rows[kTile];
    for (std::size_t b = 0; b < kTile; ++b) {
      const std::size_t i = row + kTile - 1 - b;
      const float* const from = s.grad_scores + i * block.scores_width + key;
      of_rows[b] = V::load_8(from);
      add_eight(s.query_sums + block.at(i, r + b), [&](std::size_t a) { return from[a]; });
    }
    const Turned of_keys(of_rows);
    for (std::size_t a = 0; a < kTile; ++a) {
      add_eight(s.key_sums + s.at_key[key + a] + r + a,
                [&](std::size_t b) { return of_keys.at(a, b); });
    }
  }
  template <class Value>
  static void add_eight(float* to, Value value) {
    float sums[kTile];
    for (std::size_t i = 0; i < kTile; ++i) sums[i] = to[i] + value(i);
    for (std::size_t i = 0; i < kTile; ++i) to[i] = sums[i];
  }

  template <class AllScratch>
  static void multiply_across(Products& products, const Head& h, const AllScratch& all,
                              const Keys& positions, std::size_t rows, const float* sums,
                              const GemmUnit* across) {
    const Scratch& s = all.positions;
    products.multiply(A::whole_groups(rows), A::columns_of(h),
                      A::depth(positions.end - positions.begin), A::as_units(sums), positions.width,
                      across + A::units(positions.begin) * kNr, A::depth(s.count), s.out);
  }

  // Rows of sums as operands, in place.
  static void round_rows(std::size_t rows, std::size_t width, float* sums) {
    for (std::size_t i = 0; i < rows; ++i) {
      const float* from = sums + i * width;
      auto* to = A::in_place(sums + i * width);
      for_each_vector<Twice<V>>(
          width, [&](auto at) __attribute__((always_inline)) {
            Inner::store_operand(at, at.load(from), to);
          });
    }
  }

  static void add_rows(std::size_t count, const float* from, float* to) {
    for_each_vector<V>(
        count, [&](auto at)
                   __attribute__((always_inline)) { at.store(at.load(to) + at.load(from), to); });
  }

  template <class AllScratch>
  static void add_gradient(const Head& h, const AllScratch& all, const float* gradient, float* to) {
    const Scratch& s = all.positions;
    const V scale = V::set1(h.scale);
    for (std::size_t first = 0; first < s.count; first += kBlock) {
      const std::size_t rows = Window::at_most(s.count - first, kBlock);
      const float* from =
          Products::gradient_rows(s.width, all.columns, first, rows, gradient, s.out);
      for (std::size_t i = 0; i < rows; ++i) {
        const float* row = from + i * all.columns;
        float* sum = to + (s.first + first + i) * h.head_dim;
        for_each_vector<V>(
            h.head_dim, [&](auto at) __attribute__((always_inline)) {
              at.store(V::fma(at.load(row), scale, at.load(sum)), sum);
            });
      }
    }
  }
};

}  // namespace tandem::kernels::simd
