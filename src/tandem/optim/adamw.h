// AdamW (Loshchilov & Hutter 2019) as torch.optim.AdamW computes it, over slices of a model's
// parameter arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tandem/core/bfloat16.h"
#include "tandem/kernels/context.h"
#include "tandem/nn/parameter_layout.h"

namespace tandem::optim {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;  // of the parameters whose ParameterSpec says weight_decay

  // Throws ConfigError that names the flag (adam_beta1 …), its value and the range.
  void validate() const;
};

// The arenas of one model, each of layout.size() elements. In a distributed run they lie in memory
// shared by the node's ranks.
struct ParameterArenas {
  std::span<float> weights;          // f32 masters
  std::span<bfloat16> weights_bf16;  // their rounded copy; empty when training in f32
  std::span<const float> gradients;
  std::span<float> exp_avg;     // first moment m, 0 before the first step
  std::span<float> exp_avg_sq;  // second moment v, 0 before the first step
};

// What changes from step to step.
struct AdamWStep {
  std::uint64_t step = 1;  // t, counted from 1
  double learning_rate = 0;
  double gradient_scale = 1;  // factor of every gradient: clipping, and the mean over shards
};

class AdamW {
 public:
  // Throws ConfigError (AdamWOptions::validate).
  AdamW(const AdamWOptions& options, const nn::ParameterLayout& layout);

  // One update, in place, of the elements [begin, end): a rank passes the slice it owns, a lone
  // process [0, layout.size()).
  //   g = gradient_scale·gradients;   w *= 1 − lr·weight_decay
  //   m = β1·m + (1−β1)·g;            v = β2·v + (1−β2)·g²
  //   w −= lr/(1−β1^t) · m / (√v/√(1−β2^t) + ε);   weights_bf16 = round(w)
  // Elementwise, so slicing and threads do not change a bit. Parameters that are not trainable are
  // left alone (their bf16 copy is the caller's, made once at start).
  void step(const kernels::Context& context, const AdamWStep& step, const ParameterArenas& arenas,
            std::size_t begin, std::size_t end) const;

  const AdamWOptions& options() const { return options_; }

 private:
  AdamWOptions options_;
  std::vector<nn::ElementRange> ranges_;
};

}  // namespace tandem::optim
