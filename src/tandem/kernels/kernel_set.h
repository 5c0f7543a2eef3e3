// Which implementation of each operation runs. Chosen once at start from one ordered table per
// operation, the reference last.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/kernels/cpu_features.h"

namespace tandem::kernels {

// Operand type of matrix products: f32, or bf16 operands with f32 sums as under torch.autocast.
// LayerNorm, softmax, the residual stream, gradients of parameters and the optimizer are f32 in
// both.
enum class Precision { kFloat32, kBfloat16 };

struct Context;
struct GemmKernels;
struct AttentionKernels;
struct RotaryKernels;
struct LayerNormKernels;
struct ActivationKernels;
struct DropoutKernels;
struct OptimizerKernels;
struct ReduceKernels;
struct Int8Kernels;

// One line of the start-up print.
struct KernelChoice {
  struct Refusal {
    std::string implementation;
    std::string reason;
  };
  std::string operation;
  std::string implementation;
  bool forced = false;
  std::vector<Refusal> refusals;  // the ones that stand before it in the table, and why this
                                  // machine does not run them
};

// Upper limits of the tiles into which packed products cut their result; 0: the kernel's own. They
// decide how fast a product is, never a bit of it. Products with more tiles than threads balance;
// larger tiles read their operands less often.
struct GemmTile {
  std::size_t rows = 0;
  std::size_t columns = 0;
  friend bool operator==(const GemmTile&, const GemmTile&) = default;
};
struct GemmTiles {
  GemmTile b_ahead;   // forward and gradients of inputs: B is packed once, before all tiles
  GemmTile b_staged;  // gradients of weights: every tile packs its part of B
  friend bool operator==(const GemmTiles&, const GemmTiles&) = default;
};

// One function table per operation, immutable and thread-safe. Only select_kernels() makes one.
class KernelSet {
 public:
  const std::vector<KernelChoice>& describe() const { return choices_; }
  // The implementation that runs an operation. Throws InvalidArgument for an unknown operation.
  std::string_view implementation(std::string_view operation) const;
  // "gemm=avx512bf16,attention=avx512,...", which TANDEM_KERNELS accepts.
  std::string signature() const;
  // "gemm=vector,attention=vector,...": sets of equal strings compute equal bits in `precision`
  // (docs/numerics.md), whatever instructions they use; oneDNN's on CPUs of one kind only.
  std::string arithmetic(Precision precision) const;

  // For the operations of this library.
  const GemmKernels* gemm = nullptr;
  const AttentionKernels* attention = nullptr;
  const RotaryKernels* rotary = nullptr;
  const LayerNormKernels* layer_norm = nullptr;
  const ActivationKernels* activation = nullptr;
  const DropoutKernels* dropout = nullptr;
  const OptimizerKernels* optimizer = nullptr;
  const ReduceKernels* reduce = nullptr;
  const Int8Kernels* int8 = nullptr;

  // Measured on this machine, or the kernels' own; by the type of the operands.
  GemmTiles gemm_tiles_f32;
  GemmTiles gemm_tiles_bf16;

 private:
  friend KernelSet select_kernels(const CpuFeatures&, std::string_view, Precision);
  std::vector<KernelChoice> choices_;
};

// Takes the first implementation of each table that `cpu` can run in `precision`. A CPU that runs
// bf16 runs f32 too, so the default makes a set for both. `overrides` (TANDEM_KERNELS) forces some:
// "gemm=reference", "gemm=onednn,attention=avx2", or one name alone for all operations that have
// it: "reference", "avx2". Throws ConfigError for an unknown operation or implementation (with the
// list of those that exist) and for one that `cpu` cannot run (with the reason).
KernelSet select_kernels(const CpuFeatures& cpu, std::string_view overrides = {},
                         Precision precision = Precision::kBfloat16);

struct Implementation {
  std::string implementation;
  std::string reason;  // why the CPU cannot run it in the precision; empty: it can
};

// Every implementation of an operation, in the order of its table.
std::vector<Implementation> implementations(std::string_view operation, const CpuFeatures& cpu,
                                            Precision precision = Precision::kBfloat16);

// The operations that have a table.
std::vector<std::string> operations();

enum class PeakType { kF32, kBf16, kInt8 };
// FLOP/s of a register-only loop of the best multiply-add instruction of the chosen gemm (kInt8:
// int8) implementation, all threads together.
struct PeakFlops {
  double best = 0;  // of the short rounds; the trainer prints its speed as a share of this
  double mean = 0;  // without the first rounds; lower if others use the cores meanwhile
};
// Takes about 20 ms.
PeakFlops measure_peak_flops(const Context& ctx, PeakType type);

}  // namespace tandem::kernels
