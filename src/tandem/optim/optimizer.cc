#include "tandem/optim/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tandem/core/error.h"
#include "tandem/kernels/adafactor.h"
#include "tandem/kernels/adamw.h"
#include "tandem/kernels/gradient_descent.h"

namespace tandem::optim {
namespace {

using kernels::Context;
using kernels::KernelSet;
using nn::ElementRange;
using nn::ParameterLayout;
using nn::ParameterSpec;

// Null where there is no copy (any more).
bfloat16* copy_at(const ParameterArenas& arenas, std::size_t offset) {
  return offset < arenas.weights_bf16.size() ? arenas.weights_bf16.data() + offset : nullptr;
}

std::vector<ParameterGroup> groups_of(const OptimizerOptions& options,
                                      const ParameterLayout& layout) {
  std::vector<const ParameterSpec*> parameters;
  for (const ParameterSpec& parameter : layout.parameters()) parameters.push_back(&parameter);
  return parameter_groups(parameters, options.rates);
}

// A run of elements that the optimizer treats alike.
struct Run {
  std::size_t begin = 0, end = 0;
  double weight_decay = 0;
  double rate_factor = 1;
};

// Cuts `runs` at the parameters of a group that has another rate.
void set_rate(const ParameterGroup& group, std::vector<Run>& runs) {
  for (const ParameterSpec* parameter : group.parameters) {
    const auto found =
        std::ranges::find_if(runs, [&](const Run& run) { return parameter->offset < run.end; });
    const Run whole = *found;
    const auto at = runs.erase(found);
    std::vector<Run> parts = {
        {whole.begin, parameter->offset, whole.weight_decay, whole.rate_factor},
        {parameter->offset, parameter->end(), whole.weight_decay, group.rate_factor},
        {parameter->end(), whole.end, whole.weight_decay, whole.rate_factor}};
    std::erase_if(parts, [](const Run& run) { return run.begin == run.end; });
    runs.insert(at, parts.begin(), parts.end());
  }
}

// The trained elements in the order of the arena.
std::vector<Run> runs_of(const OptimizerOptions& options, const ParameterLayout& layout) {
  std::vector<Run> runs;
  for (const ElementRange& range : layout.trainable_ranges())
    runs.push_back({range.begin, range.end, range.weight_decay ? options.weight_decay : 0.0});
  for (const ParameterGroup& group : groups_of(options, layout))
    if (group.rate_factor != 1) set_rate(group, runs);
  return runs;
}

// An optimizer that works element by element, on runs of equal weight decay and rate.
class Elementwise : public Optimizer {
 public:
  // `names` of the arenas that its state is made of.
  Elementwise(const OptimizerOptions& options, const ParameterLayout& layout,
              const std::vector<std::string_view>& names)
      : options_(options),
        arena_size_(layout.trained_size()),
        runs_(runs_of(options, layout)),
        state_elements_(names.size() * layout.trained_size()),
        tensors_(arena_tensors(layout, names)) {}

  std::size_t state_elements() const override { return state_elements_; }
  std::vector<StateTensor> state_tensors() const override { return tensors_; }

  UpdatePieces pieces() const override { return {.count = num_chunks(arena_size_, kPiece)}; }

  void step(const Context& context, const OptimizerStep& step, const ParameterArenas& arenas,
            std::size_t begin, std::size_t end, UpdateGuard* guard) override {
    TANDEM_CHECK(guard == nullptr || begin % kPiece == 0, "a guarded update begins at {}", begin);
    context.threads.parallel_for(num_chunks(end - begin, kPiece), [&](std::size_t i, int thread) {
      const std::size_t from = begin + i * kPiece;
      const std::size_t to = std::min(end, from + kPiece);
      if (guard == nullptr) {
        update_all(context, step, arenas, from, to, nullptr);
      } else {
        update_piece(context, step, arenas, from, to, thread, *guard);
      }
    });
  }

 protected:
  // On the calling thread. All of [begin, end) have a bf16 copy, or none.
  virtual void update(const KernelSet& kernels, const OptimizerStep& step,
                      const ParameterArenas& arenas, std::size_t begin, std::size_t end,
                      double weight_decay, const kernels::UndoLog* undo) const = 0;

  const OptimizerOptions& options() const { return options_; }
  // Element `offset` of the index-th arena of the state.
  float* state_at(const ParameterArenas& arenas, std::size_t index, std::size_t offset) const {
    return arenas.state.data() + index * arena_size_ + offset;
  }

 private:
  static constexpr std::size_t kMostArenas = 2;
  std::size_t num_arenas() const { return state_elements_ / std::max<std::size_t>(arena_size_, 1); }

  // update_all(), so that another process can finish it.
  void update_piece(const Context& context, const OptimizerStep& step,
                    const ParameterArenas& arenas, std::size_t begin, std::size_t end, int thread,
                    UpdateGuard& guard) const {
    std::array<std::span<float>, 1 + kMostArenas> overwritten = {
        arenas.weights.subspan(begin, end - begin)};
    for (std::size_t arena = 0; arena < num_arenas(); ++arena)
      overwritten[1 + arena] = {state_at(arenas, arena, begin), end - begin};
    const UpdatePiece piece = {.index = begin / kPiece,
                               .elements = end - begin,
                               .overwritten = std::span(overwritten).first(1 + num_arenas())};
    const std::size_t up_to_date = guard.begin(thread, piece);
    if (up_to_date == piece.elements) return;
    const KeptUpdate kept = {guard.undo_log(thread), begin};
    update_all(context, step, arenas, begin + up_to_date, end, &kept);
    guard.done(thread, piece);
  }

  // A log, and the element of the layout that is its first.
  struct KeptUpdate {
    kernels::UndoLog log;
    std::size_t origin;
  };

  // The trainable elements of [begin, end), in runs that have a copy or none.
  void update_all(const Context& context, const OptimizerStep& step, const ParameterArenas& arenas,
                  std::size_t begin, std::size_t end, const KeptUpdate* kept) const {
    const std::size_t copied = arenas.weights_bf16.size();
    const auto first = std::partition_point(runs_.begin(), runs_.end(),
                                            [&](const Run& run) { return run.end <= begin; });
    for (auto run = first; run != runs_.end() && run->begin < end; ++run) {
      OptimizerStep own = step;
      own.learning_rate *= run->rate_factor;
      const std::size_t from = std::max(begin, run->begin);
      const std::size_t to = std::min(end, run->end);
      const std::size_t middle = std::clamp(copied, from, to);
      update_run(context, own, arenas, from, middle, run->weight_decay, kept);
      update_run(context, own, arenas, middle, to, run->weight_decay, kept);
    }
  }

  void update_run(const Context& context, const OptimizerStep& step, const ParameterArenas& arenas,
                  std::size_t begin, std::size_t end, double weight_decay,
                  const KeptUpdate* kept) const {
    if (begin == end) return;
    if (kept == nullptr)
      return update(context.kernels, step, arenas, begin, end, weight_decay, nullptr);
    kernels::UndoLog log = kept->log;
    log.first = begin - kept->origin;
    update(context.kernels, step, arenas, begin, end, weight_decay, &log);
  }

  OptimizerOptions options_;
  std::size_t arena_size_;
  std::vector<Run> runs_;
  std::size_t state_elements_;
  std::vector<StateTensor> tensors_;
};

class AdamW : public Elementwise {
 public:
  AdamW(const OptimizerOptions& options, const ParameterLayout& layout)
      : Elementwise(options, layout, {"exp_avg", "exp_avg_sq"}) {}

 private:
  void update(const KernelSet& kernels, const OptimizerStep& step, const ParameterArenas& arenas,
              std::size_t begin, std::size_t end, double weight_decay,
              const kernels::UndoLog* undo) const override {
    const bool torch = options().name == OptimizerName::kAdamwTorch;
    kernels::adamw(kernels, end - begin,
                   {.lr = step.learning_rate,
                    .beta1 = options().beta1,
                    .beta2 = options().beta2,
                    .eps = options().epsilon,
                    .weight_decay = weight_decay,
                    .step = static_cast<std::int64_t>(step.step),
                    .grad_scale = static_cast<float>(step.gradient_scale),
                    .form = torch ? kernels::AdamWForm::kTorch : kernels::AdamWForm::kHuggingFace},
                   arenas.gradients.data() + begin, arenas.weights.data() + begin,
                   state_at(arenas, 0, begin), state_at(arenas, 1, begin), copy_at(arenas, begin),
                   undo);
  }
};

class Sgd : public Elementwise {
 public:
  Sgd(const OptimizerOptions& options, const ParameterLayout& layout)
      : Elementwise(options, layout, names(options)) {}

 private:
  static std::vector<std::string_view> names(const OptimizerOptions& options) {
    if (options.momentum == 0) return {};
    return {"momentum_buffer"};
  }
  void update(const KernelSet& kernels, const OptimizerStep& step, const ParameterArenas& arenas,
              std::size_t begin, std::size_t end, double weight_decay,
              const kernels::UndoLog* undo) const override {
    kernels::sgd(kernels, end - begin,
                 {.lr = step.learning_rate,
                  .weight_decay = weight_decay,
                  .momentum = options().momentum,
                  .dampening = options().dampening,
                  .nesterov = options().nesterov,
                  .step = static_cast<std::int64_t>(step.step),
                  .grad_scale = static_cast<float>(step.gradient_scale)},
                 arenas.gradients.data() + begin, arenas.weights.data() + begin,
                 options().momentum == 0 ? nullptr : state_at(arenas, 0, begin),
                 copy_at(arenas, begin), undo);
  }
};

class Adagrad : public Elementwise {
 public:
  Adagrad(const OptimizerOptions& options, const ParameterLayout& layout)
      : Elementwise(options, layout, {"sum"}) {}

 private:
  void update(const KernelSet& kernels, const OptimizerStep& step, const ParameterArenas& arenas,
              std::size_t begin, std::size_t end, double weight_decay,
              const kernels::UndoLog* undo) const override {
    kernels::adagrad(kernels, end - begin,
                     {.lr = step.learning_rate,
                      .lr_decay = options().adagrad_lr_decay,
                      .weight_decay = weight_decay,
                      .eps = options().adagrad_epsilon,
                      .initial_sum = options().initial_accumulator_value,
                      .step = static_cast<std::int64_t>(step.step),
                      .grad_scale = static_cast<float>(step.gradient_scale)},
                     arenas.gradients.data() + begin, arenas.weights.data() + begin,
                     state_at(arenas, 0, begin), copy_at(arenas, begin), undo);
  }
};

// Keeps the second moment of a matrix as the means of its rows and columns, that of a vector whole.
class Adafactor : public Optimizer {
 public:
  Adafactor(const OptimizerOptions& options, const ParameterLayout& layout) : options_(options) {
    const std::vector<Run> runs = runs_of(options, layout);
    for (const ParameterSpec& parameter : layout.parameters()) {
      if (!parameter.trainable) continue;
      const Run& run =
          *std::ranges::find_if(runs, [&](const Run& one) { return parameter.offset < one.end; });
      Entry entry{parameter.offset, parameter.size, 1, parameter.shape.back(), state_elements_,
                  run.weight_decay, run.rate_factor};
      entry.is_matrix = parameter.shape.size() >= 2;
      if (entry.is_matrix) {
        entry.rows = parameter.size / entry.columns;
        add_state("exp_avg_sq_row." + parameter.name,
                  {parameter.shape.begin(), parameter.shape.end() - 1});
        add_state("exp_avg_sq_col." + parameter.name, {entry.columns});
      } else {
        add_state("exp_avg_sq." + parameter.name, parameter.shape);
      }
      entries_.push_back(entry);
    }
  }

  std::size_t state_elements() const override { return state_elements_; }
  std::vector<StateTensor> state_tensors() const override { return tensors_; }

  // A piece is a parameter.
  UpdatePieces pieces() const override {
    std::size_t largest = 0;
    for (const Entry& entry : entries_)
      largest = std::max(largest, entry.size + entry.state_size());
    return {.count = entries_.size(), .largest_whole = largest};
  }

  void step(const Context& context, const OptimizerStep& step, const ParameterArenas& arenas,
            std::size_t begin, std::size_t end, UpdateGuard* guard) override {
    kernels::AdafactorStep now = {
        .lr = 0,
        .beta2 = 1.0 - std::pow(static_cast<double>(step.step), options_.decay_rate),
        .clip_threshold = options_.clip_threshold,
        .weight_decay = 0,
        .eps = options_.squared_gradient_epsilon,
        .grad_scale = static_cast<float>(step.gradient_scale)};
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      const Entry& entry = entries_[i];
      if (entry.offset < begin || entry.offset >= end) continue;
      const std::array<std::span<float>, 2> overwritten = {
          arenas.weights.subspan(entry.offset, entry.size),
          arenas.state.subspan(entry.state, entry.state_size())};
      const UpdatePiece piece = {.index = i, .elements = entry.size, .overwritten = overwritten};
      if (guard != nullptr) {
        if (guard->begin(0, piece) == piece.elements) continue;
        guard->keep_whole(0, piece);
      }
      now.lr = step.learning_rate * entry.rate_factor;
      now.weight_decay = entry.weight_decay;
      const float* const gradient = arenas.gradients.data() + entry.offset;
      float* const weights = arenas.weights.data() + entry.offset;
      float* const state = arenas.state.data() + entry.state;
      bfloat16* const copy = copy_at(arenas, entry.offset);
      if (entry.is_matrix) {
        kernels::adafactor_matrix(context, entry.rows, entry.columns, now, gradient, weights, state,
                                  state + entry.rows, copy);
      } else {
        kernels::adafactor_vector(context, entry.size, now, gradient, weights, state, copy);
      }
      if (guard != nullptr) guard->done(0, piece);
    }
  }

 private:
  struct Entry {
    std::size_t offset, size, rows, columns;
    std::size_t state;  // where its state begins
    double weight_decay, rate_factor;
    bool is_matrix = false;
    std::size_t state_size() const { return is_matrix ? rows + columns : size; }
  };

  void add_state(std::string name, std::vector<std::size_t> shape) {
    std::size_t size = 1;
    for (const std::size_t extent : shape) size *= extent;
    tensors_.push_back({std::move(name), std::move(shape), state_elements_, size});
    state_elements_ += size;
  }

  OptimizerOptions options_;
  std::size_t state_elements_ = 0;
  std::vector<StateTensor> tensors_;
  std::vector<Entry> entries_;
};

}  // namespace

void OptimizerOptions::validate() const {
  const auto check = [](const char* flag, double value, bool valid, const char* expected) {
    if (!valid) raise<ConfigError>("--{} is {}; expected {}", flag, value, expected);
  };
  check("adam_beta1", beta1, beta1 >= 0 && beta1 < 1, "a number in [0, 1)");
  check("adam_beta2", beta2, beta2 >= 0 && beta2 < 1, "a number in [0, 1)");
  check("adam_epsilon", epsilon, epsilon >= 0, "a number >= 0");
  check("weight_decay", weight_decay, weight_decay >= 0, "a number >= 0");
  check("optim_args momentum", momentum, momentum >= 0, "a number >= 0");
  check("optim_args lr_decay", adagrad_lr_decay, adagrad_lr_decay >= 0, "a number >= 0");
  check("optim_args initial_accumulator_value", initial_accumulator_value,
        initial_accumulator_value >= 0, "a number >= 0");
  check("optim_args eps", adagrad_epsilon, adagrad_epsilon > 0, "a number > 0");
  check("optim_args clip_threshold", clip_threshold, clip_threshold > 0, "a number > 0");
  check("optim_args decay_rate", decay_rate, decay_rate <= 0, "a number <= 0");
  if (nesterov && (momentum <= 0 || dampening != 0)) {
    raise<ConfigError>("--optim_args nesterov=True needs a momentum above 0 and no dampening");
  }
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options,
                                          const ParameterLayout& layout) {
  options.validate();
  switch (options.name) {
    case OptimizerName::kSgd:
      return std::make_unique<Sgd>(options, layout);
    case OptimizerName::kAdagrad:
      return std::make_unique<Adagrad>(options, layout);
    case OptimizerName::kAdafactor:
      return std::make_unique<Adafactor>(options, layout);
    case OptimizerName::kAdamwTorch:
    case OptimizerName::kAdamwHf:
      break;
  }
  return std::make_unique<AdamW>(options, layout);
}

std::vector<StateTensor> arena_tensors(const ParameterLayout& layout,
                                       std::span<const std::string_view> names) {
  std::vector<StateTensor> tensors;
  for (const ParameterSpec& parameter : layout.parameters()) {
    if (!parameter.trainable) continue;
    for (std::size_t arena = 0; arena < names.size(); ++arena) {
      tensors.push_back({std::string(names[arena]) + "." + parameter.name, parameter.shape,
                         arena * layout.trained_size() + parameter.offset, parameter.size});
    }
  }
  return tensors;
}

}  // namespace tandem::optim
