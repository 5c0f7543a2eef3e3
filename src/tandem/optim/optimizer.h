// The optimizers, over slices of a model's parameter arena: AdamW in torch's and transformers'
// form, SGD, Adagrad, Adafactor. Each computes what the optimizer of its name computes in torch or
// transformers (formulas: kernels/adamw.h, gradient_descent.h, adafactor.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/bfloat16.h"
#include "tandem/core/enum_name.h"
#include "tandem/kernels/context.h"
#include "tandem/nn/parameter_layout.h"
#include "tandem/optim/rate_rules.h"
#include "tandem/optim/update_guard.h"

namespace tandem::optim {

// The values of --optim, in the order of kOptimizerNames. kAdamwTorch also stands for
// adamw_torch_fused (same mathematics).
enum class OptimizerName { kAdamwTorch, kAdamwHf, kSgd, kAdagrad, kAdafactor };

inline constexpr std::string_view kOptimizerNames[] = {"adamw_torch", "adamw_hf", "sgd", "adagrad",
                                                       "adafactor"};
inline EnumNames enum_names(OptimizerName) { return kOptimizerNames; }
inline std::string_view to_string(OptimizerName name) {
  return kOptimizerNames[static_cast<std::size_t>(name)];
}

// All options of the optimizers; each reads those that concern it.
struct OptimizerOptions {
  OptimizerName name = OptimizerName::kAdamwTorch;
  double weight_decay = 0.0;         // decay of the parameters whose ParameterSpec has weight_decay
  std::vector<RateRule> rates = {};  // --learning_rate_mapping
  // AdamW: --adam_beta1, --adam_beta2, --adam_epsilon.
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  // --optim_args of sgd.
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
  // --optim_args of adagrad.
  double adagrad_lr_decay = 0;
  double adagrad_epsilon = 1e-10;
  double initial_accumulator_value = 0;
  // Options of adafactor, which Hugging Face's Trainer runs with scale_parameter and relative_step
  // off.
  double clip_threshold = 1.0;
  double decay_rate = -0.8;
  double squared_gradient_epsilon = 1e-30;

  // Throws ConfigError that names the flag, its value and the range.
  void validate() const;
};

// Reads --optim_args ("momentum=0.9,nesterov=True") into `options` of options.name. Throws
// ConfigError that names the key, what was found, and what the optimizer takes.
void parse_optimizer_arguments(std::string_view text, OptimizerOptions& options);

// A tensor of the optimizer's state.
struct StateTensor {
  std::string name;  // torch's name of the state, a dot, the parameter's name
  std::vector<std::size_t> shape;
  std::size_t offset = 0;  // in the state
  std::size_t size = 0;
};

// The arenas of one model. In a distributed run they lie in memory shared by the node's ranks.
struct ParameterArenas {
  std::span<float> weights;          // [layout.size()] f32 masters, the trained ones first
  std::span<bfloat16> weights_bf16;  // rounded copy of the first; empty when training in f32
  std::span<const float> gradients;  // [layout.trained_size()]
  std::span<float> state;            // [Optimizer::state_elements()], 0 before the first step
};

// Values that change from step to step.
struct OptimizerStep {
  std::uint64_t step = 1;  // t, counted from 1
  double learning_rate = 0;
  double gradient_scale = 1;  // factor of every gradient: clipping, and the mean over shards
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // f32 elements of state that the whole model needs.
  virtual std::size_t state_elements() const = 0;
  // Where what lies in it: all that a checkpoint has to keep, in the order of the layout.
  virtual std::vector<StateTensor> state_tensors() const = 0;
  // How step() cuts the whole layout where there is a guard.
  virtual UpdatePieces pieces() const = 0;

  // One update, in place, of the elements [begin, end): a rank passes the slices it owns, which
  // together are [0, layout.trained_size()), as a lone process does. However they are cut and on
  // however many threads, the result is the same to the bit. Allocates nothing. Parameters that are
  // not trainable are left alone (their bf16 copy is the caller's, made once at start).
  // Adafactor's unit is the parameter: it updates the parameters that begin in [begin, end), whole.
  // With a `guard` the update goes piece by piece, and leaves those alone that are done already;
  // `begin` is then a multiple of kPiece. The bits are the same with and without.
  virtual void step(const kernels::Context& context, const OptimizerStep& step,
                    const ParameterArenas& arenas, std::size_t begin, std::size_t end,
                    UpdateGuard* guard = nullptr) = 0;

  // Elements of the layout that a thread updates at a time.
  static constexpr std::size_t kPiece = 16384;
};

// Throws ConfigError (OptimizerOptions::validate, parameter_groups).
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options,
                                          const nn::ParameterLayout& layout);

// The tensors of a state that is one arena of the layout after another, one for each of `names`:
// "<name>.<parameter>" for every trainable parameter.
std::vector<StateTensor> arena_tensors(const nn::ParameterLayout& layout,
                                       std::span<const std::string_view> names);

}  // namespace tandem::optim
