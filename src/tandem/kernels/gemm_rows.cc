#include "tandem/kernels/gemm_rows.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/kernels/column_sums.h"
#include "tandem/kernels/gemm_parts.h"
#include "tandem/kernels/large_results.h"

namespace tandem::kernels {
namespace {

const RowsGemm& kernel_of(const Context& ctx) { return *ctx.kernels.gemm->packed->rows; }

// The panels that hold B while it is multiplied.
class Panels {
 public:
  Panels(const RowsGemm& kernel, std::size_t reduced)
      : kernel_(kernel), stride_(round_up((reduced + 1) / 2, kernel.unit_granule) * kernel.nr) {
    TANDEM_CHECK(kernel.nr <= kMostWidth, "panels of {} columns", kernel.nr);
  }

  std::size_t units(std::size_t columns) const { return num_chunks(columns, kernel_.nr) * stride_; }
  // The most columns that are packed at a time: 32 MB of them, at least one panel.
  std::size_t most_columns() const {
    constexpr std::size_t kMostUnits = std::size_t{8} << 20;
    return std::max<std::size_t>(1, kMostUnits / std::max<std::size_t>(1, stride_)) * kernel_.nr;
  }
  // Packs columns [first, first + count) of B. sums: those of B over the reduction, or null.
  void pack(const Context& ctx, const GemmOperand<bfloat16>& b, std::size_t reduced,
            std::size_t first, std::size_t count, GemmUnit* to, float* sums = nullptr,
            bool accumulate = false) const {
    ctx.threads.parallel_for(num_chunks(count, kernel_.nr), [&](std::size_t panel, int) {
      const std::size_t column = first + panel * kernel_.nr;
      const std::size_t width = std::min(kernel_.nr, first + count - column);
      kernel_.pack_b(b, column, width, 0, reduced, stride_, to + panel * stride_);
      if (sums == nullptr) return;
      // While these columns are in the L2 cache.
      float memory[2 * kMostWidth];
      ColumnSums<bfloat16> all(*ctx.kernels.reduce, b.data + column, b.ld, width, memory);
      all.add(reduced);
      all.finish(sums + column, accumulate);
    });
  }
  GemmBlockB at(const GemmUnit* panels, std::size_t column) const {
    return {.data = panels + column / kernel_.nr * stride_, .panel_stride = stride_};
  }

 private:
  static constexpr std::size_t kMostWidth = 64;  // columns of a panel

  const RowsGemm& kernel_;
  std::size_t stride_;  // units between panels
};

// How C is cut into chunks.
struct RowsPlan {
  std::size_t rows, columns;  // of a chunk
  std::size_t row_chunks, column_chunks;
};

// Rows of A whose reduction is contiguous stay in the L2 cache (1.2 MB at most), and pay for the
// way of each panel of B from the L3 cache.
GemmTile tile_of_contiguous(const RowsGemm& kernel, std::size_t m, std::size_t n, std::size_t k) {
  constexpr std::size_t kMostRows = 384, kManyRows = 192, kMostColumns = 1536;
  constexpr std::size_t kElements = std::size_t{288} << 10;
  const std::size_t reduced = std::max<std::size_t>(1, k);
  const std::size_t rows = std::min(std::clamp(kElements / reduced, kManyRows, kMostRows),
                                    2 * kElements / reduced / kernel.mr * kernel.mr);
  GemmTile tile{std::max(kernel.mr, rows), kMostColumns};
  const std::size_t few = std::max(2 * kernel.nr, num_chunks(n, kLeastParts));
  if (m <= tile.rows) tile.columns = std::min(tile.columns, few);
  return tile;
}

// Where A is stored across the reduction, the sums of a chunk stay in the L2 cache (1.2 MB) while
// the reduction passes: as many chunks for each thread, and no more than needed.
GemmTile tile_of_strided(std::size_t threads, std::size_t m, std::size_t n) {
  constexpr std::size_t kMostRows = 384, kMostColumns = 768;
  const std::size_t column_chunks = num_chunks(n, kMostColumns);
  const std::size_t chunks = round_up(num_chunks(m, kMostRows) * column_chunks, threads);
  return {num_chunks(m, num_chunks(chunks, column_chunks)), kMostColumns};
}

RowsPlan plan_of(const Context& ctx, std::size_t m, std::size_t n, std::size_t k, bool a_is_rows) {
  const RowsGemm& kernel = kernel_of(ctx);
  const GemmTiles& tuned = ctx.kernels.gemm_tiles_bf16;
  const auto threads = static_cast<std::size_t>(ctx.threads.num_threads());
  GemmTile tile = a_is_rows ? tile_of_contiguous(kernel, m, n, k) : tile_of_strided(threads, m, n);
  const GemmTile& chosen = a_is_rows ? tuned.b_ahead : tuned.b_staged;
  if (chosen.rows != 0) tile = chosen;
  RowsPlan plan;
  plan.rows = part_of(m, tile.rows, kernel.mr);
  plan.row_chunks = num_chunks(m, plan.rows);
  plan.columns = part_of(n, tile.columns, kernel.nr);
  plan.column_chunks = num_chunks(n, plan.columns);
  return plan;
}

template <class Out>
bool streams(const Gemm<bfloat16, Out>& gemm, std::size_t nr) {
  return !gemm.accumulate && gemm.n % nr == 0 && passes_caches(gemm.m, gemm.n, gemm.c);
}

template <class Out>
void run(const RowsGemm& kernel, const GemmRows& work, Out* c, std::size_t ld) {
  if constexpr (std::is_same_v<Out, float>) {
    kernel.rows_f32(work, c, ld);
  } else {
    kernel.rows_bf16(work, c, ld);
  }
}

// The same, and the sums of the rows of A, slab by slab: each is read from memory once. memory:
// [2 work.rows].
template <class Out>
void run_with_sums(const Context& ctx, GemmRows work, float* memory, float* a_sums, Out* c,
                   std::size_t ld) {
  ColumnSums<bfloat16> sums(*ctx.kernels.reduce, work.a.data + work.first_row, work.a.ld, work.rows,
                            memory);
  work.observer = {
      .slab = [](void* self,
                 std::size_t count) { static_cast<ColumnSums<bfloat16>*>(self)->add(count); },
      .self = &sums};
  run(kernel_of(ctx), work, c, ld);
  sums.finish(a_sums + work.first_row, work.accumulate);
}

// C at the columns of one band of B, which is packed.
template <class Out>
void multiply_band(const Context& ctx, const Gemm<bfloat16, Out>& gemm, bool transposed,
                   const Panels& panels, const GemmUnit* packed, std::size_t first,
                   std::size_t count) {
  const RowsGemm& kernel = kernel_of(ctx);
  const RowsPlan plan = plan_of(ctx, gemm.m, count, gemm.k, gemm.a.reduction_is_row);
  const bool stream = !transposed && streams(gemm, kernel.nr);
  const std::size_t ld = transposed ? gemm.m : gemm.n;
  const auto chunk = [&](std::size_t index, int thread) {
    const std::size_t row = index / plan.column_chunks * plan.rows;
    const std::size_t column = index % plan.column_chunks * plan.columns;
    GemmRows work{.rows = std::min(plan.rows, gemm.m - row),
                  .columns = std::min(plan.columns, count - column),
                  .reduced = gemm.k,
                  .a = gemm.a,
                  .first_row = row,
                  .b = panels.at(packed, column),
                  .bias = gemm.bias == nullptr ? nullptr : gemm.bias + first + column,
                  .accumulate = gemm.accumulate,
                  .transposed = transposed,
                  .stream = stream};
    const std::size_t units =
        kernel.scratch(work.rows, work.columns, work.reduced, gemm.a.reduction_is_row);
    work.scratch = ctx.scratch.of_thread<GemmUnit>(thread, units + 2 * work.rows).data();
    const std::size_t at = first + column;
    Out* const c = gemm.c + (transposed ? at * ld + row : row * ld + at);
    const bool sums = gemm.a_sums != nullptr && !transposed && at == 0;
    if (!sums) return run(kernel, work, c, ld);
    auto* const memory = reinterpret_cast<float*>(work.scratch + units);
    run_with_sums(ctx, work, memory, gemm.a_sums, c, ld);
  };
  ctx.threads.parallel_for(plan.row_chunks * plan.column_chunks, chunk);
}

// transposed: gemm.c is [n, m], and gemm.a_sums is of B.
template <class Out>
void multiply(const Context& ctx, const Gemm<bfloat16, Out>& gemm, bool transposed) {
  const Panels panels(kernel_of(ctx), gemm.k);
  if (gemm.b_panels != nullptr) {
    const auto* packed = reinterpret_cast<const GemmUnit*>(gemm.b_panels);
    return multiply_band(ctx, gemm, transposed, panels, packed, 0, gemm.n);
  }
  const std::size_t band = panels.most_columns();
  GemmUnit* const memory =
      ctx.scratch.shared<GemmUnit>(panels.units(std::min(band, gemm.n))).data();
  for (std::size_t first = 0; first < gemm.n; first += band) {
    const std::size_t count = std::min(band, gemm.n - first);
    panels.pack(ctx, gemm.b, gemm.k, first, count, memory, transposed ? gemm.a_sums : nullptr,
                gemm.accumulate);
    multiply_band(ctx, gemm, transposed, panels, memory, first, count);
  }
}

}  // namespace

void rows_gemm(const Context& ctx, const Gemm<bfloat16, bfloat16>& gemm) {
  if (gemm.m == 0 || gemm.n == 0) return;
  multiply(ctx, gemm, /*transposed=*/false);
}

void rows_gemm(const Context& ctx, const Gemm<bfloat16, float>& gemm) {
  if (gemm.m == 0 || gemm.n == 0) return;
  const bool of_weight = !gemm.a.reduction_is_row && !gemm.b.reduction_is_row;
  if (!of_weight || gemm.m >= gemm.n || gemm.bias != nullptr) return multiply(ctx, gemm, false);
  // The gradient of a weight with fewer rows than columns, as its transpose: B, which is packed
  // before all else, is then the smaller operand, and the larger one is packed once.
  Gemm<bfloat16, float> exchanged = gemm;
  std::swap(exchanged.m, exchanged.n);
  std::swap(exchanged.a, exchanged.b);
  multiply(ctx, exchanged, /*transposed=*/true);
}

Buffer rows_gemm_panels(const Context& ctx, std::size_t n, std::size_t k, const bfloat16* weight) {
  const Panels panels(kernel_of(ctx), k);
  if (n > panels.most_columns()) return {};
  Buffer packed(panels.units(n) * sizeof(GemmUnit));
  panels.pack(ctx, {.data = weight, .ld = k, .reduction_is_row = true}, k, 0, n,
              packed.as<GemmUnit>().data());
  return packed;
}

}  // namespace tandem::kernels
