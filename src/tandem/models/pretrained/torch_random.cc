#include "tandem/models/pretrained/torch_random.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <vector>

#include "tandem/core/error.h"

namespace tandem::models {
namespace {

constexpr std::size_t kBlock = 16;

// Box-Muller: 16 uniforms in [0, 1) become 16 normals. Element j < 8 is paired with element j + 8.
// In f32, as torch: the angle reaches 2π, where rounding it to f32 moves the result by more than
// the digits that are to agree.
void box_muller_block(std::span<float, kBlock> values, float mean, float standard_deviation) {
  for (std::size_t j = 0; j < kBlock / 2; ++j) {
    const float u1 = 1.0f - values[j];  // (0, 1]: its logarithm is finite
    const float u2 = values[j + kBlock / 2];
    const float radius = std::sqrt(-2.0f * std::log(u1));
    const float theta = (2.0f * std::numbers::pi_v<float>)*u2;
    values[j] = radius * std::cos(theta) * standard_deviation + mean;
    values[j + kBlock / 2] = radius * std::sin(theta) * standard_deviation + mean;
  }
}

}  // namespace

float TorchGenerator::uniform_24_bits() {
  return static_cast<float>(engine_() & 0xffffffu) * 0x1p-24f;
}

double TorchGenerator::uniform_53_bits() {
  const std::uint64_t high = engine_();
  const std::uint64_t low = engine_();
  return static_cast<double>(((high << 32) | low) & ((std::uint64_t{1} << 53) - 1)) * 0x1p-53;
}

double TorchGenerator::scalar_normal() {
  if (second_normal_) {
    const double value = *second_normal_;
    second_normal_.reset();
    return value;
  }
  const double u1 = uniform_53_bits();
  const double u2 = uniform_53_bits();
  const double radius = std::sqrt(-2.0 * std::log1p(-u2));
  const double theta = 2.0 * std::numbers::pi * u1;
  second_normal_ = radius * std::sin(theta);
  return radius * std::cos(theta);
}

void TorchGenerator::fill_uniform(std::span<float> out, float from, float to) {
  const float width = to - from;
  for (float& value : out)
    value = static_cast<float>(static_cast<double>(uniform_24_bits()) * width + from);
}

void TorchGenerator::fill_normal(std::span<float> out, double mean, double standard_deviation) {
  if (out.size() < kBlock) {
    for (float& value : out) {
      value = static_cast<float>(scalar_normal() * standard_deviation + mean);
    }
    return;
  }
  const auto block_mean = static_cast<float>(mean);
  const auto block_deviation = static_cast<float>(standard_deviation);
  for (float& value : out) value = uniform_24_bits();
  std::size_t done = 0;
  for (; done + kBlock <= out.size(); done += kBlock) {
    box_muller_block(out.subspan(done).first<kBlock>(), block_mean, block_deviation);
  }
  if (done < out.size()) {
    const auto last = out.last<kBlock>();
    for (float& value : last) value = uniform_24_bits();
    box_muller_block(last, block_mean, block_deviation);
  }
}

void TorchGenerator::fill_truncated_normal(std::span<float> out, double standard_deviation,
                                           double cutoff) {
  TANDEM_CHECK(cutoff >= kMinCutoff, "cutoff {}", cutoff);
  const auto limit = static_cast<float>(cutoff * standard_deviation);
  const auto outside = [limit](float value) { return std::abs(value) > limit; };
  fill_normal(out, 0.0, standard_deviation);
  std::vector<float> again;
  while (std::ranges::any_of(out, outside)) {
    again.resize(out.size());
    fill_normal(again, 0.0, standard_deviation);
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (outside(out[i])) out[i] = again[i];
    }
  }
}

void TorchGenerator::skip_normal(std::size_t size) {
  if (size < kBlock) {
    for (std::size_t i = 0; i < size; ++i) scalar_normal();
    return;
  }
  engine_.discard(size + (size % kBlock == 0 ? 0 : kBlock));
}

}  // namespace tandem::models
