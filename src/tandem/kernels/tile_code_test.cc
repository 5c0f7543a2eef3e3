// The machine code of the kernels on AMX tiles, on CPUs with AVX512_BF16 but without AMX: there a
// tile instruction raises SIGILL, and the handler decodes it and does what the manual states. So
// operands, strides and the order of instructions that the compiler has made are compared with the
// emulated kernels bit for bit. Where AMX exists, linear_test.cc and attention_test.cc do that.
#include "tandem/kernels/kernel_test_support.h"

#if defined(__x86_64__) && defined(__linux__)

#include <ucontext.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>

#include "tandem/kernels/attention.h"
#include "tandem/kernels/int8.h"
#include "tandem/kernels/linear.h"
#include "tandem/kernels/simd_kernels.h"

namespace tandem::kernels::testing {
namespace {

// Intel, "64 and IA-32 Architectures Software Developer's Manual", volume 2: LDTILECFG,
// TILERELEASE, TILEZERO, TILELOADD, TILELOADDT1, TILESTORED, TDPBF16PS, TDPBUSD. All have a VEX
// prefix of three bytes with map 0F38, W = 0 and L = 0; `prefix` is its field pp (0: none, 1: 66,
// 2: F3, 3: F2).
struct Instruction {
  unsigned prefix = 0, opcode = 0, mod = 0, reg = 0, rm = 0;
  unsigned vvvv = 0;
  std::uint64_t address = 0;  // address of memory operands
  std::uint64_t stride = 0;   // the index register, scaled
  std::size_t length = 0;     // bytes; 0: not a tile instruction
};

std::uint64_t register_value(const greg_t* registers, unsigned number) {
  static constexpr int kOrder[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                   REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                   REG_R12, REG_R13, REG_R14, REG_R15};
  return static_cast<std::uint64_t>(registers[kOrder[number]]);
}

Instruction decode(const std::uint8_t* at, const greg_t* registers) {
  Instruction i;
  if (at[0] != 0xC4 || (at[1] & 0x1F) != 2 || (at[2] & 0x84) != 0) return i;
  const unsigned extend_reg = (at[1] & 0x80) == 0 ? 8 : 0;
  const unsigned extend_index = (at[1] & 0x40) == 0 ? 8 : 0;
  const unsigned extend_base = (at[1] & 0x20) == 0 ? 8 : 0;
  i.prefix = at[2] & 3u;
  i.vvvv = ~(at[2] >> 3) & 15u;
  i.opcode = at[3];
  i.mod = at[4] >> 6;
  i.reg = ((at[4] >> 3) & 7u) + extend_reg;
  i.rm = at[4] & 7u;
  std::size_t length = 5;
  if (i.mod != 3) {
    unsigned base = i.rm;
    if (base == 4) {
      const std::uint8_t sib = at[length++];
      const unsigned index = ((sib >> 3) & 7u) + extend_index;
      if (index != 4) i.stride = register_value(registers, index) << (sib >> 6);
      base = sib & 7u;
    }
    if (i.mod == 0 && base == 5) return i;  // relative to RIP, or no base: not what we compile
    i.address = register_value(registers, base + extend_base);
    if (i.mod == 1) {
      i.address += static_cast<std::uint64_t>(static_cast<std::int8_t>(at[length]));
      length += 1;
    } else if (i.mod == 2) {
      std::int32_t displacement = 0;
      std::memcpy(&displacement, at + length, sizeof(displacement));
      i.address += static_cast<std::uint64_t>(static_cast<std::int64_t>(displacement));
      length += 4;
    }
  }
  i.length = length;
  return i;
}

// The tiles of one thread.
struct TileRegisters {
  bool configured = false;
  TileConfig config;
  std::uint8_t bytes[kTiles][kTileRows][kTileRowBytes] = {};

  void zero(unsigned tile) { std::memset(bytes[tile], 0, sizeof(bytes[tile])); }
  void load(unsigned tile, std::uint64_t address, std::uint64_t stride) {
    zero(tile);
    for (std::size_t row = 0; row < config.rows[tile]; ++row, address += stride)
      std::memcpy(bytes[tile][row], reinterpret_cast<const void*>(address), config.row_bytes[tile]);
  }
  void store(unsigned tile, std::uint64_t address, std::uint64_t stride) const {
    for (std::size_t row = 0; row < config.rows[tile]; ++row, address += stride)
      std::memcpy(reinterpret_cast<void*>(address), bytes[tile][row], config.row_bytes[tile]);
  }
  void dot_bytes(unsigned sum, unsigned a, unsigned b) {
    for (std::size_t row = 0; row < config.rows[sum]; ++row) {
      for (std::size_t group = 0; group < config.rows[b]; ++group) {
        std::uint32_t four[kTileRowBytes / 4];
        std::uint32_t weights[kTileRowBytes / 4];
        std::int32_t sums[kTileRowBytes / 4];
        std::memcpy(four, bytes[a][row], sizeof(four));
        std::memcpy(weights, bytes[b][group], sizeof(weights));
        std::memcpy(sums, bytes[sum][row], sizeof(sums));
        for (std::size_t n = 0; n < config.row_bytes[sum] / 4u; ++n)
          emulated::byte_dots(1, four + group, weights + n, sums + n);
        std::memcpy(bytes[sum][row], sums, sizeof(sums));
      }
    }
  }
  void dot(unsigned sum, unsigned a, unsigned b) {
    TileConfig three;
    const unsigned from[] = {sum, a, b};
    for (std::size_t t = 0; t < kTiles; ++t) {
      three.rows[t] = t < 3 ? config.rows[from[t]] : std::uint8_t{0};
      three.row_bytes[t] = t < 3 ? config.row_bytes[from[t]] : std::uint16_t{0};
    }
    emulated::tile_dot(three, {.a = bytes[a],
                               .a_stride_bytes = kTileRowBytes,
                               .b = bytes[b],
                               .b_stride_bytes = kTileRowBytes,
                               .sum = reinterpret_cast<float*>(bytes[sum]),
                               .sum_stride_bytes = kTileRowBytes});
  }
};

thread_local TileRegisters tiles;
std::atomic<std::size_t> executed = 0;

// False: not one of the eight instructions, or tiles that are not configured.
bool execute(const Instruction& i) {
  constexpr unsigned kNone = 0, k66 = 1, kF3 = 2, kF2 = 3;  // `prefix`
  const auto is = [&i](unsigned prefix, unsigned opcode, bool memory) {
    return i.prefix == prefix && i.opcode == opcode && (i.mod != 3) == memory;
  };
  if (i.length == 0) return false;
  if (is(kNone, 0x49, true) && i.reg == 0) {
    tiles = {};
    std::memcpy(&tiles.config, reinterpret_cast<const void*>(i.address), sizeof(TileConfig));
    tiles.configured = true;
    return true;
  }
  if (!tiles.configured || i.reg >= kTiles) return false;
  if (is(kNone, 0x49, false)) {
    tiles.configured = false;
  } else if (is(kF2, 0x49, false)) {
    tiles.zero(i.reg);
  } else if (is(kF2, 0x4B, true) || is(k66, 0x4B, true)) {
    tiles.load(i.reg, i.address, i.stride);
  } else if (is(kF3, 0x4B, true)) {
    tiles.store(i.reg, i.address, i.stride);
  } else if (is(kF3, 0x5C, false) && i.vvvv < kTiles) {
    tiles.dot(i.reg, i.rm, i.vvvv);
  } else if (is(k66, 0x5E, false) && i.vvvv < kTiles) {
    tiles.dot_bytes(i.reg, i.rm, i.vvvv);
  } else {
    return false;
  }
  return true;
}

void interpret(int, siginfo_t*, void* context) {
  greg_t* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const auto* at = reinterpret_cast<const std::uint8_t*>(registers[REG_RIP]);
  const Instruction instruction = decode(at, registers);
  if (!execute(instruction)) {
    std::signal(SIGILL, SIG_DFL);  // the instruction faults again
    return;
  }
  registers[REG_RIP] += static_cast<greg_t>(instruction.length);
  executed.fetch_add(1);
}

class TileCode : public ::testing::Test {
 protected:
  void SetUp() override {
    const CpuFeatures cpu = CpuFeatures::of_processor();
    if (cpu.amx_bf16) GTEST_SKIP() << "this CPU has AMX: other tests compare its results";
    if (!cpu.avx512_bf16) GTEST_SKIP() << "this CPU has no AVX512_BF16";
    if (!cpu.amx_obstacle.empty()) GTEST_SKIP() << cpu.amx_obstacle;  // may fault in other ways
    struct sigaction action = {};
    action.sa_sigaction = interpret;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    ASSERT_EQ(sigaction(SIGILL, &action, &before_), 0);
    installed_ = true;
    executed = 0;
  }
  void TearDown() override {
    if (installed_) sigaction(SIGILL, &before_, nullptr);
  }

 private:
  struct sigaction before_ = {};
  bool installed_ = false;
};

// A context that runs the machine code of the AMX kernels in one operation.
class TileRuntime {
 public:
  explicit TileRuntime(std::string_view operation)
      : threads_(2), kernels_(kernels_with_tiles(operation)), scratch_(2) {}
  Context context() { return {threads_, kernels_, scratch_}; }

 private:
  static KernelSet kernels_with_tiles(std::string_view operation) {
    KernelSet set = select_kernels(CpuFeatures::detect());
    EXPECT_TRUE(install(hardware_kernels().amx, operation, set));
    return set;
  }
  ThreadPool threads_;
  KernelSet kernels_;
  Scratch scratch_;
};

TEST_F(TileCode, OneDotProductHasItsOperandsInTheRightPlaces) {
  TileConfig config;
  const std::size_t rows[] = {5, 5, 11};
  const std::size_t words[] = {7, 11, 7};
  for (std::size_t t = 0; t < 3; ++t) {
    config.rows[t] = static_cast<std::uint8_t>(rows[t]);
    config.row_bytes[t] = static_cast<std::uint16_t>(4 * words[t]);
  }
  const std::vector<bfloat16> a = random_values<bfloat16>(16 * 40, 1);
  const std::vector<bfloat16> b = random_values<bfloat16>(16 * 48, 2);
  const auto run = [&](auto tile_dot) {
    std::vector<float> sums = random_values<float>(16 * 28, 3);
    tile_dot(config, TileDot{.a = a.data(),
                             .a_stride_bytes = 80,
                             .b = b.data(),
                             .b_stride_bytes = 96,
                             .sum = sums.data(),
                             .sum_stride_bytes = 112});
    return sums;
  };
  EXPECT_TRUE(same_bits(run(tile_dot_amx), run(emulated::tile_dot)));
  EXPECT_EQ(executed, 7u);
}

struct Products {
  std::vector<bfloat16> y, grad_x;
  std::vector<float> grad_weight;
};

Products products(const Context& ctx, std::size_t M, std::size_t N, std::size_t K) {
  const auto x = random_values<bfloat16>(M * K, 1);
  const auto weight = random_values<bfloat16>(N * K, 2);
  const auto grad_out = random_values<bfloat16>(M * N, 3);
  Products r{std::vector<bfloat16>(M * N), std::vector<bfloat16>(M * K), std::vector<float>(N * K)};
  std::vector<float> grad_bias(N);
  linear_forward(ctx, M, N, K, x.data(), weight.data(), nullptr, r.y.data());
  linear_backward_input(ctx, M, N, K, grad_out.data(), weight.data(), r.grad_x.data(), false);
  linear_backward_weight(ctx, M, N, K, grad_out.data(), x.data(), r.grad_weight.data(),
                         grad_bias.data(), false);
  return r;
}

TEST_F(TileCode, ProductsAreTheBitsOfTheEmulation) {
  for (const auto& [M, N, K] :
       {std::array<std::size_t, 3>{33, 70, 100}, {130, 40, 600}, {801, 70, 40}}) {
    const Products got = products(TileRuntime("gemm").context(), M, N, K);
    const Products want = products(Runtime("gemm=amx_emulated").context(), M, N, K);
    EXPECT_TRUE(same_bits(got.y, want.y)) << M;
    EXPECT_TRUE(same_bits(got.grad_x, want.grad_x)) << M;
    EXPECT_TRUE(same_bits(got.grad_weight, want.grad_weight)) << M;
  }
  EXPECT_GT(executed, 1000u);
}

// Blocks of one and of two rows of tiles, an odd number of panels, a rest of the reduction.
TEST_F(TileCode, ProductsOfBytesAreTheBitsOfTheEmulation) {
  if (!CpuFeatures::of_processor().avx512_vnni) GTEST_SKIP() << "this CPU has no AVX512_VNNI";
  for (const auto& [M, N, K] :
       {std::array<std::size_t, 3>{5, 16, 64}, {45, 70, 200}, {130, 48, 70}}) {
    std::vector<std::int8_t> weight(N * K);
    for (std::size_t i = 0; i < weight.size(); ++i)
      weight[i] = static_cast<std::int8_t>(splitmix64(i) & 255u);
    const std::vector<float> x = random_values(M * K, 1);
    const auto multiply = [&, M = M, N = N, K = K](const Context& ctx) {
      const auto packed = Int8Weight::pack(ctx, N, K, weight, std::vector<float>(N, 0.01f));
      std::vector<float> y(M * N);
      int8_linear_forward_dynamic(ctx, M, packed, x.data(), nullptr, y.data());
      return y;
    };
    EXPECT_TRUE(same_bits(multiply(TileRuntime("int8").context()),
                          multiply(Runtime("int8=amx_emulated").context())))
        << M;
  }
  EXPECT_GT(executed, 100u);
}

struct Attended {
  std::vector<bfloat16> out, grad_qkv;
  std::vector<bfloat16> first_rows;  // out, computed alone
  std::vector<float> log_sum_exp;
};

Attended attention(const Context& ctx, std::uint32_t rows, std::size_t head_dim) {
  constexpr std::size_t kHeads = 2;
  const Batch batch({rows, 3}, 2);
  const std::size_t H = kHeads * head_dim;
  const Dropout dropout{.p = 0.1f, .seed = 42, .step = 3, .site = dropout_site(1, kAttentionSite)};
  const auto qkv = random_values<bfloat16>(batch.rows() * 3 * H, 1);
  const auto grad_out = random_values<bfloat16>(batch.rows() * H, 2);
  Attended r{std::vector<bfloat16>(batch.rows() * H), std::vector<bfloat16>(qkv.size()),
             std::vector<bfloat16>(batch.rows() * H), std::vector<float>(kHeads * batch.rows())};
  attention_forward_first_rows(ctx, batch.sequences(), {kHeads, head_dim}, dropout, qkv.data(),
                               r.first_rows.data(), r.log_sum_exp.data());
  attention_forward(ctx, batch.sequences(), {kHeads, head_dim}, dropout, qkv.data(), r.out.data(),
                    r.log_sum_exp.data());
  attention_backward(ctx, batch.sequences(), {kHeads, head_dim}, dropout, qkv.data(), r.out.data(),
                     r.log_sum_exp.data(), grad_out.data(), r.grad_qkv.data());
  return r;
}

TEST_F(TileCode, AttentionIsTheBitsOfTheEmulation) {
  for (const auto& [rows, head_dim] :
       {std::pair<std::uint32_t, std::size_t>{1, 32}, {200, 64}, {384, 32}, {140, 128}, {50, 7}}) {
    const Attended got = attention(TileRuntime("attention").context(), rows, head_dim);
    const Attended want = attention(Runtime("attention=amx_emulated").context(), rows, head_dim);
    EXPECT_TRUE(same_bits(got.out, want.out)) << rows << " " << head_dim;
    EXPECT_TRUE(same_bits(got.first_rows, want.first_rows)) << rows << " " << head_dim;
    EXPECT_TRUE(same_bits(got.log_sum_exp, want.log_sum_exp)) << rows << " " << head_dim;
    EXPECT_TRUE(same_bits(got.grad_qkv, want.grad_qkv)) << rows << " " << head_dim;
  }
  EXPECT_GT(executed, 1000u);
}

}  // namespace
}  // namespace tandem::kernels::testing

#endif
