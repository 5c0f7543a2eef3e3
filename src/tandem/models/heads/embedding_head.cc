#include "tandem/models/heads/embedding_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <optional>

#include "tandem/core/profile.h"
#include "tandem/core/thread_pool.h"
#include "tandem/nn/parameter_layout.h"

namespace tandem::models {
namespace {

// The derivative of the activation at `x`, whose value is `y`.
double slope(DenseActivation activation, double x, double y) {
  switch (activation) {
    case DenseActivation::kTanh:
      return 1 - y * y;
    case DenseActivation::kRelu:
      return x > 0 ? 1 : 0;
    case DenseActivation::kGelu: {
      const double density = std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
      return 0.5 * std::erfc(-x / std::numbers::sqrt2) + x * density;
    }
    case DenseActivation::kSigmoid:
      return y * (1 - y);
    case DenseActivation::kIdentity:
      break;
  }
  return 1;
}

// A module behind the pooling. Matrices are [texts, in()] and [texts, out()].
class Module {
 public:
  Module(std::size_t in, std::size_t out) : in_(in), out_(out) {}
  virtual ~Module() = default;
  std::size_t in() const { return in_; }
  std::size_t out() const { return out_; }
  // f32 values per text that backward needs in addition to x and y.
  virtual std::size_t saved() const { return 0; }
  virtual void forward(const nn::Pass& pass, const float* x, float* saved, float* y) const = 0;
  // grad_y may be overwritten.
  virtual void backward(const nn::Pass& pass, const float* x, const float* saved, const float* y,
                        float* grad_y, float* grad_x, const nn::Gradients& grads) const = 0;

 private:
  std::size_t in_, out_;
};

// saved: the sums before the activation.
class DenseLayer final : public Module {
 public:
  DenseLayer(const DenseModule& dense, std::size_t index, nn::ParameterLayout& layout)
      : Module(dense.in_features, dense.out_features), activation_(dense.activation) {
    weight_ = layout.add(module_parameter(index, "linear.weight"), {out(), in()},
                         nn::ParameterKind::kWeight);
    if (!dense.bias.empty()) {
      bias_ = layout.add(module_parameter(index, "linear.bias"), {out()}, nn::ParameterKind::kBias);
    }
  }

  std::size_t saved() const override { return out(); }

  void forward(const nn::Pass& pass, const float* x, float* saved, float* y) const override {
    const float* const weight = pass.weights.vector(weight_);
    const float* const bias = bias_ ? pass.weights.vector(*bias_) : nullptr;
    pass.context.threads.parallel_for(pass.sequences.count(), [&](std::size_t text, int) {
      const float* const from = x + text * in();
      for (std::size_t o = 0; o < out(); ++o) {
        double sum = bias == nullptr ? 0.0 : bias[o];
        const float* const row = weight + o * in();
        for (std::size_t i = 0; i < in(); ++i) sum += static_cast<double>(row[i]) * from[i];
        saved[text * out() + o] = static_cast<float>(sum);
        y[text * out() + o] = activate(activation_, sum);
      }
    });
  }

  void backward(const nn::Pass& pass, const float* x, const float* saved, const float* y,
                float* grad_y, float* grad_x, const nn::Gradients& grads) const override {
    const std::size_t texts = pass.sequences.count();
    for (std::size_t k = 0; k < texts * out(); ++k)
      grad_y[k] = static_cast<float>(grad_y[k] * slope(activation_, saved[k], y[k]));
    input_gradient(pass, grad_y, grad_x);
    if (grads.at(weight_) == nullptr) return;  // frozen
    pass.context.threads.parallel_for(
        out(), [&](std::size_t o, int) { weight_gradient(x, grad_y, texts, o, grads); });
  }

 private:
  static constexpr std::size_t kColumns = 64;  // whose sums are computed side by side
  using Sums = std::array<double, kColumns>;

  void input_gradient(const nn::Pass& pass, const float* grad_y, float* grad_x) const {
    const float* const weight = pass.weights.vector(weight_);
    pass.context.threads.parallel_for(pass.sequences.count(), [&](std::size_t text, int) {
      for (std::size_t begin = 0; begin < in(); begin += kColumns) {
        const std::size_t count = std::min(kColumns, in() - begin);
        Sums sums{};
        for (std::size_t o = 0; o < out(); ++o) {
          const double grad = grad_y[text * out() + o];
          const float* const row = weight + o * in() + begin;
          for (std::size_t i = 0; i < count; ++i) sums[i] += grad * row[i];
        }
        for (std::size_t i = 0; i < count; ++i)
          grad_x[text * in() + begin + i] = static_cast<float>(sums[i]);
      }
    });
  }

  void weight_gradient(const float* x, const float* grad, std::size_t texts, std::size_t o,
                       const nn::Gradients& grads) const {
    const auto store = [&](std::size_t offset, double value) {
      float& to = *grads.at(offset);
      to = static_cast<float>(grads.accumulate ? to + value : value);
    };
    double of_bias = 0;
    for (std::size_t text = 0; text < texts; ++text) of_bias += grad[text * out() + o];
    if (bias_) store(*bias_ + o, of_bias);
    for (std::size_t begin = 0; begin < in(); begin += kColumns) {
      const std::size_t count = std::min(kColumns, in() - begin);
      Sums sums{};
      for (std::size_t text = 0; text < texts; ++text) {
        const double own = grad[text * out() + o];
        for (std::size_t i = 0; i < count; ++i) sums[i] += own * x[text * in() + begin + i];
      }
      for (std::size_t i = 0; i < count; ++i) store(weight_ + o * in() + begin + i, sums[i]);
    }
  }

  DenseActivation activation_;
  std::size_t weight_ = 0;
  std::optional<std::size_t> bias_;
};

class NormalizeLayer final : public Module {
 public:
  explicit NormalizeLayer(std::size_t width) : Module(width, width) {}

  void forward(const nn::Pass& pass, const float* x, float*, float* y) const override {
    pass.context.threads.parallel_for(pass.sequences.count(), [&](std::size_t text, int) {
      const float* const from = x + text * in();
      const double norm = std::max(norm_of(from), kLeast);
      for (std::size_t i = 0; i < in(); ++i)
        y[text * in() + i] = static_cast<float>(from[i] / norm);
    });
  }

  // d(x / |x|) = (g - y (g·y)) / |x|; below kLeast the divisor is a constant.
  void backward(const nn::Pass& pass, const float* x, const float*, const float* y, float* grad_y,
                float* grad_x, const nn::Gradients&) const override {
    pass.context.threads.parallel_for(pass.sequences.count(), [&](std::size_t text, int) {
      const std::size_t begin = text * in();
      const double norm = norm_of(x + begin);
      double along = 0;
      for (std::size_t i = 0; i < in(); ++i)
        along += static_cast<double>(grad_y[begin + i]) * y[begin + i];
      if (norm < kLeast) along = 0;
      for (std::size_t i = 0; i < in(); ++i)
        grad_x[begin + i] =
            static_cast<float>((grad_y[begin + i] - along * y[begin + i]) / std::max(norm, kLeast));
    });
  }

 private:
  static constexpr double kLeast = 1e-12;
  double norm_of(const float* x) const {
    double squares = 0;
    for (std::size_t i = 0; i < in(); ++i) squares += static_cast<double>(x[i]) * x[i];
    return std::sqrt(squares);
  }
};

std::vector<std::unique_ptr<Module>> make_modules(const std::vector<EmbeddingModule>& modules,
                                                  std::size_t width, nn::ParameterLayout& layout) {
  std::vector<std::size_t> widths;  // what each module reads
  for (const EmbeddingModule& module : modules) {
    widths.push_back(width);
    if (const auto* dense = std::get_if<DenseModule>(&module)) width = dense->out_features;
  }
  std::vector<std::unique_ptr<Module>> made(modules.size());
  for (std::size_t i = modules.size(); i-- > 0;) {
    if (const auto* dense = std::get_if<DenseModule>(&modules[i]))
      made[i] = std::make_unique<DenseLayer>(*dense, i, layout);
    else
      made[i] = std::make_unique<NormalizeLayer>(widths[i]);
  }
  return made;
}

// Behind the pooling: memory is [texts, P] of the pooling, then what each module saves and gives,
// then two gradients.
class EmbeddingHead final : public Head {
 public:
  EmbeddingHead(std::unique_ptr<Head> pooling, std::vector<std::unique_ptr<Module>> modules)
      : Head(shape_of(*pooling, modules)),
        pooling_(std::move(pooling)),
        modules_(std::move(modules)) {}

  void forward(const nn::Pass& pass, std::span<const float> hidden, std::span<float> memory,
               std::span<float> logits) const override {
    const std::size_t texts = pass.sequences.count();
    float* at = memory.data();
    const std::size_t pooled = pooling_->shape().num_labels;
    pooling_->forward(pass, hidden, {}, {at, texts * pooled});
    const StageTimer timer(pass.context.profile, "head", "modules");
    const float* x = at;
    at += texts * pooled;
    for (const auto& module : modules_) {
      float* const saved = at;
      float* const y = saved + texts * module->saved();
      module->forward(pass, x, saved, y);
      x = y;
      at = y + texts * module->out();
    }
    std::copy(x, x + logits.size(), logits.begin());
  }

  void backward(const nn::Pass& pass, std::span<const float> hidden, std::span<float> memory,
                std::span<const float> grad_logits, std::span<float> grad_hidden,
                const nn::Gradients& grads) const override {
    const std::size_t texts = pass.sequences.count();
    const std::size_t widest = widest_of(*pooling_, modules_);
    float* grad_y = memory.data() + texts * shape().memory;
    float* grad_x = grad_y + texts * widest;
    std::copy(grad_logits.begin(), grad_logits.end(), grad_y);
    {
      const StageTimer timer(pass.context.profile, "head", "modules backward");
      const float* end = grad_y;
      for (std::size_t i = modules_.size(); i-- > 0;) {
        const Module& module = *modules_[i];
        const float* const y = end - texts * module.out();
        const float* const saved = y - texts * module.saved();
        const float* const x = saved - texts * module.in();
        module.backward(pass, x, saved, y, grad_y, grad_x, grads);
        std::swap(grad_y, grad_x);
        end = saved;
      }
    }
    pooling_->backward(pass, hidden, {}, {grad_y, texts * pooling_->shape().num_labels},
                       grad_hidden, grads);
  }

 private:
  using Modules = std::vector<std::unique_ptr<Module>>;

  static std::size_t widest_of(const Head& pooling, const Modules& modules) {
    std::size_t widest = pooling.shape().num_labels;
    for (const auto& module : modules) widest = std::max(widest, module->out());
    return widest;
  }
  static HeadShape shape_of(const Head& pooling, const Modules& modules) {
    HeadShape shape = pooling.shape();
    shape.memory = shape.num_labels;
    for (const auto& module : modules) shape.memory += module->saved() + module->out();
    if (!modules.empty()) shape.num_labels = modules.back()->out();
    shape.training_memory = 2 * widest_of(pooling, modules);
    return shape;
  }

  std::unique_ptr<Head> pooling_;
  Modules modules_;
};

}  // namespace

std::string module_parameter(std::size_t index, std::string_view parameter) {
  return fmt::format("{}.{}", index + 2, parameter);
}

std::unique_ptr<Head> make_embedding_head(const SentenceFiles& files, const ModelConfig& config,
                                          nn::ParameterLayout& layout) {
  auto pooling = make_pooling_head(files.poolings, files.include_prompt, config, layout);
  const std::size_t width = pooling->shape().num_labels;
  if (files.modules.empty()) return pooling;
  auto made = make_modules(files.modules, width, layout);
  return std::make_unique<EmbeddingHead>(std::move(pooling), std::move(made));
}

}  // namespace tandem::models
