// Internal: what an implementation of each operation provides. The public functions check their
// arguments, cut the work into chunks by size and call these from the chunks; an implementation is
// serial code over raw pointers (gemm apart, which cuts its own work), so its translation units
// share no inline code with the rest of the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tandem/core/bfloat16.h"
#include "tandem/kernels/activation.h"
#include "tandem/kernels/attention.h"
#include "tandem/kernels/dropout.h"
#include "tandem/kernels/int8.h"
#include "tandem/kernels/undo_log.h"

namespace tandem::kernels {

// The member for a storage type: of<bfloat16>(*ctx.kernels.activation).forward(...).
template <class T, class Kernels>
constexpr const auto& of(const Kernels& kernels) {
  if constexpr (std::is_same_v<T, float>) {
    return kernels.f32;
  } else {
    return kernels.bf16;
  }
}

// --- gemm ---

// One operand of a product, element (outer, reduced): outer index = row of C for A, column of C for
// B.
template <class T>
struct GemmOperand {
  const T* data = nullptr;
  std::size_t ld = 0;             // elements between the rows of the stored matrix
  bool reduction_is_row = false;  // stored as [outer, reduced] (true) or [reduced, outer] (false)
};

// C[m, n] = A B + bias, or C += A B: every product of a linear layer has this form. C is dense
// row-major.
template <class T, class Out>
struct Gemm {
  std::size_t m = 0, n = 0, k = 0;
  GemmOperand<T> a, b;
  const std::byte* b_panels = nullptr;  // not null: B as PackedWeight keeps it, in addition to `b`
  const float* bias = nullptr;          // [n] or null
  Out* c = nullptr;
  bool accumulate = false;
  // [m] or null: = or += the sums of A over the reduction, as column_sums() has them. Only where
  // GemmKernels::sums_a, and A and B are stored across the reduction.
  float* a_sums = nullptr;
};

struct PackedGemm;  // gemm_packed.h

struct GemmKernels {
  void (*f32)(const Context&, const Gemm<float, float>&);
  void (*bf16)(const Context&, const Gemm<bfloat16, bfloat16>&);
  void (*bf16_to_f32)(const Context&, const Gemm<bfloat16, float>&);
  // Runs `iterations` rounds of the best multiply-add on registers only; returns the FLOPs done.
  double (*peak_f32)(std::size_t iterations);
  double (*peak_bf16)(std::size_t iterations);
  // The blocks of the implementations that use the packed driver, null otherwise.
  const PackedGemm* packed = nullptr;
  bool sums_a = false;  // bf16_to_f32 takes Gemm::a_sums
};

// --- attention: one (sequence, head of keys) with its query heads ---

// Relative positions (disentangled_attention.h) as one head has them.
template <class T>
struct HeadPositions {
  std::size_t rows = 0;
  // The row of each distance, key - query, from its middle: 1 - rows … keys - 1 of the sequence.
  const std::int32_t* row_of = nullptr;
  std::size_t ld = 0;  // elements between the rows of both
  const T *queries = nullptr, *keys = nullptr;
};

template <class T>
struct AttentionHead {
  // Rows first_row … rows are computed, and q, out and log_sum_exp begin with first_row. Backward
  // has all rows.
  std::size_t first_row = 0, rows = 0, keys = 0, head_dim = 0;
  // Query heads with these keys and values: q, out and their gradients are head_dim apart,
  // log_sum_exp ld_log_sum_exp, and each has a mask.
  std::size_t group = 1;
  // Elements between rows: of k and v, of q, of out; ld_qkv and ld_q are equal in backward.
  std::size_t ld_qkv = 0, ld_q = 0, ld_out = 0, ld_log_sum_exp = 0;
  const T *q = nullptr, *k = nullptr, *v = nullptr;
  float scale = 1;  // 1 / sqrt(head_dim)
  Window window;
  // bias[key - row] is added to the scaled score; null: nothing is. Distances 1 - rows … keys - 1.
  const float* bias = nullptr;
  const HeadPositions<T>* positions = nullptr;  // or null; then group is 1 and the window is whole
  const DropoutMask* masks = nullptr;           // [group]
  float* log_sum_exp = nullptr;                 // [rows], written by forward, read by backward
  T* out = nullptr;                             // written by forward
  float* scratch = nullptr;
};

template <class T>
struct AttentionHeadBackward {
  AttentionHead<T> head;  // its `out` is not written
  const T* out = nullptr;
  const T* grad_out = nullptr;
  T *grad_q = nullptr, *grad_k = nullptr,
    *grad_v = nullptr;  // rows `ld_qkv` apart; pad rows of k and v included
  // The sum of dS by distance, overwritten; the distances and the null of head.bias.
  float* grad_bias = nullptr;
  // With positions: [positions->rows, head_dim] each, added to.
  float *grad_position_queries = nullptr, *grad_position_keys = nullptr;
};

template <class T>
struct AttentionOf {
  void (*forward)(const AttentionHead<T>&) = nullptr;
  void (*backward)(const AttentionHeadBackward<T>&) = nullptr;
  // f32 elements of scratch that either direction needs; positions: their rows, or 0.
  std::size_t (*scratch_size)(std::size_t rows, std::size_t head_dim, const Window& window,
                              std::size_t positions) = nullptr;
};

struct AttentionKernels {
  const AttentionOf<float>* f32 = nullptr;
  const AttentionOf<bfloat16>* bf16 = nullptr;
};

// --- rotary positions: one row, in place ---

template <class T>
struct RotaryRow {
  std::size_t heads = 0, half = 0;
  const float *cos = nullptr, *sin = nullptr;  // [half], of the row's position
  float direction = 1;                         // 1 or -1, a factor of the sines
  T* x = nullptr;                              // [heads, 2 half]
};

struct RotaryKernels {
  template <class T>
  struct Of {
    void (*rotate)(const RotaryRow<T>&);
  };
  Of<float> f32;
  Of<bfloat16> bf16;
};

// --- layer norm: one row ---

// beta, x, residual and mean may be null: mean in RMSNorm.
template <class T>
struct LayerNormRow {
  std::size_t H = 0;
  const T* x = nullptr;
  const float *residual = nullptr, *gamma = nullptr, *beta = nullptr;
  float eps = 0;
  DropoutMask mask;
  std::uint32_t row = 0;  // within its sequence
  float* y = nullptr;     // or null
  T* y_copy = nullptr;    // or null
  float *sum = nullptr, *mean = nullptr, *rstd = nullptr;
};

template <class T>
struct LayerNormRowRecompute {
  std::size_t H = 0;
  const float *sum = nullptr, *gamma = nullptr, *beta = nullptr;  // beta: or null
  float mean = 0, rstd = 0;
  float* y = nullptr;   // or null
  T* y_copy = nullptr;  // or null
};

template <class T>
struct LayerNormRowBackward {
  std::size_t H = 0;
  const float *grad_y = nullptr, *sum = nullptr, *gamma = nullptr;
  bool centered = true;  // false: RMSNorm, and the mean is 0
  float mean = 0, rstd = 0;
  DropoutMask mask;
  std::uint32_t row = 0;
  const float* grad_beside = nullptr;  // added to the gradient of the sum; or null
  float* grad_sum = nullptr;
  T* grad_x = nullptr;
  float *grad_gamma = nullptr, *grad_beta = nullptr;  // [H], added to; grad_beta: or null
};

struct LayerNormKernels {
  template <class T>
  struct Of {
    void (*forward)(const LayerNormRow<T>&);
    void (*recompute)(const LayerNormRowRecompute<T>&);
    void (*backward)(const LayerNormRowBackward<T>&);
  };
  Of<float> f32;
  Of<bfloat16> bf16;
};

// --- elementwise ---

template <class T>
struct GatedRowBackward {
  std::size_t count = 0;
  const T *x = nullptr, *gate = nullptr, *grad_y = nullptr;
  T *grad_x = nullptr, *grad_gate = nullptr;
  T* y = nullptr;  // null, or written as by forward
};

struct ActivationKernels {
  template <class T>
  struct Of {
    void (*forward)(Activation, std::size_t count, const T* x, T* y);
    // y: null, or written as by forward.
    void (*backward)(Activation, std::size_t count, const T* x, const T* grad_y, T* grad_x, T* y);
    // One row of activation.h's gated form.
    void (*gated_forward)(Activation, std::size_t count, const T* x, const T* gate, T* y);
    void (*gated_backward)(Activation, const GatedRowBackward<T>&);
  };
  Of<float> f32;
  Of<bfloat16> bf16;
};

struct DropoutKernels {
  template <class T>
  struct Of {
    // One row: y = x * factor(row, column).
    void (*forward)(const DropoutMask&, std::uint32_t row, std::size_t columns, const T* x, T* y);
    // One row: sum = x * factor + residual, and grad_x = grad_sum * factor.
    void (*add)(const DropoutMask&, std::uint32_t row, std::size_t columns, const T* x,
                const float* residual, float* sum);
    void (*add_backward)(const DropoutMask&, std::uint32_t row, std::size_t columns,
                         const float* grad_sum, T* grad_x);
  };
  Of<float> f32;
  Of<bfloat16> bf16;
};

// AdamWStep with every factor computed.
struct AdamWFactors {
  float grad_scale, decay, one_minus_beta1, beta2, one_minus_beta2, step_size,
      inverse_sqrt_correction2, eps, decay_after;
};

// SgdStep: b = keep b + add g; p -= lr (nesterov: g + ahead b).
struct SgdFactors {
  float grad_scale, weight_decay, lr, keep, add, ahead;
  bool nesterov;
};

// AdagradStep: s = keep s + start + g^2.
struct AdagradFactors {
  float grad_scale, weight_decay, lr, eps, keep, start;
};

// `copy` may be null, and `buffer` too without momentum. `undo`: where the elements are kept before
// they are overwritten; or null.
struct OptimizerKernels {
  void (*adamw)(const AdamWFactors&, std::size_t count, const float* grad, float* parameters,
                float* exp_avg, float* exp_avg_sq, bfloat16* copy, const UndoLog* undo);
  void (*sgd)(const SgdFactors&, std::size_t count, const float* grad, float* parameters,
              float* buffer, bfloat16* copy, const UndoLog* undo);
  void (*adagrad)(const AdagradFactors&, std::size_t count, const float* grad, float* parameters,
                  float* sum, bfloat16* copy, const UndoLog* undo);
};

struct ReduceKernels {
  template <class T>
  struct Of {
    // sums[c] += the column sums of a [rows, columns] piece of a matrix, row by row.
    void (*add_column_sums)(std::size_t rows, std::size_t columns, const T* x, std::size_t ld,
                            float* sums);
  };
  Of<float> f32;
  Of<bfloat16> bf16;
  double (*squared_norm)(std::size_t count, const float* x);
  void (*add)(std::size_t count, const float* a, const float* b, float* dst);
  void (*scale)(std::size_t count, float factor, const float* x, float* y);
  void (*to_bf16)(std::size_t count, const float* from, bfloat16* to);
  void (*to_f32)(std::size_t count, const bfloat16* from, float* to);
  // The parts of a softmax. A NaN among x makes exp_sum NaN; largest may skip it. No x - shift is
  // above 0.
  float (*largest)(std::size_t count, const float* x);
  float (*exp_sum)(std::size_t count, float shift, const float* x);  // sum of e^(x - shift)
  // y = factor e^(x - shift). y may be x.
  void (*scaled_exp)(std::size_t count, float shift, float factor, const float* x, float* y);
};

// --- int8: int8.h ---

// The packed weight: panels of 16 output features, each [groups of 4 input features][16][4] bytes,
// so that vpdpbusd (and tdpbusd) reads four neighbours of the reduction as one 32-bit lane. Byte
// (n, k) is at n / 16 panel_bytes + k / 4 · 64 + n % 16 · 4 + k % 4; zeros beyond both edges.
inline constexpr std::size_t kInt8Panel = 16;
inline constexpr std::size_t kInt8Group = 4;
inline constexpr std::size_t kInt8GroupBytes = kInt8Panel * kInt8Group;

// Input of the epilogue for one quantized row of x. scale is NaN where the result shall be NaN.
struct Int8Row {
  float scale;
  std::int32_t zero_point;
};

// Some rows of x times some panels of the weight.
template <class T>
struct Int8Product {
  std::size_t rows = 0;     // rows of x and y
  std::size_t columns = 0;  // columns of y: output features
  std::size_t groups = 0;   // groups of the reduction
  // Elements as the implementation's quantize() stores them; up to a multiple of its row_block,
  // further rows may be read.
  const std::byte* x = nullptr;
  std::size_t row_bytes = 0;  // between the rows of x
  const Int8Row* row = nullptr;
  const std::int8_t* panels = nullptr;
  std::size_t panel_bytes = 0;
  const float* scale = nullptr;            // [columns] and zeros up to a whole panel
  const std::int32_t* row_sums = nullptr;  // as scale
  const float* bias = nullptr;             // [columns] or null
  T* y = nullptr;
  std::size_t ld = 0;  // elements between the rows of y
  // y need not stay in the caches, and rows of 32 elements from a multiple of 32 columns on are
  // aligned to 64 bytes.
  bool streamed = false;
};

struct Int8Kernels {
  // T: the type of x and y.
  template <class T>
  struct Of {
    // The smallest and the largest of x and 0; NaNs do not count.
    void (*min_max)(std::size_t count, const T* x, float* min, float* max);
    // Returns whether a NaN is among x.
    bool (*quantize)(std::size_t count, const T* x, Int8Range range, std::byte* q);
    void (*multiply)(const Int8Product<T>&);
  };
  std::size_t element_bytes;  // bytes of a quantized activation
  std::size_t row_block;      // rows that multiply() takes at once
  // Bytes of rows, and of panels, that a chunk may have; 0: chunks do not grow beyond the least.
  std::size_t chunk_bytes = 0;
  Of<float> f32;
  Of<bfloat16> bf16;
  // As GemmKernels::peak_f32: rounds on registers; returns the operations done.
  double (*peak)(std::size_t iterations);
};

// The reference of each operation.
extern const GemmKernels kGemmReference;
extern const AttentionKernels kAttentionReference;
extern const RotaryKernels kRotaryReference;
extern const LayerNormKernels kLayerNormReference;
extern const ActivationKernels kActivationReference;
extern const DropoutKernels kDropoutReference;
extern const OptimizerKernels kOptimizerReference;
extern const ReduceKernels kReduceReference;
extern const Int8Kernels kInt8Reference;

}  // namespace tandem::kernels
