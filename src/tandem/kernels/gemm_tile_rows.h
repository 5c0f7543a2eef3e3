// Internal: whole rows of C on AMX tiles (gemm_rows.h), written once as gemm_tiles.h is. A block of
// C is summed over the whole reduction. While the next block is multiplied, its sums become
// elements of C: they never leave the L1 and L2 caches, and vectors work beside the tiles.
//
// A is packed a slab of the reduction at a time, in the order in which it is loaded, and stays in
// the L2 cache while the panels of B pass. A slice of a panel stays in the L1 cache while all rows
// of A pass.
#pragma once

#include <cstddef>

#include "tandem/kernels/gemm_rows.h"
#include "tandem/kernels/gemm_tiles.h"

namespace tandem::kernels::simd {

// Most steps of a slice of the reduction: a panel of 24 KB leaves the L1 cache room for the sums.
inline constexpr std::size_t kSliceSteps = 12;
// Where A is stored across the reduction, a slab of it is one slice. Otherwise it is all steps.
inline constexpr std::size_t kSlabSteps = kSliceSteps;
inline constexpr std::size_t kBlockSums = kTileBlock * kTileBlock;
inline constexpr std::size_t kPanelStep = kTileUnits * kTileBlock;  // units of a panel per step

[[gnu::always_inline]] constexpr std::size_t parts_of(std::size_t count, std::size_t most) {
  return count == 0 ? 1 : (count + most - 1) / most;
}

// How whole rows of C are computed, and the parts of the scratch memory.
struct TileRowsPlan {
  std::size_t steps, slabs;
  std::size_t groups;        // of 32 rows
  std::size_t panels;        // of 32 columns
  std::size_t panel_stride;  // units between the groups of A in a slab
  std::size_t blocks_of_sums;

  [[gnu::always_inline]] static TileRowsPlan of(std::size_t rows, std::size_t columns,
                                                std::size_t reduced, bool a_is_rows) {
    TileRowsPlan plan;
    plan.steps = tile_steps((reduced + 1) / 2);
    plan.slabs = a_is_rows ? 1 : parts_of(plan.steps, kSlabSteps);
    plan.groups = parts_of(rows, kTileBlock);
    plan.panels = parts_of(columns, kTileBlock);
    // A cache line more, so that the groups do not share the sets of a cache.
    plan.panel_stride = parts_of(plan.steps, plan.slabs) * kStepUnits + kTileUnits;
    if (plan.slabs > 1) {
      plan.blocks_of_sums = plan.groups * plan.panels;
    } else {
      // Two for each block that is open at a time: one is stored while the other is summed.
      plan.blocks_of_sums = plan.steps <= kSliceSteps ? 2 : 2 * plan.groups;
    }
    return plan;
  }
  [[gnu::always_inline]] std::size_t first_of_slab(std::size_t slab) const {
    return slab * steps / slabs;
  }
  // Which block of sums belongs to a group and a panel.
  [[gnu::always_inline]] std::size_t block(std::size_t group, std::size_t panel) const {
    if (slabs > 1) return panel * groups + group;
    if (blocks_of_sums == 2) return (panel * groups + group) % 2;
    return panel % 2 * groups + group;
  }
  [[gnu::always_inline]] std::size_t scratch() const {
    return blocks_of_sums * kBlockSums + groups * panel_stride;
  }
};

// c[j, i] = (c +) tile[i, j].
template <class Unit>
void store_tile_transposed(std::size_t rows, std::size_t columns, const float* tile,
                           std::size_t ld_tile, bool accumulate, float* c, std::size_t ld) {
  using V = typename Unit::V;
  alignas(64) float rows_of_tile[kTileSize];
  alignas(64) GemmUnit block[kTileSize];
  for (std::size_t i = 0; i < rows; i += kTileRows) {
    const std::size_t height = rows - i < kTileRows ? rows - i : kTileRows;
    for (std::size_t j = 0; j < columns; j += kTileRows) {
      const std::size_t width = columns - j < kTileRows ? columns - j : kTileRows;
      for (std::size_t r = 0; r < kTileRows; ++r)
        V::store(V::load(tile + (i + r) * ld_tile + j), rows_of_tile + r * kTileRows);
      V::transpose_16(reinterpret_cast<const GemmUnit*>(rows_of_tile), block, kTileRows);
      store_tile<Unit, float>(width, height, reinterpret_cast<const float*>(block), kTileRows,
                              nullptr, accumulate, c + j * ld + i, ld);
    }
  }
}

// The sums of one block on their way to C: c = (c +) sums + bias, some rows a step.
template <class Unit, class Out>
class StoredTileBlock {
 public:
  using V = typename Unit::V;

  [[gnu::always_inline]] StoredTileBlock(const GemmRows& work, std::size_t ld)
      : ld_(ld), accumulate_(work.accumulate), stream_(work.stream), transposed_(work.transposed) {}
  StoredTileBlock(const StoredTileBlock&) = delete;
  StoredTileBlock& operator=(const StoredTileBlock&) = delete;

  [[gnu::always_inline]] void begin(const float* sums, std::size_t rows, std::size_t columns,
                                    const float* bias, Out* c) {
    sums_ = sums;
    rows_ = rows;
    columns_ = columns;
    bias_ = bias;
    c_ = c;
  }

  [[gnu::always_inline]] void step() {
    constexpr std::size_t kRows = 4;
    if (rows_ < kRows || columns_ != kTileBlock || transposed_) return;
    store_rows<kRows>();
  }

  // All that is left.
  void finish() {
    if (rows_ == 0) return;
    if constexpr (std::is_same_v<Out, float>) {
      if (transposed_) {
        store_tile_transposed<Unit>(rows_, columns_, sums_, kTileBlock, accumulate_, c_, ld_);
        rows_ = 0;
        return;
      }
    }
    store_tile<Unit, Out>(rows_, columns_, sums_, kTileBlock, bias_, accumulate_, c_, ld_);
    rows_ = 0;
  }

 private:
  template <int kRows>
  [[gnu::always_inline]] void store_rows() {
    const V first = bias_ == nullptr ? V::zero() : V::load(bias_);
    const V second = bias_ == nullptr ? V::zero() : V::load(bias_ + V::kLanes);
    unroll<kRows>([&](auto i) __attribute__((always_inline)) {
      const float* from = sums_ + i * kTileBlock;
      Out* to = c_ + i * ld_;
      V a = V::load(from);
      V b = V::load(from + V::kLanes);
      if (bias_ != nullptr) {
        a = a + first;
        b = b + second;
      }
      if (accumulate_) {
        a = V::load(to) + a;
        b = V::load(to + V::kLanes) + b;
      }
      if (stream_) {
        V::stream_two(a, b, to);
      } else {
        V::store(a, to);
        V::store(b, to + V::kLanes);
      }
    });
    sums_ += kRows * kTileBlock;
    c_ += kRows * ld_;
    rows_ -= kRows;
  }

  const std::size_t ld_;
  const bool accumulate_, stream_, transposed_;
  const float* sums_ = nullptr;
  const float* bias_ = nullptr;
  Out* c_ = nullptr;
  std::size_t rows_ = 0, columns_ = 0;
};

// Brings lines that follow one another into a cache, kLines of them a step. kWrite, kLocality: the
// arguments of __builtin_prefetch; locality 3 is the L1 cache, 2 the L2 cache.
template <int kLines, int kWrite, int kLocality>
class LinesAhead {
 public:
  [[gnu::always_inline]] void begin(const void* from, std::size_t bytes) {
    next_ = static_cast<const std::byte*>(from);
    lines_ = bytes / kLine;
  }
  [[gnu::always_inline]] void step() {
    if (lines_ < kLines) return;
    unroll<kLines>([&](auto i) __attribute__((always_inline)) {
      __builtin_prefetch(next_ + i * kLine, kWrite, kLocality);
    });
    next_ += kLines * kLine;
    lines_ -= kLines;
  }

 private:
  static constexpr std::size_t kLine = 64;
  const std::byte* next_ = nullptr;
  std::size_t lines_ = 0;
};

// Brings the next slab of A, stored across the reduction, into the L2 cache: its rows are too far
// apart for the hardware to foresee.
class TileSlabAhead {
 public:
  [[gnu::always_inline]] void begin(const GemmRows& work, std::size_t reduced, std::size_t count) {
    row_ = work.a.data + reduced * work.a.ld + work.first_row;
    ld_ = work.a.ld;
    rows_ = count;
    width_ = work.rows;
    column_ = 0;
  }
  [[gnu::always_inline]] void step() {
    constexpr std::size_t kLine = 64 / sizeof(bfloat16);
    if (rows_ == 0) return;
    __builtin_prefetch(row_ + column_, 0, 2);
    __builtin_prefetch(row_ + column_ + kLine, 0, 2);
    column_ += 2 * kLine;
    if (column_ < width_) return;
    column_ = 0;
    row_ += ld_;
    --rows_;
  }

 private:
  const bfloat16* row_ = nullptr;
  std::size_t ld_ = 0, rows_ = 0, width_ = 0, column_ = 0;
};

// Brings a block of C into the L2 cache before sums are added to it.
template <class Out>
class TargetAhead {
 public:
  [[gnu::always_inline]] void begin(const Out* c, std::size_t ld, std::size_t rows) {
    row_ = c;
    ld_ = ld;
    rows_ = rows;
  }
  [[gnu::always_inline]] void step() {
    constexpr std::size_t kRows = 4;
    if (rows_ < kRows) return;
    unroll<kRows>([&](auto i) __attribute__((always_inline)) {
      __builtin_prefetch(row_ + i * ld_, 1, 2);
      __builtin_prefetch(row_ + i * ld_ + kTileBlock / 2, 1, 2);
    });
    row_ += kRows * ld_;
    rows_ -= kRows;
  }

 private:
  const Out* row_ = nullptr;
  std::size_t ld_ = 0, rows_ = 0;
};

template <class Unit, class Out>
struct BesideTiles {
  StoredTileBlock<Unit, Out> stored;
  LinesAhead<6, 0, 2> panel;  // the next slice of a panel
  TileSlabAhead slab;
  LinesAhead<8, 1, 3> sums;  // those of the next block
  TargetAhead<Out> target;
  [[gnu::always_inline]] void step() {
    stored.step();
    panel.step();
    slab.step();
    sums.step();
    target.step();
  }
};

template <class Unit, class Out>
class TileRowsProduct {
 public:
  TileRowsProduct(const GemmRows& work, Out* c, std::size_t ld)
      : work_(work),
        plan_(TileRowsPlan::of(work.rows, work.columns, work.reduced, work.a.reduction_is_row)),
        c_(c),
        ld_(ld),
        sums_(reinterpret_cast<float*>(work.scratch)),
        a_(work.scratch + plan_.blocks_of_sums * kBlockSums),
        beside_{{work, ld}, {}, {}, {}, {}} {}

  void run() {
    for (std::size_t slab = 0; slab < plan_.slabs; ++slab) multiply_slab(slab);
    blocks_.finish();
    beside_.stored.finish();
    if (work_.stream) Unit::V::finish_streams();
  }

 private:
  void multiply_slab(std::size_t slab) {
    const std::size_t first = plan_.first_of_slab(slab);
    const std::size_t steps = plan_.first_of_slab(slab + 1) - first;
    const std::size_t reduced = first * kStepReduced;
    const std::size_t count = count_of(reduced, steps);
    if (work_.observer.slab != nullptr) work_.observer.slab(work_.observer.self, count);
    pack_tiles_of_a<Unit>(work_.a, work_.first_row, work_.rows, reduced, count, plan_.panel_stride,
                          a_);
    const bool last = slab + 1 == plan_.slabs;
    if (!last) {
      const std::size_t next = plan_.first_of_slab(slab + 1);
      beside_.slab.begin(work_, next * kStepReduced,
                         count_of(next * kStepReduced, plan_.first_of_slab(slab + 2) - next));
    }
    const std::size_t slices = parts_of(steps, kSliceSteps);
    for (std::size_t panel = 0; panel < plan_.panels; ++panel) {
      for (std::size_t slice = 0; slice < slices; ++slice) {
        const std::size_t begin = slice * steps / slices;
        multiply_slice(panel, first, begin, (slice + 1) * steps / slices - begin,
                       last && slice + 1 == slices);
      }
    }
  }

  // Elements of the reduction in `steps` from `reduced` on.
  std::size_t count_of(std::size_t reduced, std::size_t steps) const {
    const std::size_t left = work_.reduced - (reduced < work_.reduced ? reduced : work_.reduced);
    return left < steps * kStepReduced ? left : steps * kStepReduced;
  }

  // All rows with steps [begin, begin + steps) of a slab and one panel. last: they complete it.
  void multiply_slice(std::size_t panel, std::size_t slab, std::size_t begin, std::size_t steps,
                      bool last) {
    const GemmUnit* const b =
        work_.b.data + panel * work_.b.panel_stride + (slab + begin) * kPanelStep;
    const bool same_panel = plan_.slabs == 1;
    beside_.panel.begin(b + (same_panel ? steps * kPanelStep : work_.b.panel_stride),
                        steps * kPanelStep * sizeof(GemmUnit));
    for (std::size_t group = 0; group < plan_.groups; ++group) {
      float* const sums = sums_ + plan_.block(group, panel) * kBlockSums;
      if (plan_.blocks_of_sums > 2)
        beside_.sums.begin(sums + kBlockSums, kBlockSums * sizeof(float));
      const TileRows a = TileRows::of_panel(a_ + group * plan_.panel_stride + begin * kStepUnits);
      const bool accumulate = slab + begin > 0;
      if (last && work_.accumulate) fetch_target(group, panel);
      if (work_.rows - group * kTileBlock > kTileRows) {
        blocks_.template multiply<2>(steps, a, b, sums, kTileBlock, accumulate, beside_);
      } else {
        blocks_.template multiply<1>(steps, a, b, sums, kTileBlock, accumulate, beside_);
      }
      if (!last) continue;
      beside_.stored.finish();
      begin_storing(group * kTileBlock, panel * kTileBlock, sums);
    }
  }

  // The elements that the sums of a block are added to once it is multiplied.
  void fetch_target(std::size_t group, std::size_t panel) {
    if (work_.transposed || work_.columns < (panel + 1) * kTileBlock) return;
    const std::size_t row = group * kTileBlock;
    beside_.target.begin(c_ + row * ld_ + panel * kTileBlock, ld_,
                         work_.rows - row < kTileBlock ? work_.rows - row : kTileBlock);
  }

  void begin_storing(std::size_t row, std::size_t column, const float* sums) {
    const std::size_t rows = work_.rows - row < kTileBlock ? work_.rows - row : kTileBlock;
    const std::size_t columns =
        work_.columns - column < kTileBlock ? work_.columns - column : kTileBlock;
    Out* const c = c_ + (work_.transposed ? column * ld_ + row : row * ld_ + column);
    beside_.stored.begin(sums, rows, columns, work_.bias == nullptr ? nullptr : work_.bias + column,
                         c);
  }

  using Tiles = typename Unit::Instruction;

  Tiles tiles_{TileConfig::full()};
  TileBlocks<Tiles> blocks_{tiles_};
  const GemmRows& work_;
  const TileRowsPlan plan_;
  Out* const c_;
  const std::size_t ld_;
  float* const sums_;
  GemmUnit* const a_;
  BesideTiles<Unit, Out> beside_;
};

template <class Unit, class Out>
void multiply_tile_rows(const GemmRows& work, Out* c, std::size_t ld) {
  TileRowsProduct<Unit, Out>(work, c, ld).run();
}

template <class Unit>
std::size_t tile_rows_scratch(std::size_t rows, std::size_t columns, std::size_t reduced,
                              bool a_is_rows) {
  return TileRowsPlan::of(rows, columns, reduced, a_is_rows).scratch();
}

template <class Unit>
constexpr RowsGemm tiled_gemm_of() {
  return {.mr = kTileBlock,
          .nr = kTileBlock,
          .unit_granule = kTileUnits,
          .pack_b = pack_tiles_of_b<Unit>,
          .rows_f32 = multiply_tile_rows<Unit, float>,
          .rows_bf16 = multiply_tile_rows<Unit, bfloat16>,
          .scratch = tile_rows_scratch<Unit>};
}

}  // namespace tandem::kernels::simd
