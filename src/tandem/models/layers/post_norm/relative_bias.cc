#include "tandem/models/layers/post_norm/relative_bias.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/region.h"

namespace tandem::models {
namespace {

constexpr std::size_t kDirection = kRelativeBuckets / 2;  // buckets of one direction
constexpr std::size_t kExact = kDirection / 2;            // buckets of one distance each
constexpr std::size_t kFarthest = 128;                    // from here on all share the last

std::size_t bucket_of_magnitude(std::size_t distance) {
  if (distance < kExact) return distance;
  if (distance >= kFarthest) return kDirection - 1;
  // In f32, as transformers computes it.
  const float share = std::log(static_cast<float>(distance) / static_cast<float>(kExact)) /
                      static_cast<float>(std::log(static_cast<double>(kFarthest) / kExact));
  const auto further = static_cast<std::size_t>(share * static_cast<float>(kDirection - kExact));
  return std::min(kExact + further, kDirection - 1);
}

std::size_t longest_of(const kernels::Sequences& sequences) {
  std::size_t longest = 1;
  for (std::size_t i = 0; i < sequences.count(); ++i)
    longest = std::max(longest, sequences.rows_of(i));
  return longest;
}

// Calls visit(index in a head's band, bucket) for the distances −reach … reach.
template <class Visit>
void for_each_distance(std::size_t reach, Visit visit) {
  for (std::size_t at = 0; at <= 2 * reach; ++at)
    visit(at,
          relative_bucket(static_cast<std::ptrdiff_t>(at) - static_cast<std::ptrdiff_t>(reach)));
}

}  // namespace

std::size_t relative_bucket(std::ptrdiff_t distance) {
  const auto magnitude = static_cast<std::size_t>(std::abs(distance));
  return bucket_of_magnitude(magnitude) + (distance > 0 ? kDirection : 0);
}

void RelativeBias::add_to(nn::ParameterLayout& layout, std::string name) {
  table_ = layout.add(std::move(name), {kRelativeBuckets, heads_}, nn::ParameterKind::kBias);
}

RelativeBias::Band RelativeBias::band_of(std::size_t longest, std::span<std::byte> memory) const {
  Region region(memory);
  Band band;
  band.reach = longest - 1;
  const std::size_t size = heads_ * (2 * band.reach + 1);
  band.values = region.allocate<float>(size);
  if (region.used() + size * sizeof(float) <= memory.size())
    band.sums = region.allocate<float>(size);
  return band;
}

std::size_t RelativeBias::bytes(std::size_t rows, nn::Precision, bool training) const {
  Region measure;
  const std::size_t size = heads_ * (2 * std::min(rows, max_rows_) - 1);
  measure.allocate<float>(size);
  if (training) measure.allocate<float>(size);
  return measure.used();
}

void RelativeBias::forward(const nn::Pass& pass, std::span<std::byte> memory) const {
  const std::size_t longest = longest_of(pass.sequences);
  if (longest > max_rows_) {
    raise<InvalidArgument>("a sequence of {} rows; the model has positions for {}", longest,
                           max_rows_);
  }
  const Band band = band_of(longest, memory);
  const std::size_t width = 2 * band.reach + 1;
  const float* table = pass.weights.vector(table_);
  for_each_distance(band.reach, [&](std::size_t at, std::size_t bucket) {
    for (std::size_t head = 0; head < heads_; ++head)
      band.values[head * width + at] = table[bucket * heads_ + head];
  });
}

void RelativeBias::clear_sums(const nn::Pass& pass, std::span<std::byte> memory) const {
  std::ranges::fill(band_of(longest_of(pass.sequences), memory).sums, 0.0f);
}

// Each element is a sum over the distances of its bucket, from the lowest.
void RelativeBias::backward(const nn::Pass& pass, std::span<std::byte> memory,
                            const nn::Gradients& grads) const {
  if (grads.at(table_) == nullptr) return;  // frozen
  const Band band = band_of(longest_of(pass.sequences), memory);
  const std::size_t width = 2 * band.reach + 1;
  for (std::size_t head = 0; head < heads_; ++head) {
    double sums[kRelativeBuckets] = {};
    for_each_distance(band.reach, [&](std::size_t at, std::size_t bucket) {
      sums[bucket] += static_cast<double>(band.sums[head * width + at]);
    });
    for (std::size_t bucket = 0; bucket < kRelativeBuckets; ++bucket) {
      float* to = grads.at(table_ + bucket * heads_ + head);
      *to = static_cast<float>(sums[bucket]) + (grads.accumulate ? *to : 0.0f);
    }
  }
}

kernels::PositionBias RelativeBias::band(const nn::Pass& pass, std::span<std::byte> memory) const {
  const Band band = band_of(longest_of(pass.sequences), memory);
  return {.reach = band.reach, .values = band.values.data()};
}

float* RelativeBias::band_sums(const nn::Pass& pass, std::span<std::byte> memory) const {
  return band_of(longest_of(pass.sequences), memory).sums.data();
}

}  // namespace tandem::models
