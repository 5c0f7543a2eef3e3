#include "tandem/kernels/gemm_packed.h"

#include <algorithm>
#include <type_traits>

#include "tandem/kernels/gemm_parts.h"
#include "tandem/kernels/gemm_rows.h"
#include "tandem/kernels/packed_weight.h"
#include "tandem/kernels/simd_kernels.h"

namespace tandem::kernels {
namespace {

// How a product is cut; a function of its sizes, the kernel's blocks and the tiles chosen for the
// machine.
struct PackedPlan {
  std::size_t tile_rows, tile_columns;
  std::size_t row_tiles, column_tiles;
  std::size_t slice;  // elements of the reduction per slice, whole units
  std::size_t slices;
  bool b_packed_ahead;
};

// A weight is packed once for all tiles when it has at most this many units (32 MB).
constexpr std::size_t kPackAheadUnits = std::size_t{8} << 20;

template <class T>
PackedPlan plan_of(const PackedGemmOf<T>& kernel, const GemmTiles& tiles, std::size_t m,
                   std::size_t n, std::size_t k, bool a_is_rows) {
  PackedPlan plan;
  const std::size_t units = num_chunks(k, kernel.reduced_per_unit);
  plan.b_packed_ahead = a_is_rows && round_up(n, kernel.nr) * units <= kPackAheadUnits;
  const GemmBlocks& blocks = plan.b_packed_ahead ? kernel.blocks_b_ahead : kernel.blocks_b_staged;
  const GemmTile& tile = plan.b_packed_ahead ? tiles.b_ahead : tiles.b_staged;
  plan.tile_rows = part_of(m, tile.rows != 0 ? tile.rows : blocks.tile_rows, 2 * kernel.mr);
  plan.row_tiles = num_chunks(m, plan.tile_rows);
  const std::size_t columns = tile.columns != 0 ? tile.columns : blocks.tile_columns;
  const std::size_t few = std::max(2 * kernel.nr, num_chunks(n, kLeastParts));
  plan.tile_columns = part_of(n, plan.row_tiles == 1 ? std::min(columns, few) : columns, kernel.nr);
  plan.column_tiles = num_chunks(n, plan.tile_columns);
  plan.slice = part_of(units, blocks.slice_units, kernel.slice_granule) * kernel.reduced_per_unit;
  plan.slices = std::max<std::size_t>(1, num_chunks(k, plan.slice));
  return plan;
}

template <class T>
class Product {
 public:
  // kept: the panels of B are, or will be, those of a PackedWeight.
  Product(const PackedGemmOf<T>& kernel, const GemmTiles& tiles, const GemmOperand<T>& a,
          const GemmOperand<T>& b, std::size_t m, std::size_t n, std::size_t k, bool kept)
      : kernel_(kernel),
        a_(a),
        b_(b),
        m_(m),
        n_(n),
        k_(k),
        kept_(kept),
        plan_(plan_of(kernel, tiles, m, n, k, a.reduction_is_row)) {
    slice_units_ = plan_.slice / kernel.reduced_per_unit;
    a_units_ = a_in_panels() ? plan_.tile_rows / kernel.mr * panel_stride()
                             : plan_.tile_rows * row_stride();
    b_units_ = plan_.b_packed_ahead ? 0 : plan_.tile_columns * slice_units_;
    buffers_ = a_in_panels() || !plan_.b_packed_ahead ? 2 : 1;
    widened_units_ = kept && widens() ? slice_units_ * kernel.nr : 0;
  }

  std::size_t tiles() const { return plan_.row_tiles * plan_.column_tiles; }

  // Units of B's panels when it is packed ahead, else 0. Whatever m is.
  std::size_t ahead_units() const {
    return plan_.b_packed_ahead ? num_chunks(n_, kernel_.nr) * ahead_stride() : 0;
  }
  // to: [ahead_units()].
  void pack_ahead(const Context& ctx, GemmUnit* to) const {
    const auto pack = kept_ ? kernel_.pack_kept : kernel_.pack_b;
    ctx.threads.parallel_for(num_chunks(n_, kernel_.nr), [&](std::size_t panel, int) {
      const std::size_t column = panel * kernel_.nr;
      pack(b_, column, std::min(kernel_.nr, n_ - column), 0, k_, ahead_stride(),
           to + panel * ahead_stride());
    });
  }
  // Before compute(): what pack_ahead() made.
  void use_packed(const GemmUnit* panels) { ahead_ = panels; }

  // The sums of one tile, in memory of the thread; valid until the thread's next tile.
  struct Tile {
    std::size_t row, column, rows, columns;  // position and size in C
    const float* sums;
    std::size_t ld;
  };

  // `c`: where the result will be written. Tiles of one band of columns follow one another, so that
  // its part of B stays in the cache.
  template <class Out>
  Tile compute(const Context& ctx, std::size_t which, int thread, const Out* c) const {
    Tile tile;
    tile.row = which % plan_.row_tiles * plan_.tile_rows;
    tile.column = which / plan_.row_tiles * plan_.tile_columns;
    tile.rows = std::min(plan_.tile_rows, m_ - tile.row);
    tile.columns = std::min(plan_.tile_columns, n_ - tile.column);
    tile.ld = plan_.tile_columns;
    const std::size_t tile_units = plan_.tile_rows * plan_.tile_columns;
    const std::size_t staged_units = a_units_ + b_units_;
    const std::size_t all_staged = tile_units + buffers_ * staged_units;
    GemmUnit* memory = ctx.scratch.of_thread<GemmUnit>(thread, all_staged + widened_units_).data();
    auto* sums = reinterpret_cast<float*>(memory);
    tile.sums = sums;
    const auto slice_at = [&](std::size_t number) {
      GemmUnit* staged = memory + tile_units + number % buffers_ * staged_units;
      return slice_of(tile, number, staged);
    };
    Slice next = slice_at(0);
    for (std::size_t index = 0; index < plan_.slices; ++index) {
      const Slice slice = next;
      stage(tile, slice);
      GemmSlice<T> work{.units = num_chunks(slice.count, kernel_.reduced_per_unit),
                        .rows = tile.rows,
                        .columns = tile.columns,
                        .a = block_a(tile, slice),
                        .b = block_b(tile, slice),
                        .tile = sums,
                        .ld = tile.ld,
                        .accumulate = index > 0,
                        .widened = widened_units_ == 0 ? nullptr : memory + all_staged,
                        .b_once = plan_.row_tiles == 1 && plan_.b_packed_ahead};
      if (index + 1 < plan_.slices) {
        next = slice_at(index + 1);
        if (a_in_panels()) work.next_a = &next.a;
        if (!plan_.b_packed_ahead) work.next_b = &next.b;
        if (work.b_once) work.next_b_panels = block_b(tile, next).data;
      } else {
        work.to_write = lines_of(c + tile.row * n_ + tile.column, tile.rows, tile.columns);
      }
      kernel_.multiply(work);
    }
    return tile;
  }

 private:
  // A slice of the reduction: where its operands are brought, and what of that is still to be done.
  struct Slice {
    std::size_t begin = 0, count = 0;  // elements of the reduction
    GemmUnit* staged_a = nullptr;
    GemmUnit* staged_b = nullptr;
    GemmPacking<T> a, b;
  };

  // Rows and panels of A are a cache line more than a slice apart: strides of 4 KB or so would put
  // what a micro-kernel reads, or what packing writes, into few sets of a cache.
  std::size_t row_stride() const { return slice_units_ + 16; }
  std::size_t panel_stride() const { return slice_units_ * kernel_.mr + 16; }
  bool a_in_panels() const { return !a_.reduction_is_row; }

  // Rows of A that are units already are read where they are.
  bool read_in_place(const Tile& tile) const {
    const std::size_t reduced = kernel_.reduced_per_unit;
    return sizeof(T) * reduced == sizeof(GemmUnit) && a_.ld % reduced == 0 && k_ % reduced == 0 &&
           tile.rows % kernel_.mr == 0 &&
           reinterpret_cast<std::uintptr_t>(a_.data) % sizeof(GemmUnit) == 0;
  }

  Slice slice_of(const Tile& tile, std::size_t index, GemmUnit* staged) const {
    Slice slice;
    slice.begin = index * plan_.slice;
    slice.count = std::min(plan_.slice, k_ - std::min(k_, slice.begin));
    slice.staged_a = staged;
    slice.staged_b = staged + a_units_;
    const auto packing = [&slice](const GemmOperand<T>& from, std::size_t outer, std::size_t count,
                                  GemmUnit* to, std::size_t stride) {
      return GemmPacking<T>{from, outer, count, slice.begin, slice.count, to, stride};
    };
    slice.a = packing(a_, tile.row, tile.rows, slice.staged_a, panel_stride());
    slice.b = packing(b_, tile.column, tile.columns, slice.staged_b, b_panel_stride());
    return slice;
  }

  // Does what is left to do before the slice can be multiplied.
  void stage(const Tile& tile, const Slice& slice) const {
    if (a_in_panels()) {
      pack(kernel_.pack_a, slice.a);
    } else if (!read_in_place(tile)) {
      kernel_.stage_rows(a_, tile.row, tile.rows, slice.begin, slice.count, row_stride(),
                         slice.staged_a);
    }
    if (!plan_.b_packed_ahead) pack(kernel_.pack_b, slice.b);
  }
  template <class Pack>
  static void pack(Pack pack, const GemmPacking<T>& what) {
    if (what.count == 0) return;
    pack(what.from, what.outer, what.outer_count, what.reduced, what.count, what.panel_stride,
         what.to);
  }

  GemmBlockA block_a(const Tile& tile, const Slice& slice) const {
    if (a_in_panels()) return {.data = slice.staged_a, .panels = true, .stride = panel_stride()};
    if (!read_in_place(tile))
      return {.data = slice.staged_a, .panels = false, .stride = row_stride()};
    const T* first = a_.data + tile.row * a_.ld + slice.begin;
    return {.data = reinterpret_cast<const GemmUnit*>(first),
            .panels = false,
            .stride = a_.ld / kernel_.reduced_per_unit};
  }

  GemmBlockB block_b(const Tile& tile, const Slice& slice) const {
    if (!plan_.b_packed_ahead) return {.data = slice.staged_b, .panel_stride = b_panel_stride()};
    const std::size_t unit = slice.begin / ahead_per_unit();
    return {.data = ahead_ + tile.column / kernel_.nr * ahead_stride() + unit * kernel_.nr,
            .panel_stride = ahead_stride(),
            .kept = kept_};
  }
  template <class Out>
  GemmLines lines_of(const Out* c, std::size_t rows, std::size_t columns) const {
    constexpr std::uintptr_t kLine = 64;
    const std::uintptr_t into_line = reinterpret_cast<std::uintptr_t>(c) % kLine;
    return {.data = reinterpret_cast<const std::byte*>(c),
            .stride = n_ * sizeof(Out),
            .rows = rows,
            .lines = (into_line + columns * sizeof(Out) + kLine - 1) / kLine};
  }
  bool widens() const { return kernel_.kept_per_unit != kernel_.reduced_per_unit; }
  std::size_t ahead_per_unit() const {
    return kept_ ? kernel_.kept_per_unit : kernel_.reduced_per_unit;
  }
  std::size_t ahead_stride() const {
    return plan_.slices * plan_.slice / ahead_per_unit() * kernel_.nr;
  }
  std::size_t b_panel_stride() const { return slice_units_ * kernel_.nr; }

  const PackedGemmOf<T>& kernel_;
  const GemmOperand<T>& a_;
  const GemmOperand<T>& b_;
  std::size_t m_, n_, k_;
  bool kept_;
  PackedPlan plan_;
  std::size_t slice_units_ = 0;
  std::size_t a_units_ = 0;
  std::size_t b_units_ = 0;
  std::size_t buffers_ = 1;  // staged operands: 2 if one is packed while the other is multiplied
  std::size_t widened_units_ = 0;
  const GemmUnit* ahead_ = nullptr;
};

template <class T>
Product<T> product_of(const KernelSet& kernels, const GemmOperand<T>& a, const GemmOperand<T>& b,
                      std::size_t m, std::size_t n, std::size_t k, bool kept) {
  const GemmTiles& tiles =
      std::is_same_v<T, float> ? kernels.gemm_tiles_f32 : kernels.gemm_tiles_bf16;
  return Product<T>(*of<T>(*kernels.gemm->packed), tiles, a, b, m, n, k, kept);
}

// B in panels, where it is to be packed ahead: given, or made now.
template <class T, class Out>
void bring_b(const Context& ctx, const Gemm<T, Out>& gemm, Product<T>& product) {
  const std::size_t units = product.ahead_units();
  if (units == 0) return;
  if (gemm.b_panels != nullptr)
    return product.use_packed(reinterpret_cast<const GemmUnit*>(gemm.b_panels));
  GemmUnit* const panels = ctx.scratch.shared<GemmUnit>(units).data();
  product.pack_ahead(ctx, panels);
  product.use_packed(panels);
}

template <class T, class Out>
void multiply(const Context& ctx, const Gemm<T, Out>& gemm) {
  if (gemm.m == 0 || gemm.n == 0) return;
  const PackedGemmOf<T>& kernel = *of<T>(*ctx.kernels.gemm->packed);
  Product<T> product = product_of(ctx.kernels, gemm.a, gemm.b, gemm.m, gemm.n, gemm.k,
                                  /*kept=*/gemm.b_panels != nullptr);
  bring_b(ctx, gemm, product);
  ctx.threads.parallel_for(product.tiles(), [&](std::size_t index, int thread) {
    const auto tile = product.compute(ctx, index, thread, gemm.c);
    Out* c = gemm.c + tile.row * gemm.n + tile.column;
    const float* bias = gemm.bias == nullptr ? nullptr : gemm.bias + tile.column;
    if constexpr (std::is_same_v<Out, float>) {
      kernel.store_f32(tile.rows, tile.columns, tile.sums, tile.ld, bias, gemm.accumulate, c,
                       gemm.n);
    } else {
      kernel.store_bf16(tile.rows, tile.columns, tile.sums, tile.ld, bias, gemm.accumulate, c,
                        gemm.n);
    }
  });
}

template <class T>
Buffer pack_panels(const Context& ctx, std::size_t n, std::size_t k, const T* weight) {
  if (ctx.kernels.gemm->packed == nullptr || n == 0) return {};
  if constexpr (std::is_same_v<T, bfloat16>) {
    if (ctx.kernels.gemm->packed->rows != nullptr) return rows_gemm_panels(ctx, n, k, weight);
  }
  const GemmOperand<T> a{.data = nullptr, .ld = k, .reduction_is_row = true};
  const GemmOperand<T> b{.data = weight, .ld = k, .reduction_is_row = true};
  const Product<T> product = product_of(ctx.kernels, a, b, 1, n, k, /*kept=*/true);
  Buffer panels(product.ahead_units() * sizeof(GemmUnit));
  if (panels.size() > 0) product.pack_ahead(ctx, panels.as<GemmUnit>().data());
  return panels;
}

}  // namespace

void packed_gemm(const Context& ctx, const Gemm<float, float>& gemm) { multiply(ctx, gemm); }
void packed_gemm(const Context& ctx, const Gemm<bfloat16, bfloat16>& gemm) { multiply(ctx, gemm); }
void packed_gemm(const Context& ctx, const Gemm<bfloat16, float>& gemm) { multiply(ctx, gemm); }

template <class T>
PackedWeight<T>::PackedWeight(const Context& ctx, std::size_t N, std::size_t K, const T* weight)
    : out_features_(N), in_features_(K), weight_(weight), panels_(pack_panels(ctx, N, K, weight)) {}

template class PackedWeight<float>;
template class PackedWeight<bfloat16>;

}  // namespace tandem::kernels
