#include "tandem/kernels/embedding.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>

#include "tandem/core/error.h"
#include "tandem/kernels/kernel_tables.h"
#include "tandem/kernels/layer_norm.h"
#include "tandem/kernels/row_chunks.h"

namespace tandem::kernels {
namespace {

void check_ids(std::string_view what, const std::int32_t* ids, std::size_t rows, std::size_t size) {
  if (ids == nullptr) return;
  for (std::size_t row = 0; row < rows; ++row) {
    if (ids[row] < 0 || static_cast<std::size_t>(ids[row]) >= size) {
      raise<InvalidArgument>("row {} has {} id {}, but the embedding table has {} rows", row, what,
                             ids[row], size);
    }
  }
}

void check_indices(const EmbeddingIndices& indices, std::size_t rows) {
  check_ids("word", indices.word, rows, indices.vocab_size);
  check_ids("position", indices.position, rows, indices.max_positions);
  check_ids("token type", indices.type, rows, indices.type_vocab_size);
}

const float* table_row(const float* table, std::int32_t id, std::size_t H) {
  return table + static_cast<std::size_t>(id) * H;
}

constexpr Dropout kNoDropout{};

// The rows of a batch by the table row that they name: those of table row id are
// rows[begin[id]] ... rows[begin[id + 1] - 1], in the order of the batch.
struct RowsByTarget {
  std::span<const std::uint32_t> begin;  // [table_rows + 1]
  std::span<const std::uint32_t> rows;
};

// A counting sort. Rows that name `skip` are left out.
RowsByTarget sort_by_target(const Context& ctx, std::size_t rows, const std::int32_t* ids,
                            std::int32_t skip, std::size_t table_rows) {
  const auto memory = ctx.scratch.shared<std::uint32_t>(table_rows + 2 + rows);
  const auto begin = memory.first(table_rows + 2);
  const auto sorted = memory.last(rows);
  std::fill(begin.begin(), begin.end(), 0u);
  // begin[id + 2] counts the rows of id; sums make begin[id + 1] the position of its first row.
  // Each row that is stored there advances it, at last to the first row of id + 1.
  for (std::size_t row = 0; row < rows; ++row) {
    if (ids[row] != skip) ++begin[static_cast<std::size_t>(ids[row]) + 2];
  }
  for (std::size_t id = 2; id < begin.size(); ++id) begin[id] += begin[id - 1];
  for (std::size_t row = 0; row < rows; ++row) {
    if (ids[row] == skip) continue;
    sorted[begin[static_cast<std::size_t>(ids[row]) + 1]++] = static_cast<std::uint32_t>(row);
  }
  return {begin.first(table_rows + 1), sorted};
}

// Adds the rows of `grad` to the rows of a table that `ids` name, in row order. A chunk owns a
// block of the table, so no two chunks touch the same element and no order depends on the threads.
// A row of the table is written once, whole where the table has many rows; of a small table chunks
// own bands of columns.
void scatter_add(const Context& ctx, std::size_t rows, std::size_t H, const float* grad,
                 const std::int32_t* ids, std::int32_t skip, std::size_t table_rows, float* table,
                 bool accumulate) {
  constexpr std::size_t kTableRows = 64;
  const RowsByTarget by_target = sort_by_target(ctx, rows, ids, skip, table_rows);
  const std::size_t band = table_rows < kTableRows ? 64 : H;
  const std::size_t bands = num_chunks(H, band);
  ctx.threads.parallel_for(bands * num_chunks(table_rows, kTableRows), [&](std::size_t chunk, int) {
    const std::size_t column = chunk % bands * band;
    const std::size_t width = std::min(band, H - column);
    const std::size_t first = chunk / bands * kTableRows;
    const std::size_t end = std::min(table_rows, first + kTableRows);
    if (!accumulate && width == H) std::fill_n(table + first * H, (end - first) * H, 0.0f);
    for (std::size_t id = first; id < end; ++id) {
      float* const target = table + id * H + column;
      if (!accumulate && width != H) std::fill_n(target, width, 0.0f);
      for (std::size_t i = by_target.begin[id]; i < by_target.begin[id + 1]; ++i) {
        ctx.kernels.reduce->add(width, target, grad + by_target.rows[i] * H + column, target);
      }
    }
  });
}

void check_noise(const Sequences& sequences, const EmbeddingNoise& noise) {
  if (noise.alpha == 0.0f) return;
  if (!(noise.alpha > 0.0f))
    raise<InvalidArgument>("the noise of embeddings must not be negative, got {}", noise.alpha);
  if (sequences.sample.size() != sequences.count())
    raise<InvalidArgument>("noise on embeddings needs the sample numbers of the sequences");
}

// Adds the noise to a row of the sum. 16 random bits an element, those that dropout would look at.
void add_noise(const EmbeddingNoise& noise, const Sequences& sequences, std::size_t row,
               std::size_t H, float* sum) {
  const std::size_t sequence = sequence_of_row(sequences, row);
  const DropoutMask key =
      dropout_mask({.p = 0.5f, .seed = noise.seed, .step = noise.step, .site = noise.site},
                   sequences.sample[sequence]);
  const auto in_sequence = static_cast<std::uint32_t>(row - sequences.row_begin[sequence]);
  const float magnitude =
      noise.alpha / std::sqrt(static_cast<float>(sequences.rows_of(sequence) * H));
  for (std::size_t column = 0; column < H; ++column) {
    const std::uint32_t word =
        dropout_word(key.key0, key.key1, in_sequence, static_cast<std::uint32_t>(column / 2));
    const auto draw = static_cast<float>((column % 2 == 0 ? word : word >> 16) & 0xFFFFu);
    sum[column] += magnitude * ((draw + 0.5f) * (2.0f / 65536.0f) - 1.0f);
  }
}

}  // namespace

template <class T>
void embedding_forward(const Context& ctx, const Sequences& sequences, std::size_t H,
                       const EmbeddingIndices& indices, const Dropout& dropout,
                       const EmbeddingForward<T>& args) {
  check_sequences(sequences);
  check_indices(indices, sequences.rows());
  check_noise(sequences, args.noise);
  for_each_row(ctx, sequences, H, dropout, [&](const BatchRow& row, int) {
    const std::size_t i = row.index;
    float* y = args.y + i * H;
    float* sum = args.gamma == nullptr ? y : args.sum + i * H;
    const ReduceKernels& reduce = *ctx.kernels.reduce;
    const float* word = table_row(args.word, indices.word[i], H);
    if (indices.position == nullptr) {
      std::copy_n(word, H, sum);
    } else {
      reduce.add(H, word, table_row(args.position, indices.position[i], H), sum);
    }
    if (indices.type != nullptr) reduce.add(H, sum, table_row(args.type, indices.type[i], H), sum);
    if (args.noise.alpha != 0.0f) add_noise(args.noise, sequences, i, H, sum);
    if (args.gamma != nullptr) {
      ctx.kernels.layer_norm->f32.forward({.H = H,
                                           .x = sum,
                                           .residual = nullptr,
                                           .gamma = args.gamma,
                                           .beta = args.beta,
                                           .eps = args.eps,
                                           .mask = {},
                                           .row = 0,
                                           .y = y,
                                           .y_copy = nullptr,
                                           .sum = sum,
                                           .mean = args.mean + i,
                                           .rstd = args.rstd + i});
    }
    if (dropout.p != 0.0f) ctx.kernels.dropout->f32.forward(row.mask, row.in_sequence, H, y, y);
    if (args.y_copy == nullptr) return;
    if constexpr (std::is_same_v<T, float>) {
      std::copy_n(y, H, args.y_copy + i * H);
    } else {
      reduce.to_bf16(H, y, args.y_copy + i * H);
    }
  });
}

void embedding_backward(const Context& ctx, const Sequences& sequences, std::size_t H,
                        const EmbeddingIndices& indices, const Dropout& dropout,
                        const EmbeddingBackward& args) {
  check_sequences(sequences);
  check_indices(indices, sequences.rows());
  if (dropout.p != 0.0f) dropout_forward(ctx, sequences, H, dropout, args.grad_y, args.grad_y);
  if (args.gamma != nullptr) {
    dropout_add_layer_norm_backward<float>(ctx, sequences, H, kNoDropout,
                                           {.grad_y = args.grad_y,
                                            .sum = args.sum,
                                            .mean = args.mean,
                                            .rstd = args.rstd,
                                            .gamma = args.gamma,
                                            .grad_sum = args.grad_y,
                                            .grad_x = nullptr,
                                            .grad_gamma = args.grad_gamma,
                                            .grad_beta = args.grad_beta,
                                            .accumulate = args.accumulate});
  }
  const std::size_t rows = sequences.rows();
  constexpr std::int32_t kNone = -1;
  if (args.grad_word != nullptr) {
    scatter_add(ctx, rows, H, args.grad_y, indices.word, args.padding_idx, indices.vocab_size,
                args.grad_word, args.accumulate || args.word_begun);
  }
  if (args.grad_position != nullptr) {
    scatter_add(ctx, rows, H, args.grad_y, indices.position, args.padding_position,
                indices.max_positions, args.grad_position, args.accumulate);
  }
  if (args.grad_type != nullptr) {
    scatter_add(ctx, rows, H, args.grad_y, indices.type, kNone, indices.type_vocab_size,
                args.grad_type, args.accumulate);
  }
}

template void embedding_forward(const Context&, const Sequences&, std::size_t,
                                const EmbeddingIndices&, const Dropout&,
                                const EmbeddingForward<float>&);
template void embedding_forward(const Context&, const Sequences&, std::size_t,
                                const EmbeddingIndices&, const Dropout&,
                                const EmbeddingForward<bfloat16>&);

}  // namespace tandem::kernels
