#include "tandem/kernels/adafactor.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace tandem::kernels {
namespace {

constexpr std::size_t kRowsPerBlock = 64;
constexpr std::size_t kElementsPerBlock = 16384;
constexpr std::size_t kLanes = 16;

// Scratch buffers that the passes over a matrix share.
struct MatrixWork {
  std::size_t blocks;
  std::span<double> block_sums;  // [blocks]
  std::span<float> column_sums;  // [blocks, columns]
  std::span<float> row_factors;  // [rows]
  std::span<float> column_factors;

  MatrixWork(const Context& ctx, std::size_t rows, std::size_t columns)
      : blocks(num_chunks(rows, kRowsPerBlock)) {
    // The f64 first, for their alignment.
    const std::size_t doubles = align_up(blocks, kLanes) * 2;
    const std::span<float> all =
        ctx.scratch.shared<float>(doubles + blocks * columns + rows + columns);
    block_sums = {reinterpret_cast<double*>(all.data()), blocks};
    column_sums = all.subspan(doubles, blocks * columns);
    row_factors = all.subspan(doubles + blocks * columns, rows);
    column_factors = all.subspan(doubles + blocks * columns + rows, columns);
  }
};

// Adds g^2 + eps of a row to the sums of its columns; returns the sum over the row. Sixteen chains
// per 512 columns keep the roundings few; a fixed order, like everything here.
double add_squares(std::size_t columns, const float* grad, float scale, float eps,
                   float* column_sums) {
  double total = 0;
  for (std::size_t first = 0; first < columns; first += 512) {
    float lanes[kLanes] = {};
    const std::size_t count = std::min<std::size_t>(512, columns - first);
    for (std::size_t c = 0; c < count; ++c) {
      const float g = grad[first + c] * scale;
      const float square = g * g + eps;
      column_sums[first + c] += square;
      lanes[c % kLanes] += square;
    }
    for (const float lane : lanes) total += static_cast<double>(lane);
  }
  return total;
}

double sum_of_squared_updates(std::size_t columns, const float* grad, float factor,
                              const float* column_factors) {
  double lanes[kLanes] = {};
  for (std::size_t c = 0; c < columns; ++c) {
    const auto update = static_cast<double>(grad[c] * factor * column_factors[c]);
    lanes[c % kLanes] += update * update;
  }
  double total = 0;
  for (const double lane : lanes) total += lane;
  return total;
}

// lr / max(1, rms/clip_threshold), with rms over `count` updates.
float step_size(const AdafactorStep& step, std::span<const double> block_sums, std::size_t count) {
  double total = 0;
  for (const double sum : block_sums) total += sum;
  const double rms = std::sqrt(total / static_cast<double>(count));
  return static_cast<float>(step.lr / std::max(1.0, rms / step.clip_threshold));
}

float decay_of(const AdafactorStep& step) {
  return static_cast<float>(1.0 - step.lr * step.weight_decay);
}

// Row and column means of this step, and the factors that they give every gradient.
void update_means(const Context& ctx, std::size_t rows, std::size_t columns,
                  const AdafactorStep& step, MatrixWork& work, float* row_means,
                  float* column_means) {
  const auto beta2 = static_cast<float>(step.beta2);
  const auto rest = static_cast<float>(1.0 - step.beta2);
  double row_total = 0;
  for (std::size_t r = 0; r < rows; ++r) row_total += static_cast<double>(row_means[r]);
  const auto row_mean = static_cast<float>(row_total / static_cast<double>(rows));
  for (std::size_t r = 0; r < rows; ++r)
    work.row_factors[r] = step.grad_scale / std::sqrt(row_means[r] / row_mean);
  ctx.threads.parallel_for(num_chunks(columns, kRowsPerBlock), [&](std::size_t chunk, int) {
    const std::size_t end = std::min(columns, (chunk + 1) * kRowsPerBlock);
    for (std::size_t c = chunk * kRowsPerBlock; c < end; ++c) {
      double sum = 0;
      for (std::size_t block = 0; block < work.blocks; ++block)
        sum += static_cast<double>(work.column_sums[block * columns + c]);
      column_means[c] =
          column_means[c] * beta2 + rest * static_cast<float>(sum / static_cast<double>(rows));
      work.column_factors[c] = 1.0f / std::sqrt(column_means[c]);
    }
  });
}

}  // namespace

void adafactor_matrix(const Context& ctx, std::size_t rows, std::size_t columns,
                      const AdafactorStep& step, const float* grad, float* parameters,
                      float* row_means, float* column_means, bfloat16* copy) {
  if (rows == 0 || columns == 0) return;
  MatrixWork work(ctx, rows, columns);
  const auto rows_of = [&](std::size_t block, auto body) {
    const std::size_t end = std::min(rows, (block + 1) * kRowsPerBlock);
    for (std::size_t r = block * kRowsPerBlock; r < end; ++r) body(r);
  };
  const auto beta2 = static_cast<float>(step.beta2);
  const auto rest = static_cast<float>(1.0 - step.beta2);
  ctx.threads.parallel_for(work.blocks, [&](std::size_t block, int) {
    float* const sums = work.column_sums.data() + block * columns;
    std::fill_n(sums, columns, 0.0f);
    rows_of(block, [&](std::size_t r) {
      const double sum = add_squares(columns, grad + r * columns, step.grad_scale,
                                     static_cast<float>(step.eps), sums);
      row_means[r] =
          row_means[r] * beta2 + rest * static_cast<float>(sum / static_cast<double>(columns));
    });
  });
  update_means(ctx, rows, columns, step, work, row_means, column_means);
  ctx.threads.parallel_for(work.blocks, [&](std::size_t block, int) {
    double sum = 0;
    rows_of(block, [&](std::size_t r) {
      sum += sum_of_squared_updates(columns, grad + r * columns, work.row_factors[r],
                                    work.column_factors.data());
    });
    work.block_sums[block] = sum;
  });
  const float size = step_size(step, work.block_sums, rows * columns);
  const float decay = decay_of(step);
  ctx.threads.parallel_for(work.blocks, [&](std::size_t block, int) {
    rows_of(block, [&](std::size_t r) {
      for (std::size_t c = 0; c < columns; ++c) {
        const std::size_t i = r * columns + c;
        const float update = grad[i] * work.row_factors[r] * work.column_factors[c];
        parameters[i] = parameters[i] * decay - size * update;
        if (copy != nullptr) copy[i] = to_bfloat16(parameters[i]);
      }
    });
  });
}

void adafactor_vector(const Context& ctx, std::size_t count, const AdafactorStep& step,
                      const float* grad, float* parameters, float* second_moment, bfloat16* copy) {
  if (count == 0) return;
  const std::size_t blocks = num_chunks(count, kElementsPerBlock);
  const std::span<double> sums = ctx.scratch.shared<double>(blocks);
  const auto beta2 = static_cast<float>(step.beta2);
  const auto rest = static_cast<float>(1.0 - step.beta2);
  const auto eps = static_cast<float>(step.eps);
  const auto elements_of = [&](std::size_t block, auto body) {
    const std::size_t end = std::min(count, (block + 1) * kElementsPerBlock);
    for (std::size_t i = block * kElementsPerBlock; i < end; ++i) body(i);
  };
  const auto update_of = [&](std::size_t i) {
    return grad[i] * step.grad_scale / std::sqrt(second_moment[i]);
  };
  ctx.threads.parallel_for(blocks, [&](std::size_t block, int) {
    double sum = 0;
    elements_of(block, [&](std::size_t i) {
      const float g = grad[i] * step.grad_scale;
      second_moment[i] = second_moment[i] * beta2 + rest * (g * g + eps);
      const auto update = static_cast<double>(update_of(i));
      sum += update * update;
    });
    sums[block] = sum;
  });
  const float size = step_size(step, sums, count);
  const float decay = decay_of(step);
  ctx.threads.parallel_for(blocks, [&](std::size_t block, int) {
    elements_of(block, [&](std::size_t i) {
      parameters[i] = parameters[i] * decay - size * update_of(i);
      if (copy != nullptr) copy[i] = to_bfloat16(parameters[i]);
    });
  });
}

}  // namespace tandem::kernels
