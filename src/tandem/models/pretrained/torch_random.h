// torch's CPU random numbers, as far as the initialisation of parameters needs them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>

namespace tandem::models {

// torch.Generator after manual_seed(seed).
class TorchGenerator {
 public:
  explicit TorchGenerator(std::uint64_t seed) : engine_(static_cast<std::uint32_t>(seed)) {}

  // tensor.normal_(mean, standard_deviation) of a contiguous f32 tensor. Torch vectorises logarithm
  // and cosine, so values agree to about 1e-8 for a standard deviation of 0.02, not bit for bit.
  //   16 elements or more: 24-bit uniforms for the whole tensor first, then Box-Muller on blocks
  //     of 16. With a tail that is not a full block, the last 16 elements are drawn again from
  //     fresh uniforms.
  //   fewer: one by one in double precision, two per Box-Muller pair; the second of a pair waits
  //     for the next element, also when that is in the next tensor.
  void fill_normal(std::span<float> out, double mean, double standard_deviation);
  // torch.nn.init.trunc_normal_ of a contiguous f32 tensor, as since torch 2.13: mean 0, cut off at
  // `cutoff` standard deviations to either side. As long as a value lies outside, the whole tensor
  // is drawn again and such values are replaced. Expects a cutoff of at least kMinCutoff, below
  // which torch draws otherwise.
  static constexpr double kMinCutoff = 0.4;
  void fill_truncated_normal(std::span<float> out, double standard_deviation, double cutoff);
  // tensor.uniform_(from, to) of a contiguous f32 tensor, bit for bit.
  void fill_uniform(std::span<float> out, float from, float to);
  // The draws of tensors of `size` elements whose values are not read: tensor.normal_() and
  // tensor.uniform_().
  void skip_normal(std::size_t size);
  void skip_uniform(std::size_t size) { engine_.discard(size); }

 private:
  float uniform_24_bits();
  double uniform_53_bits();
  double scalar_normal();

  std::mt19937 engine_;
  std::optional<double> second_normal_;
};

}  // namespace tandem::models
