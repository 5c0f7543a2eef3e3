// The loads and stores of products on tiles for each dot product, counted in the emulation: the
// model of docs/design/0038-products-in-whole-rows.md.
#include <gtest/gtest.h>

#include <vector>

#include "emulated_cpu/tiles.h"
#include "emulated_cpu/vectors.h"
#include "tandem/kernels/gemm_tile_rows.h"

namespace tandem::kernels::testing {
namespace {

struct TileCounts {
  std::size_t dots = 0;
  std::size_t loads_of_a = 0, loads_of_b = 0;
  std::size_t loads_of_sums = 0, stores_of_sums = 0;
};

thread_local TileCounts counts;

// Tiles 0 to 3 are sums, 4 and 5 are A, 6 and 7 are B.
struct CountingTiles : emulated::Tiles {
  using Tiles::Tiles;
  static emulated::Rounded rounded(const simd::Twice<emulated::Vec>& x) {
    return emulated::Vdpbf16ps::rounded(x);
  }
  template <int kTile>
  void load(const void* p, std::size_t stride_bytes) {
    ++(kTile < 4 ? counts.loads_of_sums : counts.loads_of_b);
    Tiles::load<kTile>(p, stride_bytes);
  }
  template <int kTile>
  void load_once(const void* p, std::size_t stride_bytes) {
    ++counts.loads_of_a;
    Tiles::load_once<kTile>(p, stride_bytes);
  }
  template <int kTile>
  void store(void* p, std::size_t stride_bytes) {
    ++counts.stores_of_sums;
    Tiles::store<kTile>(p, stride_bytes);
  }
  template <int kSum, int kA, int kB>
  void dot() {
    ++counts.dots;
    Tiles::dot<kSum, kA, kB>();
  }
};

using CountingUnit = simd::PairUnit<emulated::Vec, CountingTiles>;

template <class Out>
TileCounts counts_of(std::size_t rows, std::size_t columns, std::size_t reduced, bool a_is_rows) {
  const std::vector<bfloat16> a(rows * reduced);
  const std::size_t panel = simd::tile_steps((reduced + 1) / 2) * simd::kPanelStep;
  const std::vector<GemmUnit> b(columns / kTileRows / 2 * panel);
  std::vector<GemmUnit> scratch(
      simd::tile_rows_scratch<CountingUnit>(rows, columns, reduced, a_is_rows));
  std::vector<Out> c(rows * columns);
  const GemmRows work{
      .rows = rows,
      .columns = columns,
      .reduced = reduced,
      .a = {.data = a.data(), .ld = a_is_rows ? reduced : rows, .reduction_is_row = a_is_rows},
      .b = {.data = b.data(), .panel_stride = panel},
      .scratch = scratch.data()};
  counts = {};
  simd::multiply_tile_rows<CountingUnit, Out>(work, c.data(), columns);
  return counts;
}

TEST(TileCounts, OneOperandIsLoadedForEachDotProduct) {
  for (const bool a_is_rows : {true, false}) {
    const TileCounts got = counts_of<float>(96, 64, 1024, a_is_rows);
    EXPECT_EQ(got.dots, 96u / 16 * 64 / 16 * 1024 / 32);
    EXPECT_EQ(got.loads_of_a, got.dots / 2);
    EXPECT_EQ(got.loads_of_b, got.dots / 2);
  }
}

TEST(TileCounts, SumsAreLoadedAndStoredOncePerSlice) {
  constexpr std::size_t kSums = 96 / 16 * 64 / 16;
  struct Case {
    std::size_t reduced, slices;
  };
  for (const auto& [reduced, slices] : {Case{384, 1}, {768, 2}, {1024, 3}, {3072, 8}}) {
    const TileCounts forward = counts_of<bfloat16>(96, 64, reduced, /*a_is_rows=*/true);
    EXPECT_EQ(forward.stores_of_sums, kSums * slices) << reduced;
    EXPECT_EQ(forward.loads_of_sums, kSums * (slices - 1)) << reduced;
    const TileCounts of_weight = counts_of<float>(96, 64, reduced, /*a_is_rows=*/false);
    EXPECT_EQ(of_weight.stores_of_sums, kSums * slices) << reduced;
    EXPECT_EQ(of_weight.loads_of_sums, kSums * (slices - 1)) << reduced;
  }
}

TEST(TileCounts, HalfABlockOfRowsCostsHalfTheDotProducts) {
  EXPECT_EQ(counts_of<bfloat16>(16, 64, 384, true).dots,
            counts_of<bfloat16>(32, 64, 384, true).dots / 2);
}

}  // namespace
}  // namespace tandem::kernels::testing
