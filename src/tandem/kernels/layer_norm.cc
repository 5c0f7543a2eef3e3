#include "tandem/kernels/layer_norm.h"

#include "tandem/kernels/column_partials.h"
#include "tandem/kernels/kernel_tables.h"
#include "tandem/kernels/row_chunks.h"

namespace tandem::kernels {
namespace {

template <class T>
T* at_row(T* matrix, std::size_t row, std::size_t H) {
  return matrix == nullptr ? nullptr : matrix + row * H;
}

}  // namespace

template <class T>
void dropout_add_layer_norm_forward(const Context& ctx, const Sequences& sequences, std::size_t H,
                                    const Dropout& dropout, const LayerNormForward<T>& args) {
  for_each_row(ctx, sequences, H, dropout, [&](const BatchRow& row, int) {
    const std::size_t i = row.index;
    of<T>(*ctx.kernels.layer_norm)
        .forward({.H = H,
                  .x = at_row(args.x, i, H),
                  .residual = at_row(args.residual, i, H),
                  .gamma = args.gamma,
                  .beta = args.beta,
                  .eps = args.eps,
                  .mask = row.mask,
                  .row = row.in_sequence,
                  .y = at_row(args.y, i, H),
                  .y_copy = at_row(args.y_copy, i, H),
                  .sum = args.sum + i * H,
                  .mean = args.mean == nullptr ? nullptr : args.mean + i,
                  .rstd = args.rstd + i});
  });
}

template <class T>
void layer_norm_recompute(const Context& ctx, const Sequences& sequences, std::size_t H,
                          const LayerNormRecompute<T>& args) {
  constexpr Dropout kNoDropout{};
  for_each_row(ctx, sequences, H, kNoDropout, [&](const BatchRow& row, int) {
    const std::size_t i = row.index;
    of<T>(*ctx.kernels.layer_norm)
        .recompute({.H = H,
                    .sum = args.sum + i * H,
                    .gamma = args.gamma,
                    .beta = args.beta,
                    .mean = args.mean == nullptr ? 0.0f : args.mean[i],
                    .rstd = args.rstd[i],
                    .y = at_row(args.y, i, H),
                    .y_copy = at_row(args.y_copy, i, H)});
  });
}

template <class T>
void dropout_add_layer_norm_backward(const Context& ctx, const Sequences& sequences, std::size_t H,
                                     const Dropout& dropout, const LayerNormBackward<T>& args) {
  check_sequences(sequences);
  check_dropout(sequences, H, dropout);
  // Each chunk of rows sums its own gradients of gamma and beta; the sums are added in the order of
  // the chunks.
  ColumnPartials partials(ctx, num_chunks(sequences.rows(), kRowChunk), 2 * H);
  ctx.threads.parallel_for(partials.chunks(), [&](std::size_t chunk, int) {
    float* grad_gamma = partials.zeroed(chunk);
    visit_chunk_rows(sequences, dropout, chunk, [&](const BatchRow& row) {
      const std::size_t i = row.index;
      of<T>(*ctx.kernels.layer_norm)
          .backward({.H = H,
                     .grad_y = args.grad_y + i * H,
                     .sum = args.sum + i * H,
                     .gamma = args.gamma,
                     .centered = args.mean != nullptr,
                     .mean = args.mean == nullptr ? 0.0f : args.mean[i],
                     .rstd = args.rstd[i],
                     .mask = row.mask,
                     .row = row.in_sequence,
                     .grad_beside = at_row(args.grad_beside, i, H),
                     .grad_sum = args.grad_sum + i * H,
                     .grad_x = at_row(args.grad_x, i, H),
                     .grad_gamma = grad_gamma,
                     .grad_beta = args.grad_beta == nullptr ? nullptr : grad_gamma + H});
    });
  });
  if (args.grad_gamma != nullptr) partials.sum_columns(ctx, 0, H, args.grad_gamma, args.accumulate);
  if (args.grad_beta != nullptr) partials.sum_columns(ctx, H, H, args.grad_beta, args.accumulate);
}

template void dropout_add_layer_norm_forward(const Context&, const Sequences&, std::size_t,
                                             const Dropout&, const LayerNormForward<float>&);
template void dropout_add_layer_norm_forward(const Context&, const Sequences&, std::size_t,
                                             const Dropout&, const LayerNormForward<bfloat16>&);
template void layer_norm_recompute(const Context&, const Sequences&, std::size_t,
                                   const LayerNormRecompute<float>&);
template void layer_norm_recompute(const Context&, const Sequences&, std::size_t,
                                   const LayerNormRecompute<bfloat16>&);
template void dropout_add_layer_norm_backward(const Context&, const Sequences&, std::size_t,
                                              const Dropout&, const LayerNormBackward<float>&);
template void dropout_add_layer_norm_backward(const Context&, const Sequences&, std::size_t,
                                              const Dropout&, const LayerNormBackward<bfloat16>&);

}  // namespace tandem::kernels
