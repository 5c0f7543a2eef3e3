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

void GatheredLoss::begin(const StepBatches& batches, const RowShape& shape) {
  batches_ = batches;
  sizes_.assign(batches.sizes.begin(), batches.sizes.end());
  batches_.sizes = sizes_;
  shape_ = shape;
  capacity_ = *std::max_element(sizes_.begin(), sizes_.end());
  values_.assign(batches.shards * batches.micro_batches * block_size(), 0.0f);
  losses_.clear();
}

std::span<float> GatheredLoss::embeddings(BatchPosition position) {
  return std::span(values_).subspan(
      block(position.micro, position.shard),
      rows(position.micro, position.shard) * shape_.columns * shape_.width);
}

std::span<float> GatheredLoss::labels(BatchPosition position) {
  return std::span(values_).subspan(
      block(position.micro, position.shard) + capacity_ * shape_.columns * shape_.width,
      rows(position.micro, position.shard) * shape_.labels);
}

std::span<const float> GatheredLoss::gradient(BatchPosition position) const {
  const std::size_t size = capacity_ * shape_.columns * shape_.width;
  const std::size_t index =
      (position.shard - batches_.first_shard) * batches_.micro_batches + position.micro;
  return std::span(gradient_).subspan(
      index * size, rows(position.micro, position.shard) * shape_.columns * shape_.width);
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
  const std::size_t width = shape_.width;
  group_.resize(shape_.columns * all * width);
  group_labels_.resize(all * shape_.labels);
  std::size_t before = 0;
  for (std::size_t shard = 0; shard < batches_.shards; ++shard) {
    const BatchPosition position{micro, shard};
    const std::size_t count = rows(micro, shard);
    const std::span<const float> from = embeddings(position);
    for (std::size_t column = 0; column < shape_.columns; ++column) {
      const auto part = from.subspan(column * count * width, count * width);
      std::copy(part.begin(), part.end(),
                group_.begin() + static_cast<std::ptrdiff_t>((column * all + before) * width));
    }
    const std::span<const float> given = labels(position);
    std::copy(given.begin(), given.end(),
              group_labels_.begin() + static_cast<std::ptrdiff_t>(before * shape_.labels));
    before += count;
  }
  return {.rows = all,
          .columns = shape_.columns,
          .width = width,
          .values = group_,
          .labels = group_labels_};
}

// The ranks work on different rows and exchange what they found.
void GatheredLoss::exchange_statistics(const EmbeddingLoss& loss, const kernels::Context& context,
                                       StepContrast::Gather gather) {
  for (std::size_t micro = 0; micro < batches_.micro_batches; ++micro) {
    const EmbeddedRows group = assemble(micro);
    if (micro == 0) {
      per_row_ = loss.statistics_per_row(group);
      if (per_row_ == 0) return;
      statistics_.assign(batches_.shards * batches_.micro_batches * capacity_ * per_row_, 0.0f);
    }
    const RowRange own = own_rows(micro);
    group_statistics_.resize(own.size() * per_row_);
    loss.row_statistics(group, own, group_statistics_, context);
    auto from = group_statistics_.begin();
    for (std::size_t shard = batches_.first_shard; shard < batches_.end_shard; ++shard) {
      const auto size = static_cast<std::ptrdiff_t>(rows(micro, shard) * per_row_);
      const std::size_t at = (shard * batches_.micro_batches + micro) * capacity_ * per_row_;
      std::copy(from, from + size, statistics_.begin() + static_cast<std::ptrdiff_t>(at));
      from += size;
    }
  }
  gather(statistics_);
}

std::span<const float> GatheredLoss::statistics_of(std::size_t micro) {
  if (per_row_ == 0) return {};
  group_statistics_.clear();
  for (std::size_t shard = 0; shard < batches_.shards; ++shard) {
    const std::size_t at = (shard * batches_.micro_batches + micro) * capacity_ * per_row_;
    const auto from = std::span(statistics_).subspan(at, rows(micro, shard) * per_row_);
    group_statistics_.insert(group_statistics_.end(), from.begin(), from.end());
  }
  return group_statistics_;
}

// From [columns, own rows, width] of the micro-batch to [columns, rows, width] of each shard.
void GatheredLoss::keep_gradient(std::size_t micro) {
  const std::size_t width = shape_.width;
  const std::size_t size = capacity_ * shape_.columns * width;
  const RowRange own = own_rows(micro);
  const auto own_count = own.size();
  std::size_t before = 0;
  for (std::size_t shard = batches_.first_shard; shard < batches_.end_shard; ++shard) {
    const std::size_t count = rows(micro, shard);
    const std::size_t to = ((shard - batches_.first_shard) * batches_.micro_batches + micro) * size;
    for (std::size_t column = 0; column < shape_.columns; ++column) {
      const auto from =
          std::span(group_gradient_).subspan((column * own_count + before) * width, count * width);
      std::copy(from.begin(), from.end(),
                gradient_.begin() + static_cast<std::ptrdiff_t>(to + column * count * width));
    }
    before += count;
  }
}

void GatheredLoss::compute(const EmbeddingLoss& loss, const kernels::Context& context,
                           StepContrast::Gather gather) {
  gather(values_);
  exchange_statistics(loss, context, gather);
  gradient_.resize((batches_.end_shard - batches_.first_shard) * batches_.micro_batches *
                   capacity_ * shape_.columns * shape_.width);
  for (std::size_t micro = 0; micro < batches_.micro_batches; ++micro) {
    const EmbeddedRows group = assemble(micro);
    const RowRange own = own_rows(micro);
    group_gradient_.resize(own.size() * shape_.columns * shape_.width);
    losses_.push_back(
        loss.loss_and_gradient(group, statistics_of(micro), own, group_gradient_, context));
    keep_gradient(micro);
  }
}

}  // namespace tandem::tasks::embedding
