#include "tandem/models/layers/post_norm/relative_embeddings.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/region.h"
#include "tandem/kernels/disentangled_attention.h"

namespace tandem::models {
namespace {

std::size_t longest_sequence(const kernels::Sequences& sequences) {
  std::size_t longest = 1;
  for (std::size_t i = 0; i < sequences.count(); ++i)
    longest = std::max(longest, sequences.rows_of(i));
  return longest;
}

// Lays out the matrices of `rows` positions for distances up to `reach`.
RelativeEmbeddings::Positions lay_out(Region& region, std::size_t rows, std::size_t reach,
                                      std::size_t hidden_size, nn::Precision precision) {
  RelativeEmbeddings::Positions p;
  p.rows = rows;
  p.row_of = region.allocate<std::int32_t>(2 * reach + 1);
  p.row_begin = region.allocate<std::uint32_t>(2);
  p.key_count = region.allocate<std::uint32_t>(1);
  p.sample = region.allocate<std::uint64_t>(1);
  p.norm = nn::LayerNormActivations::allocate(region, rows, hidden_size);
  p.normed = region.allocate<float>(rows * hidden_size);
  if (precision == nn::Precision::kBfloat16)
    p.rounded = region.allocate<bfloat16>(rows * hidden_size);
  return p;
}

}  // namespace

std::ptrdiff_t position_bucket(std::ptrdiff_t distance, std::size_t buckets, std::size_t farthest) {
  const auto middle = static_cast<std::ptrdiff_t>(buckets / 2);
  const std::ptrdiff_t magnitude = distance < 0 ? -distance : distance;
  if (magnitude <= middle) return distance;
  const auto half = static_cast<float>(middle);
  const float share =
      std::log(static_cast<float>(magnitude) / half) /
      std::log(static_cast<float>(static_cast<double>(farthest - 1) / static_cast<double>(middle)));
  const auto further = static_cast<std::ptrdiff_t>(std::ceil(share * (half - 1)));
  return distance < 0 ? -(middle + further) : middle + further;
}

RelativeEmbeddings::RelativeEmbeddings(const RelativeEmbeddingsOptions& options)
    : options_(options), buckets_(options.max_rows), sums_(options.max_rows + 1) {
  // Beyond the table all distances have its last row.
  for (std::size_t d = 0; d < buckets_.size(); ++d) {
    const std::ptrdiff_t bucket =
        position_bucket(static_cast<std::ptrdiff_t>(d), options.buckets, options.farthest);
    buckets_[d] = std::min(static_cast<std::size_t>(bucket), options.buckets);
    sums_[d + 1] = sums_[d] + buckets_[d];
  }
}

void RelativeEmbeddings::add_to(nn::ParameterLayout& layout, const std::string& norm,
                                std::string table) {
  norm_ = layout.add_layer_norm(norm, options_.hidden_size);
  table_ = layout.add(std::move(table), {2 * options_.buckets, options_.hidden_size},
                      nn::ParameterKind::kEmbedding);
}

std::size_t RelativeEmbeddings::bucket(std::size_t distance) const { return buckets_[distance]; }

std::size_t RelativeEmbeddings::positions(std::size_t rows) const {
  return 2 * bucket(std::clamp<std::size_t>(rows, 1, options_.max_rows) - 1) + 1;
}

// From row i, the distances are those from −i to keys − 1 − i; from key j, those from j − rows + 1
// to j. A distance of one sign has as many positions as its bucket, and both ends share one.
std::size_t RelativeEmbeddings::products(std::size_t rows, std::size_t keys) const {
  const std::size_t all = std::min(rows, options_.max_rows), real = std::min(keys, all);
  if (real == 0) return 0;
  const std::size_t behind = sums_[all - real + 1];  // of rows behind the last token
  const std::size_t of_rows = all + sums_[all] + sums_[real] - behind;
  const std::size_t of_keys = real + sums_[real] + sums_[all] - sums_[all - real];
  return of_rows + of_keys;
}

// Rows are numbered by the distance key − query, those of the table by query − key.
std::size_t RelativeEmbeddings::table_row(std::size_t numbered) const {
  return std::min(2 * options_.buckets - numbered, 2 * options_.buckets - 1);
}

std::size_t RelativeEmbeddings::bytes(std::size_t rows, nn::Precision precision,
                                      bool training) const {
  Region measure;
  const std::size_t P = positions(rows);
  lay_out(measure, P, std::min(rows, options_.max_rows) - 1, options_.hidden_size, precision);
  if (training) measure.allocate<float>(P * options_.hidden_size);
  return measure.used();
}

RelativeEmbeddings::Positions RelativeEmbeddings::positions_of(const nn::Pass& pass,
                                                               std::span<std::byte> memory) const {
  Region region(memory);
  const std::size_t longest = longest_sequence(pass.sequences);
  const std::size_t P = positions(longest), size = P * options_.hidden_size;
  Positions p = lay_out(region, P, longest - 1, options_.hidden_size, pass.weights.precision());
  p.first = options_.buckets - bucket(longest - 1);
  if (region.used() + size * sizeof(float) <= memory.size()) p.grad = region.allocate<float>(size);
  return p;
}

nn::Pass RelativeEmbeddings::Positions::pass_of(const nn::Pass& texts) const {
  return {.context = texts.context,
          .weights = texts.weights,
          .sequences = {row_begin, key_count, sample},
          .dropout = texts.dropout,
          .low_rank_memory = texts.low_rank_memory};
}

template <class T>
void RelativeEmbeddings::norm_forward(const nn::Pass& pass, const Positions& p) const {
  nn::layer_norm_forward<T>(p.pass_of(pass), norm_, options_.layer_norm_eps, p.norm,
                            {p.normed, p.operand<T>()});
}

void RelativeEmbeddings::forward(const nn::Pass& pass, std::span<std::byte> memory) const {
  const std::size_t longest = longest_sequence(pass.sequences);
  if (longest > options_.max_rows) {
    raise<InvalidArgument>("a sequence of {} rows; the model has positions for {}", longest,
                           options_.max_rows);
  }
  const Positions p = positions_of(pass, memory);
  const std::size_t reach = longest - 1, H = options_.hidden_size;
  for (std::size_t d = 0; d <= reach; ++d) {
    p.row_of[reach - d] = static_cast<std::int32_t>(bucket(reach) - bucket(d));
    p.row_of[reach + d] = static_cast<std::int32_t>(bucket(reach) + bucket(d));
  }
  p.row_begin[0] = 0;
  p.row_begin[1] = p.key_count[0] = static_cast<std::uint32_t>(p.rows);
  p.sample[0] = kernels::kNoSample;
  const float* const table = pass.weights.vector(table_);
  for (std::size_t row = 0; row < p.rows; ++row)
    std::copy_n(table + table_row(p.first + row) * H, H, p.norm.sum.data() + row * H);
  if (pass.weights.precision() == nn::Precision::kFloat32) {
    norm_forward<float>(pass, p);
  } else {
    norm_forward<bfloat16>(pass, p);
  }
}

void RelativeEmbeddings::clear_sums(const nn::Pass& pass, std::span<std::byte> memory) const {
  std::ranges::fill(positions_of(pass, memory).grad, 0.0f);
}

// Two positions may have the last row of the table: their gradients are added in their order.
void RelativeEmbeddings::backward(const nn::Pass& pass, std::span<std::byte> memory,
                                  const nn::Gradients& grads) const {
  if (grads.at(table_) == nullptr) return;  // frozen
  const Positions p = positions_of(pass, memory);
  nn::layer_norm_backward<float>(p.pass_of(pass), norm_, {}, p.norm, p.grad, p.grad, {}, grads);
  const std::size_t H = options_.hidden_size;
  float* const table = grads.at(table_);
  if (!grads.accumulate) std::fill_n(table, 2 * options_.buckets * H, 0.0f);
  for (std::size_t row = 0; row < p.rows; ++row) {
    float* const to = table + table_row(p.first + row) * H;
    for (std::size_t c = 0; c < H; ++c) to[c] += p.grad[row * H + c];
  }
}

}  // namespace tandem::models
