#include "tandem/tasks/embedding/gathered_loss.h"

#include <algorithm>

#include "tandem/core/error.h"

namespace tandem::tasks::embedding {

std::size_t GatheredLoss::bytes(const StepBatches& batches, const RowShape& shape,
                                std::size_t batch_size, std::size_t statistics) {
  const std::size_t of_row = shape.columns * shape.width;
  const std::size_t own = batches.end_shard - batches.first_shard;
  const std::size_t group = batch_size * batches.shards;
  const std::size_t received = group * batches.micro_batches * (of_row + shape.labels + statistics);
  const std::size_t assembled = group * (of_row + shape.labels + statistics);
  const std::size_t gradients = batch_size * own * of_row * (batches.micro_batches + 1);
  return (received + assembled + gradients) * sizeof(float);
}

void GatheredLoss::begin(const StepBatches& batches, const RowShape& largest) {
  batches_ = batches;
  sizes_.assign(batches.sizes.begin(), batches.sizes.end());
  batches_.sizes = sizes_;
  largest_ = largest;
  micros_.assign(batches.micro_batches, MicroBatch());
  capacity_ = *std::max_element(sizes_.begin(), sizes_.end());
  values_.assign(batches.shards * batches.micro_batches * block_size(), 0.0f);
  losses_.clear();
}

void GatheredLoss::describe(std::size_t micro, const RowShape& shape, const EmbeddingLoss& loss) {
  micros_.at(micro) = {shape, &loss, 0};
}

std::span<float> GatheredLoss::embeddings(BatchPosition position) {
  const RowShape& shape = micros_[position.micro].shape;
  return std::span(values_).subspan(
      block(position.micro, position.shard),
      rows(position.micro, position.shard) * shape.columns * shape.width);
}

std::span<float> GatheredLoss::labels(BatchPosition position) {
  return std::span(values_).subspan(
      block(position.micro, position.shard) + capacity_ * largest_.columns * largest_.width,
      rows(position.micro, position.shard) * micros_[position.micro].shape.labels);
}

std::span<const float> GatheredLoss::gradient(BatchPosition position) const {
  const std::size_t size = capacity_ * largest_.columns * largest_.width;
  const std::size_t index =
      (position.shard - batches_.first_shard) * batches_.micro_batches + position.micro;
  const RowShape& shape = micros_[position.micro].shape;
  return std::span(gradient_).subspan(
      index * size, rows(position.micro, position.shard) * shape.columns * shape.width);
}

std::size_t GatheredLoss::rows_before(std::size_t micro, std::size_t shard) const {
  std::size_t before = 0;
  for (std::size_t other = 0; other < shard; ++other) before += rows(micro, other);
  return before;
}

RowRange GatheredLoss::own_rows(std::size_t micro) const {
  return {rows_before(micro, batches_.first_shard), rows_before(micro, batches_.end_shard)};
}

EmbeddedRows GatheredLoss::assemble(std::size_t micro) {
  const std::size_t all = rows_before(micro, batches_.shards);
  const RowShape& shape = micros_[micro].shape;
  const std::size_t width = shape.width;
  group_.resize(shape.columns * all * width);
  group_labels_.resize(all * shape.labels);
  std::size_t before = 0;
  for (std::size_t shard = 0; shard < batches_.shards; ++shard) {
    const BatchPosition position{micro, shard};
    const std::size_t count = rows(micro, shard);
    const std::span<const float> from = embeddings(position);
    for (std::size_t column = 0; column < shape.columns; ++column) {
      const auto part = from.subspan(column * count * width, count * width);
      std::copy(part.begin(), part.end(),
                group_.begin() + static_cast<std::ptrdiff_t>((column * all + before) * width));
    }
    const std::span<const float> given = labels(position);
    std::copy(given.begin(), given.end(),
              group_labels_.begin() + static_cast<std::ptrdiff_t>(before * shape.labels));
    before += count;
  }
  return {.rows = all,
          .columns = shape.columns,
          .width = width,
          .values = group_,
          .labels = group_labels_};
}

// The ranks work on different rows and exchange what they found.
void GatheredLoss::exchange_statistics(const kernels::Context& context, Gather gather) {
  per_row_ = 0;
  for (MicroBatch& one : micros_) {
    const EmbeddedRows shape{.rows = capacity_,
                             .columns = one.shape.columns,
                             .width = one.shape.width,
                             .values = {},
                             .labels = {}};
    one.statistics = one.loss->statistics_per_row(shape);
    per_row_ = std::max(per_row_, one.statistics);
  }
  if (per_row_ == 0) return;
  statistics_.assign(batches_.shards * batches_.micro_batches * capacity_ * per_row_, 0.0f);
  for (std::size_t micro = 0; micro < batches_.micro_batches; ++micro) {
    const std::size_t per_row = micros_[micro].statistics;
    if (per_row == 0) continue;
    const EmbeddedRows group = assemble(micro);
    const RowRange own = own_rows(micro);
    group_statistics_.resize(own.size() * per_row);
    micros_[micro].loss->row_statistics(group, own, group_statistics_, context);
    auto from = group_statistics_.begin();
    for (std::size_t shard = batches_.first_shard; shard < batches_.end_shard; ++shard) {
      const auto size = static_cast<std::ptrdiff_t>(rows(micro, shard) * per_row);
      const std::size_t at = (shard * batches_.micro_batches + micro) * capacity_ * per_row_;
      std::copy(from, from + size, statistics_.begin() + static_cast<std::ptrdiff_t>(at));
      from += size;
    }
  }
  gather(statistics_);
}

std::span<const float> GatheredLoss::statistics_of(std::size_t micro) {
  const std::size_t per_row = micros_[micro].statistics;
  group_statistics_.clear();
  if (per_row == 0) return {};
  for (std::size_t shard = 0; shard < batches_.shards; ++shard) {
    const std::size_t at = (shard * batches_.micro_batches + micro) * capacity_ * per_row_;
    const auto from = std::span(statistics_).subspan(at, rows(micro, shard) * per_row);
    group_statistics_.insert(group_statistics_.end(), from.begin(), from.end());
  }
  return group_statistics_;
}

// From [columns, own rows, width] of the micro-batch to [columns, rows, width] of each shard.
void GatheredLoss::keep_gradient(std::size_t micro) {
  const RowShape& shape = micros_[micro].shape;
  const std::size_t width = shape.width;
  const std::size_t size = capacity_ * largest_.columns * largest_.width;
  const RowRange own = own_rows(micro);
  const auto own_count = own.size();
  std::size_t before = 0;
  for (std::size_t shard = batches_.first_shard; shard < batches_.end_shard; ++shard) {
    const std::size_t count = rows(micro, shard);
    const std::size_t to = ((shard - batches_.first_shard) * batches_.micro_batches + micro) * size;
    for (std::size_t column = 0; column < shape.columns; ++column) {
      const auto from =
          std::span(group_gradient_).subspan((column * own_count + before) * width, count * width);
      std::copy(from.begin(), from.end(),
                gradient_.begin() + static_cast<std::ptrdiff_t>(to + column * count * width));
    }
    before += count;
  }
}

void GatheredLoss::compute(const kernels::Context& context, Gather gather) {
  gather(values_);
  exchange_statistics(context, gather);
  gradient_.resize((batches_.end_shard - batches_.first_shard) * batches_.micro_batches *
                   capacity_ * largest_.columns * largest_.width);
  for (std::size_t micro = 0; micro < batches_.micro_batches; ++micro) {
    const RowShape& shape = micros_[micro].shape;
    const EmbeddedRows group = assemble(micro);
    const RowRange own = own_rows(micro);
    group_gradient_.resize(own.size() * shape.columns * shape.width);
    losses_.push_back(micros_[micro].loss->loss_and_gradient(group, statistics_of(micro), own,
                                                             group_gradient_, context));
    keep_gradient(micro);
  }
}

}  // namespace tandem::tasks::embedding
