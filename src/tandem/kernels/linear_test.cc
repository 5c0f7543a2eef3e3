#include "tandem/kernels/linear.h"

#include <limits>

#include "emulated_cpu/vectors.h"
#include "tandem/kernels/gemm_packed.h"
#include "tandem/kernels/kernel_test_support.h"
#include "tandem/kernels/reduce.h"

namespace tandem::kernels::testing {
namespace {

struct Shape {
  std::size_t M, N, K;
};

// Rows of packed batches, odd reductions, the head's two outputs, more than one slice of the
// reduction, more than one tile. The three before the last have slices of dW that are packed while
// others are multiplied, the first of them in part, and last panels of one and two vectors. The
// last has chunks of dW beside one another.
const Shape kShapes[] = {{1, 1, 1},      {1, 32, 48},     {7, 2, 384},    {17, 48, 33},
                         {389, 128, 64}, {65, 390, 17},   {33, 100, 777}, {1025, 24, 32},
                         {3, 5, 1500},   {400, 400, 31},  {389, 2, 384},  {1021, 176, 80},
                         {700, 96, 304}, {611, 192, 384}, {33, 832, 800}};

template <class T>
struct Operands {
  explicit Operands(const Shape& s)
      : x(random_values<T>(s.M * s.K, 1)),
        weight(random_values<T>(s.N * s.K, 2)),
        grad_out(random_values<T>(s.M * s.N, 3)),
        bias(random_values<float>(s.N, 4)) {}
  std::vector<T> x, weight, grad_out;
  std::vector<float> bias;
};

template <class T>
struct Results {
  std::vector<T> y, grad_x;
  std::vector<float> grad_x_f32, grad_weight, grad_bias;
};

template <class T>
Results<T> run(const Context& ctx, const Shape& s, const Operands<T>& in, bool accumulate) {
  Results<T> r{std::vector<T>(s.M * s.N), random_values<T>(s.M * s.K, 5),
               random_values<float>(s.M * s.K, 6), random_values<float>(s.N * s.K, 7),
               random_values<float>(s.N, 8)};
  linear_forward(ctx, s.M, s.N, s.K, in.x.data(), in.weight.data(), in.bias.data(), r.y.data());
  linear_backward_input(ctx, s.M, s.N, s.K, in.grad_out.data(), in.weight.data(), r.grad_x.data(),
                        accumulate);
  linear_backward_input(ctx, s.M, s.N, s.K, in.grad_out.data(), in.weight.data(),
                        r.grad_x_f32.data(), accumulate);
  linear_backward_weight(ctx, s.M, s.N, s.K, in.grad_out.data(), in.x.data(), r.grad_weight.data(),
                         r.grad_bias.data(), accumulate);
  return r;
}

// The partial sums of k products of magnitudes below 1 stay near sqrt(k), and the roundings of k
// steps add up like a random walk.
double bound(std::size_t k) { return 4.0 * static_cast<double>(k + 1) * kFloatEpsilon; }

template <class T>
void compare_all(const Shape& s, bool accumulate) {
  const Operands<T> in(s);
  Runtime reference("reference");
  const Results<T> want = run(reference.context(), s, in, accumulate);
  for (const std::string& name : fast_implementations("gemm", kPrecisionOf<T>)) {
    Runtime fast("gemm=" + name, 2, kPrecisionOf<T>);
    if (emulated_group(name) == nullptr) {
      ASSERT_EQ(fast.context().kernels.implementation("gemm"), name);
    }
    const Results<T> got = run(fast.context(), s, in, accumulate);
    const std::string what = fmt::format("{} {}x{}x{}", name, s.M, s.N, s.K);
    const auto reduced_over = [](std::size_t k) { return [k](std::size_t) { return bound(k); }; };
    expect_near(got.y, want.y, reduced_over(s.K), what + " y");
    expect_near(got.grad_x, want.grad_x, reduced_over(s.N), what + " grad_x");
    expect_near(got.grad_x_f32, want.grad_x_f32, reduced_over(s.N), what + " grad_x f32");
    expect_near(got.grad_weight, want.grad_weight, reduced_over(s.M), what + " grad_weight");
    expect_near(got.grad_bias, want.grad_bias, reduced_over(s.M), what + " grad_bias");
    std::vector<float> sums = random_values<float>(s.N, 8);  // what run() adds to
    column_sums(fast.context(), s.M, s.N, in.grad_out.data(), sums.data(), accumulate);
    EXPECT_TRUE(same_bits(got.grad_bias, sums)) << what;
  }
}

TEST(Linear, FastVersionsAgreeWithTheReference) {
  bool accumulate = false;
  for (const Shape& s : kShapes) {
    accumulate = !accumulate;
    compare_all<float>(s, accumulate);
    compare_all<bfloat16>(s, !accumulate);
  }
}

template <class T>
void compare_transposed(const std::string& implementation) {
  Runtime runtime("gemm=" + implementation, 2, kPrecisionOf<T>);
  const Context& ctx = runtime.context();
  for (const Shape& s : kShapes) {
    const Operands<T> in(s);
    std::vector<T> turned(in.weight.size());
    for (std::size_t n = 0; n < s.N; ++n)
      for (std::size_t k = 0; k < s.K; ++k) turned[k * s.N + n] = in.weight[n * s.K + k];
    const Results<T> want = run(ctx, s, in, true);
    Results<T> got{std::vector<T>(s.M * s.N),
                   random_values<T>(s.M * s.K, 5),
                   random_values<float>(s.M * s.K, 6),
                   {},
                   {}};
    transposed_linear_forward(ctx, s.M, s.N, s.K, in.x.data(), turned.data(), in.bias.data(),
                              got.y.data());
    transposed_linear_backward_input(ctx, s.M, s.N, s.K, in.grad_out.data(), turned.data(),
                                     got.grad_x.data(), true);
    transposed_linear_backward_input(ctx, s.M, s.N, s.K, in.grad_out.data(), turned.data(),
                                     got.grad_x_f32.data(), true);
    const std::string what = fmt::format("{} {} x {} x {}", implementation, s.M, s.N, s.K);
    const auto within = [](std::size_t k) { return [k](std::size_t) { return bound(k); }; };
    expect_near(got.y, want.y, within(s.K), what + " y");
    expect_near(got.grad_x, want.grad_x, within(s.N), what + " grad_x");
    expect_near(got.grad_x_f32, want.grad_x_f32, within(s.N), what + " grad_x f32");
  }
}

TEST(Linear, TransposedWeightsGiveTheSameProducts) {
  for (const std::string& name : running_implementations("gemm"))
    compare_transposed<bfloat16>(name);
  for (const std::string& name : running_implementations("gemm", Precision::kFloat32))
    compare_transposed<float>(name);
}

TEST(Linear, ReferenceMultipliesSmallMatricesByHand) {
  Runtime runtime("reference");
  const std::vector<float> x = {1, 2, 3, 4};        // [2, 2]
  const std::vector<float> weight = {1, 0, 2, -1};  // [2, 2]
  const std::vector<float> bias = {10, 20};
  std::vector<float> y(4);
  linear_forward(runtime.context(), 2, 2, 2, x.data(), weight.data(), bias.data(), y.data());
  EXPECT_EQ(y, (std::vector<float>{11, 20, 13, 22}));
  std::vector<float> grad_x(4);
  linear_backward_input(runtime.context(), 2, 2, 2, x.data(), weight.data(), grad_x.data(), false);
  EXPECT_EQ(grad_x, (std::vector<float>{5, -2, 11, -4}));
  std::vector<float> grad_weight(4);
  std::vector<float> grad_bias = {1, 1};
  linear_backward_weight(runtime.context(), 2, 2, 2, x.data(), weight.data(), grad_weight.data(),
                         grad_bias.data(), false);
  EXPECT_EQ(grad_weight, (std::vector<float>{7, -3, 10, -4}));
  EXPECT_EQ(grad_bias, (std::vector<float>{4, 6}));
}

// Shapes for packing: outputs and reductions of no, one and several panels and slices. Few rows are
// enough.
const Shape kPackedShapes[] = {{1, 1, 1},      {1, 32, 48},    {7, 2, 384},  {17, 48, 33},
                               {65, 390, 17},  {33, 100, 777}, {3, 5, 1500}, {9, 176, 80},
                               {61, 192, 384}, {389, 96, 40}};

// Weights that are packed once, in passes of any number of rows.
template <class T>
void compare_packed(const std::string& implementation) {
  Runtime runtime("gemm=" + implementation, 2, kPrecisionOf<T>);
  const Context ctx = runtime.context();
  for (const Shape& s : kPackedShapes) {
    const Operands<T> in(s);
    const PackedWeight<T> packed(ctx, s.N, s.K, in.weight.data());
    for (const std::size_t rows : {s.M, s.M / 2 + 1}) {
      std::vector<T> want(rows * s.N), got(rows * s.N);
      linear_forward(ctx, rows, s.N, s.K, in.x.data(), in.weight.data(), in.bias.data(),
                     want.data());
      linear_forward(ctx, rows, packed, in.x.data(), in.bias.data(), got.data());
      EXPECT_TRUE(same_bits(got, want)) << implementation << " " << rows << "x" << s.N;
    }
  }
}

TEST(Linear, PackedWeightsGiveTheSameBits) {
  for (const std::string& name : fast_implementations("gemm", Precision::kFloat32))
    compare_packed<float>(name);
  for (const std::string& name : fast_implementations("gemm", Precision::kBfloat16))
    compare_packed<bfloat16>(name);
  compare_packed<float>("reference");
}

template <class T>
void compare_threads(const std::string& implementation) {
  for (const Shape& s : {Shape{389, 96, 40}, Shape{60, 400, 333}}) {
    const Operands<T> in(s);
    Runtime one("gemm=" + implementation, 1, kPrecisionOf<T>);
    const Results<T> want = run(one.context(), s, in, false);
    for (const int num_threads : {2, 3}) {
      Runtime many("gemm=" + implementation, num_threads, kPrecisionOf<T>);
      const Results<T> got = run(many.context(), s, in, false);
      EXPECT_TRUE(same_bits(got.y, want.y)) << implementation;
      EXPECT_TRUE(same_bits(got.grad_x, want.grad_x)) << implementation;
      EXPECT_TRUE(same_bits(got.grad_weight, want.grad_weight)) << implementation;
      EXPECT_TRUE(same_bits(got.grad_bias, want.grad_bias)) << implementation;
    }
  }
}

TEST(Linear, SameBitsForAnyNumberOfThreads) {
  for (const std::string& name : running_implementations("gemm", Precision::kFloat32))
    compare_threads<float>(name);
  for (const std::string& name : running_implementations("gemm", Precision::kBfloat16))
    compare_threads<bfloat16>(name);
}

template <class T>
void expect_same_bits(const std::string& implementation, const std::string& reference_run,
                      const Shape& s, const Operands<T>& in, bool accumulate) {
  Runtime fast("gemm=" + implementation);
  Runtime slow("gemm=" + reference_run);
  const Results<T> got = run(fast.context(), s, in, accumulate);
  const Results<T> want = run(slow.context(), s, in, accumulate);
  const std::string what = fmt::format("{} {}x{}x{}", implementation, s.M, s.N, s.K);
  EXPECT_TRUE(same_bits(got.y, want.y)) << what;
  EXPECT_TRUE(same_bits(got.grad_x, want.grad_x)) << what;
  EXPECT_TRUE(same_bits(got.grad_x_f32, want.grad_x_f32)) << what;
  EXPECT_TRUE(same_bits(got.grad_weight, want.grad_weight)) << what;
}

class EmulatedGemm : public ::testing::TestWithParam<const char*> {};

// Layouts, tails and the order of sums are in the emulation, so it is the whole kernel that is
// compared here; see also bf16_instructions_test.cc.
TEST_P(EmulatedGemm, ComputesTheBitsOfTheHardware) {
  const std::string name = GetParam();
  const std::string reference_run = emulation_of(name);
  if (const std::string reason = obstacle("gemm", name); !reason.empty()) GTEST_SKIP() << reason;
  bool accumulate = false;
  for (const Shape& s : kShapes) {
    accumulate = !accumulate;
    Operands<bfloat16> in(s);
    expect_same_bits(name, reference_run, s, in, accumulate);
    expect_same_bits(name, reference_run, s, Operands<float>(s), accumulate);
    // Products and sums that are denormal.
    for (bfloat16& x : in.x) x = to_bfloat16(to_float(x) * 0x1p-120f);
    for (bfloat16& x : in.grad_out) x = to_bfloat16(to_float(x) * 0x1p-125f);
    for (float& x : in.bias) x *= 0x1p-126f;
    expect_same_bits(name, reference_run, s, in, accumulate);
  }
}

INSTANTIATE_TEST_SUITE_P(, EmulatedGemm, ::testing::Values("avx2", "avx512", "avx512bf16", "amx"),
                         [](const auto& test) { return std::string(test.param); });

// Tiles and slices decide where a sum rests, never what is added to what.
TEST(Linear, SameBitsForAnyBlocks) {
  const Shape s{130, 100, 333};
  const Operands<bfloat16> in(s);
  for (const std::string& name : fast_implementations("gemm")) {
    Runtime runtime("gemm=" + name);
    const Context ctx = runtime.context();
    const PackedGemm* own = ctx.kernels.gemm->packed;
    if (own == nullptr || own->bf16 == nullptr) continue;  // oneDNN; whole rows have no slices
    const Results<bfloat16> want = run(ctx, s, in, true);
    for (const GemmBlocks& blocks :
         {GemmBlocks{.tile_rows = 1, .tile_columns = 1, .slice_units = 1},
          GemmBlocks{.tile_rows = 64, .tile_columns = 32, .slice_units = 48},
          GemmBlocks{.tile_rows = 999, .tile_columns = 999, .slice_units = 999}}) {
      PackedGemmOf<bfloat16> kernel = *own->bf16;
      kernel.blocks_b_ahead = kernel.blocks_b_staged = blocks;
      const PackedGemm packed{.f32 = own->f32, .bf16 = &kernel};
      GemmKernels gemm = *ctx.kernels.gemm;
      gemm.packed = &packed;
      KernelSet kernels = ctx.kernels;
      kernels.gemm = &gemm;
      const Results<bfloat16> got = run({ctx.threads, kernels, ctx.scratch}, s, in, true);
      EXPECT_TRUE(same_bits(got.y, want.y)) << name << blocks.tile_rows;
      EXPECT_TRUE(same_bits(got.grad_x, want.grad_x)) << name << blocks.tile_rows;
      EXPECT_TRUE(same_bits(got.grad_weight, want.grad_weight)) << name << blocks.tile_rows;
    }
  }
}

// docs/numerics.md: the order of the sums of bf16 products, element by element.
template <class Element>
void expect_order(const std::string& implementation, Element element) {
  const Shape s{37, 35, 1501};
  const Operands<bfloat16> in(s);
  Runtime runtime("gemm=" + implementation);
  std::vector<bfloat16> y(s.M * s.N);
  linear_forward<bfloat16>(runtime.context(), s.M, s.N, s.K, in.x.data(), in.weight.data(), nullptr,
                           y.data());
  const auto pairs_of = [&s](const std::vector<bfloat16>& rows, std::size_t row) {
    std::vector<std::uint32_t> pairs((s.K + 31) / 32 * 16);
    for (std::size_t k = 0; k < s.K; ++k) {
      const std::uint32_t half = rows[row * s.K + k].bits;
      pairs[k / 2] |= k % 2 == 0 ? half : half << 16;
    }
    return pairs;
  };
  for (std::size_t m = 0; m < s.M; ++m) {
    const std::vector<std::uint32_t> a = pairs_of(in.x, m);
    for (std::size_t n = 0; n < s.N; ++n) {
      ASSERT_EQ(to_float(y[m * s.N + n]), to_float(to_bfloat16(element(a, pairs_of(in.weight, n)))))
          << implementation << " element " << m << ", " << n;
    }
  }
}

TEST(Linear, PairProductsAreOneChainOfPairs) {
  expect_order("avx512bf16_emulated",
               [](const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b) {
                 float sum = 0;
                 for (std::size_t k = 0; k < a.size(); ++k)
                   sum = emulated::dot_pair(a[k], b[k], sum);
                 return sum;
               });
}

TEST(Linear, TileProductsAreAddedInStepsOf32) {
  expect_order("amx_emulated",
               [](const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b) {
                 float sum = 0;
                 for (std::size_t step = 0; step < a.size(); step += 16) {
                   float even = 0;
                   float odd = 0;
                   for (std::size_t k = step; k < step + 16; ++k) {
                     even = std::fma(emulated::low_half(a[k]), emulated::low_half(b[k]), even);
                     odd = std::fma(emulated::high_half(a[k]), emulated::high_half(b[k]), odd);
                   }
                   sum += even + odd;
                 }
                 return sum;
               });
}

// A row of a product must not depend on which other rows are in the batch: padding and packing
// would change bits otherwise.
TEST(Linear, RowsDoNotDependOnTheirNeighbours) {
  for (const std::string& name : fast_implementations("gemm")) {
    if (name.starts_with("onednn")) continue;  // chooses its blocking by the shape
    Runtime runtime("gemm=" + name);
    const Shape s{230, 96, 700};
    const Operands<bfloat16> in(s);
    std::vector<bfloat16> all(s.M * s.N);
    std::vector<bfloat16> some(101 * s.N);
    linear_forward(runtime.context(), s.M, s.N, s.K, in.x.data(), in.weight.data(), in.bias.data(),
                   all.data());
    linear_forward(runtime.context(), 101, s.N, s.K, in.x.data() + 129 * s.K, in.weight.data(),
                   in.bias.data(), some.data());
    EXPECT_TRUE(same_bits(some, {all.begin() + 129 * static_cast<std::ptrdiff_t>(s.N), all.end()}))
        << name;
  }
}

// A kernel may write a large result past the caches: 1.3 MB here, and 85 KB at a time.
TEST(Linear, LargeResultsHaveTheBitsOfSmallOnes) {
  const Shape s{2048, 320, 64};
  constexpr std::size_t kPart = 128;
  const Operands<bfloat16> in(s);
  for (const std::string& name : fast_implementations("gemm")) {
    if (name.starts_with("onednn")) continue;
    Runtime runtime("gemm=" + name);
    std::vector<bfloat16> all(s.M * s.N);
    std::vector<bfloat16> parts(s.M * s.N);
    linear_forward(runtime.context(), s.M, s.N, s.K, in.x.data(), in.weight.data(), in.bias.data(),
                   all.data());
    for (std::size_t row = 0; row < s.M; row += kPart) {
      linear_forward(runtime.context(), kPart, s.N, s.K, in.x.data() + row * s.K, in.weight.data(),
                     in.bias.data(), parts.data() + row * s.N);
    }
    EXPECT_TRUE(same_bits(all, parts)) << name;
  }
}

// Each number of rows up to three groups of a micro-kernel: the first rows of 24, the same bits.
template <class T>
void compare_few_rows() {
  const Shape s{24, 100, 333};
  const Operands<T> in(s);
  for (const std::string& name : fast_implementations("gemm", kPrecisionOf<T>)) {
    if (name.starts_with("onednn")) continue;
    Runtime runtime("gemm=" + name, 2, kPrecisionOf<T>);
    const auto y_of = [&](std::size_t rows) {
      std::vector<T> y(rows * s.N);
      linear_forward(runtime.context(), rows, s.N, s.K, in.x.data(), in.weight.data(),
                     in.bias.data(), y.data());
      return y;
    };
    const std::vector<T> all = y_of(s.M);
    for (std::size_t rows = 1; rows < s.M; ++rows) {
      const auto end = all.begin() + static_cast<std::ptrdiff_t>(rows * s.N);
      EXPECT_TRUE(same_bits(y_of(rows), {all.begin(), end})) << name << ": " << rows;
    }
  }
}

TEST(Linear, FewRowsHaveTheBitsOfMany) {
  compare_few_rows<float>();
  compare_few_rows<bfloat16>();
}

TEST(Linear, NanReachesTheOutput) {
  for (const std::string& name : running_implementations("gemm", Precision::kFloat32)) {
    Runtime runtime("gemm=" + name, 2, Precision::kFloat32);
    const Shape s{40, 40, 50};
    Operands<float> in(s);
    in.x[3 * s.K + 7] = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> y(s.M * s.N);
    linear_forward(runtime.context(), s.M, s.N, s.K, in.x.data(), in.weight.data(), in.bias.data(),
                   y.data());
    for (std::size_t j = 0; j < s.N; ++j) EXPECT_TRUE(std::isnan(y[3 * s.N + j])) << name;
    EXPECT_FALSE(std::isnan(y[4 * s.N])) << name;
  }
}

// Tiles of any size, tuned or read from a file, decide the speed only.
template <class T>
void expect_tiles_change_no_bit(const std::string& implementation) {
  Runtime runtime("gemm=" + implementation, 2, kPrecisionOf<T>);
  const Shape shape = {203, 390, 131};
  const Operands<T> in(shape);
  const Results<T> want = run(runtime.context(), shape, in, /*accumulate=*/true);
  for (const GemmTile tile :
       {GemmTile{1, 1}, {16, 48}, {48, 192}, {96, 768}, {384, 96}, {4096, 4096}}) {
    KernelSet kernels = runtime.context().kernels;
    kernels.gemm_tiles_f32 = kernels.gemm_tiles_bf16 = {.b_ahead = tile, .b_staged = tile};
    const Context context{runtime.context().threads, kernels, runtime.context().scratch};
    const Results<T> got = run(context, shape, in, /*accumulate=*/true);
    EXPECT_TRUE(same_bits(got.y, want.y) && same_bits(got.grad_x, want.grad_x) &&
                same_bits(got.grad_x_f32, want.grad_x_f32) &&
                same_bits(got.grad_weight, want.grad_weight))
        << implementation << ": tiles of " << tile.rows << " x " << tile.columns;
  }
}

TEST(Gemm, TilesChangeNoBit) {
  for (const std::string& name : running_implementations("gemm", Precision::kFloat32))
    expect_tiles_change_no_bit<float>(name);
  for (const std::string& name : running_implementations("gemm", Precision::kBfloat16))
    expect_tiles_change_no_bit<bfloat16>(name);
}

}  // namespace
}  // namespace tandem::kernels::testing
