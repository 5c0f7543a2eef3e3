#include "tandem/nn/low_rank.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/core/thread_pool.h"
#include "tandem/kernels/scratch.h"
#include "tandem/nn/linear.h"
#include "tandem/nn/parameter_layout.h"

namespace tandem::nn {
namespace {

// Adapters of two ranks and scales for the modules "q" and "v"; "head" is trained whole.
class Parts final : public TrainedParts {
 public:
  explicit Parts(double dropout) : dropout_(dropout) {}
  std::optional<Adapter> adapter_of(std::string_view module) const override {
    if (module == "q") return Adapter{.rank = 3, .scale = 0.75, .dropout = dropout_};
    if (module == "v") return Adapter{.rank = 5, .scale = 2.0, .dropout = dropout_};
    return std::nullopt;
  }
  bool trains(std::string_view parameter) const override { return parameter.starts_with("head"); }

 private:
  double dropout_;
};

constexpr std::size_t kAdaptedIn = 24, kAdaptedOut = 20, kAdaptedRows = 17;
const std::vector<std::string> kModules = {"q", "k", "v"};

Linear add_layers(ParameterLayout& layout) {
  layout.add_linear("head", "head", 4, kAdaptedIn);
  layout.set_adds_operands(true);
  const Linear qkv = layout.add_linear("qkv", kModules, kAdaptedOut, kAdaptedIn);
  layout.set_adds_operands(false);
  layout.add_layer_norm("norm", kAdaptedIn);
  return qkv;
}

// The layout of the test's layers, with its zones.
ParameterLayout layout_of(double dropout, Linear& qkv) {
  const auto parts = std::make_shared<Parts>(dropout);
  ParameterLayout measured(parts);
  add_layers(measured);
  ParameterLayout layout(parts, measured);
  qkv = add_layers(layout);
  return layout;
}

TEST(FrozenLayout, HasTheTrainedParametersFirst) {
  Linear qkv;
  const ParameterLayout layout = layout_of(0, qkv);
  EXPECT_TRUE(layout.has_frozen_base());
  std::size_t trained = 0;
  for (const ParameterSpec& parameter : layout.parameters()) {
    const bool expected =
        parameter.name.starts_with("head") || parameter.name.find(".lora_") != std::string::npos;
    EXPECT_EQ(parameter.trainable, expected) << parameter.name;
    EXPECT_EQ(parameter.end() <= layout.trained_size(), expected) << parameter.name;
    if (expected) trained += parameter.size;
  }
  EXPECT_EQ(trained, layout.num_trainable_parameters());
  EXPECT_EQ(trained, 4 * kAdaptedIn + 4 + (3 + 5) * (kAdaptedIn + kAdaptedOut));
  ASSERT_EQ(qkv.low_rank.parts.size(), 2u);
  EXPECT_EQ(qkv.low_rank.rank(), 8u);
  EXPECT_EQ(qkv.low_rank.parts[1].down, qkv.low_rank.parts[0].down + 3 * kAdaptedIn);
  EXPECT_EQ(qkv.low_rank.parts[1].first_output, 2 * kAdaptedOut);
  EXPECT_EQ(layout.trainable_ranges().back().end, layout.trained_size());
  EXPECT_GE(layout.bf16_size(), qkv.weight + 3 * kAdaptedOut * kAdaptedIn);
}

// In bf16 the operands exist in the copy alone, so they are behind what f32 needs.
TEST(FrozenLayout, HasTheOperandsLast) {
  class Nothing final : public TrainedParts {
   public:
    std::optional<Adapter> adapter_of(std::string_view module) const override {
      if (module != "k") return std::nullopt;
      return Adapter{.rank = 2, .scale = 1, .dropout = 0};
    }
    bool trains(std::string_view) const override { return false; }
  };
  const auto add = [](ParameterLayout& layout) {
    layout.add_linear("head", "head", 4, kAdaptedIn);
    layout.set_adds_operands(true);
    layout.add_linear("qkv", kModules, kAdaptedOut, kAdaptedIn);
    layout.add_layer_norm("norm", kAdaptedIn);
    layout.add_linear("down", "down", 3, 7);
    layout.set_adds_operands(false);
    layout.add("table", {5, 16}, ParameterKind::kEmbedding);
  };
  const auto parts = std::make_shared<Nothing>();
  ParameterLayout measured(parts);
  add(measured);
  ParameterLayout layout(parts, measured);
  add(layout);
  for (const ParameterSpec& parameter : layout.parameters()) {
    const bool operand = parameter.shape.size() == 2 && !parameter.trainable &&
                         parameter.name != "head.weight" && parameter.name != "table";
    EXPECT_EQ(parameter.offset >= layout.operands_begin(), operand) << parameter.name;
  }
  EXPECT_EQ(layout.find("k.weight")->offset, layout.find("q.weight")->end());
  EXPECT_LT(layout.trained_size(), layout.operands_begin());
  EXPECT_EQ(layout.bf16_size(), layout.size());
  EXPECT_EQ(layout.size(), layout.operands_begin() + 3 * kAdaptedOut * kAdaptedIn + 32);

  // Reading an operand in f32 that exists in bf16 alone is an error, not zeros.
  const std::vector<float> f32(layout.operands_begin());
  const std::vector<bfloat16> bf16(layout.bf16_size());
  const Weights weights{f32, bf16};
  const std::size_t operand = layout.find("q.weight")->offset;
  EXPECT_EQ(weights.matrix<bfloat16>(operand), bf16.data() + operand);
  EXPECT_DEATH(weights.matrix<float>(operand), "a frozen operand exists in bf16 alone");
  EXPECT_DEATH(weights.vector(operand), "a frozen operand exists in bf16 alone");
}

TEST(FrozenLayout, RefusesAProductThatIsHalfFrozen) {
  class Half final : public TrainedParts {
   public:
    std::optional<Adapter> adapter_of(std::string_view) const override { return std::nullopt; }
    bool trains(std::string_view parameter) const override { return parameter.starts_with("q"); }
  };
  ParameterLayout layout(std::make_shared<Half>());
  EXPECT_THROW(layout.add_linear("qkv", kModules, kAdaptedOut, kAdaptedIn), ConfigError);
}

float value_at(std::size_t i, std::size_t salt) {
  return std::sin(static_cast<float>(i * 7 + salt * 131 + 1)) * 0.5f;
}

template <class T>
std::vector<T> values(std::size_t count, std::size_t salt) {
  std::vector<T> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = to_storage<T>(value_at(i, salt));
  return all;
}

// One linear layer with a low-rank update, its pass, and the formulas in f64.
template <class T>
struct Layer {
  explicit Layer(double dropout_rate, int threads_count = 2, std::string_view overrides = {})
      : layout(layout_of(dropout_rate, qkv)),
        f32(values<float>(layout.size(), 3)),
        bf16(layout.bf16_size()),
        grads(layout.trained_size(), 0.0f),
        threads(threads_count),
        kernel_set(kernels::select_kernels(kernels::CpuFeatures::detect(), overrides,
                                           Precision::kBfloat16)),
        scratch(threads_count),
        memory(low_rank_bytes(qkv, kAdaptedRows, precision()) + kTensorAlignment) {
    for (std::size_t i = 0; i < bf16.size(); ++i) bf16[i] = to_bfloat16(f32[i]);
  }

  static constexpr Precision precision() {
    return std::is_same_v<T, float> ? Precision::kFloat32 : Precision::kBfloat16;
  }
  Pass pass() {
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    const std::size_t shift = align_up(address, kTensorAlignment) - address;
    return {context,
            {f32, std::is_same_v<T, float> ? std::span<const bfloat16>() : bf16},
            {.row_begin = row_begin, .key_count = key_count, .sample = sample},
            {.enabled = true, .seed = 5, .step = 9},
            std::span(memory).subspan(shift)};
  }
  double weight(std::size_t offset) const {
    return std::is_same_v<T, float> ? f32[offset] : to_float(bf16[offset]);
  }
  // dropout's factor of row r, column c.
  double factor(std::size_t r, std::size_t c) const {
    if (qkv.low_rank.dropout == 0) return 1;
    const std::size_t sequence = r < row_begin[1] ? 0 : 1;
    const kernels::DropoutMask mask =
        kernels::dropout_mask({.p = static_cast<float>(qkv.low_rank.dropout),
                               .seed = 5,
                               .step = 9,
                               .site = qkv.low_rank.site},
                              sample[sequence]);
    return kernels::dropout_factor(mask, static_cast<std::uint32_t>(r - row_begin[sequence]),
                                   static_cast<std::uint32_t>(c));
  }
  double y(const std::vector<T>& x, std::size_t r, std::size_t o) const {
    return base(x, r, o, [](double term) { return term; }) +
           update(x, r, o, [](double term) { return term; });
  }
  // Sums of the sizes of all terms, to which rounding errors are relative.
  double size_of_base(const std::vector<T>& x, std::size_t r, std::size_t o) const {
    return base(x, r, o, [](double term) { return std::abs(term); });
  }
  double size_of_update(const std::vector<T>& x, std::size_t r, std::size_t o) const {
    return update(x, r, o, [](double term) { return std::abs(term); });
  }
  template <class Of>
  double base(const std::vector<T>& x, std::size_t r, std::size_t o, Of of) const {
    double sum = of(f32[qkv.bias + o]);
    for (std::size_t c = 0; c < kAdaptedIn; ++c)
      sum += of(static_cast<double>(to_float(x[r * kAdaptedIn + c])) *
                weight(qkv.weight + o * kAdaptedIn + c));
    return sum;
  }
  template <class Of>
  double update(const std::vector<T>& x, std::size_t r, std::size_t o, Of of) const {
    double sum = 0;
    for (const LowRankPart& part : qkv.low_rank.parts) {
      if (o < part.first_output || o >= part.first_output + part.outputs) continue;
      for (std::size_t k = 0; k < part.rank; ++k) {
        double low = 0;
        for (std::size_t c = 0; c < kAdaptedIn; ++c)
          low += of(factor(r, c) * to_float(x[r * kAdaptedIn + c]) *
                    weight(part.down + k * kAdaptedIn + c));
        sum += of(static_cast<double>(part.scale) * low *
                  f32[part.up + (o - part.first_output) * part.rank + k]);
      }
    }
    return sum;
  }

  Linear qkv;
  ParameterLayout layout;
  std::vector<float> f32;
  std::vector<bfloat16> bf16;
  std::vector<float> grads;
  ThreadPool threads;
  kernels::KernelSet kernel_set;
  kernels::Scratch scratch;
  kernels::Context context{threads, kernel_set, scratch};
  std::vector<std::byte> memory;
  std::vector<std::uint32_t> row_begin = {0, 6, kAdaptedRows};
  std::vector<std::uint32_t> key_count = {6, kAdaptedRows - 6};
  std::vector<std::uint64_t> sample = {4, 11};
};

// Roundings to T on the way to y: of the base product, of the sum, and in the update of the input,
// of x·Aᵀ and of s·B. Sums are in f32, of at most kAdaptedIn terms.
template <class T>
void expect_forward_as_in_the_paper(double dropout) {
  Layer<T> layer(dropout);
  const auto x = values<T>(kAdaptedRows * kAdaptedIn, 1);
  std::vector<T> y(kAdaptedRows * 3 * kAdaptedOut);
  linear_forward<T>(layer.pass(), layer.qkv, x, y);
  const double unit =
      std::is_same_v<T, float> ? kAdaptedIn * 0x1p-24 : 0x1p-8 + kAdaptedIn * 0x1p-24;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const std::size_t r = i / (3 * kAdaptedOut), o = i % (3 * kAdaptedOut);
    const double want = layer.y(x, r, o);
    const double bound =
        unit * (layer.size_of_base(x, r, o) + std::abs(want) + 3 * layer.size_of_update(x, r, o));
    ASSERT_NEAR(to_float(y[i]), want, bound) << i;
  }
}

TEST(LowRank, ForwardIsThatOfThePaper) {
  expect_forward_as_in_the_paper<float>(0);
  expect_forward_as_in_the_paper<float>(0.25);
  expect_forward_as_in_the_paper<bfloat16>(0);
  expect_forward_as_in_the_paper<bfloat16>(0.25);
}

// The loss is the sum of grad_y · y: its derivatives by central differences in f64.
template <class T>
void expect_gradients_of_the_formula(double dropout, double tolerance) {
  Layer<T> layer(dropout);
  const auto x = values<T>(kAdaptedRows * kAdaptedIn, 1);
  const auto grad_y = values<T>(kAdaptedRows * 3 * kAdaptedOut, 2);
  std::vector<float> grad_x(kAdaptedRows * kAdaptedIn, 0.0f);
  const Gradients grads{layer.grads, false};
  linear_backward<T, float>(layer.pass(), layer.qkv, x, grad_y, grad_x,
                            /*accumulate_grad_x=*/false, grads);
  for (std::size_t r = 0; r < kAdaptedRows; ++r) {
    for (std::size_t c = 0; c < kAdaptedIn; ++c) {
      double want = 0;
      for (std::size_t o = 0; o < 3 * kAdaptedOut; ++o) {
        const double g = to_float(grad_y[r * 3 * kAdaptedOut + o]);
        want += g * layer.weight(layer.qkv.weight + o * kAdaptedIn + c);
        for (const LowRankPart& part : layer.qkv.low_rank.parts) {
          if (o < part.first_output || o >= part.first_output + part.outputs) continue;
          for (std::size_t k = 0; k < part.rank; ++k) {
            want += g * static_cast<double>(part.scale) * layer.factor(r, c) *
                    layer.weight(part.down + k * kAdaptedIn + c) *
                    layer.f32[part.up + (o - part.first_output) * part.rank + k];
          }
        }
      }
      ASSERT_NEAR(grad_x[r * kAdaptedIn + c], want, tolerance * (1 + std::abs(want)))
          << r << " " << c;
    }
  }
  for (const LowRankPart& part : layer.qkv.low_rank.parts) {
    for (std::size_t i = 0; i < part.rank * kAdaptedIn; ++i) {
      const std::size_t k = i / kAdaptedIn, c = i % kAdaptedIn;
      double want = 0;
      for (std::size_t r = 0; r < kAdaptedRows; ++r) {
        double low = 0;
        for (std::size_t o = 0; o < part.outputs; ++o) {
          low +=
              static_cast<double>(to_float(grad_y[r * 3 * kAdaptedOut + part.first_output + o])) *
              layer.f32[part.up + o * part.rank + k];
        }
        want += static_cast<double>(part.scale) * low * layer.factor(r, c) *
                to_float(x[r * kAdaptedIn + c]);
      }
      ASSERT_NEAR(layer.grads[part.down + i], want, tolerance * (1 + std::abs(want))) << i;
    }
    for (std::size_t i = 0; i < part.outputs * part.rank; ++i) {
      const std::size_t o = i / part.rank, k = i % part.rank;
      double want = 0;
      for (std::size_t r = 0; r < kAdaptedRows; ++r) {
        double low = 0;
        for (std::size_t c = 0; c < kAdaptedIn; ++c)
          low += layer.factor(r, c) * to_float(x[r * kAdaptedIn + c]) *
                 layer.weight(part.down + k * kAdaptedIn + c);
        want += static_cast<double>(part.scale) * low *
                to_float(grad_y[r * 3 * kAdaptedOut + part.first_output + o]);
      }
      ASSERT_NEAR(layer.grads[part.up + i], want, tolerance * (1 + std::abs(want))) << i;
    }
  }
}

TEST(LowRank, GradientsAreThoseOfTheFormula) {
  expect_gradients_of_the_formula<float>(0, 2e-5);
  expect_gradients_of_the_formula<float>(0.25, 2e-5);
  expect_gradients_of_the_formula<bfloat16>(0, 0.03);
  expect_gradients_of_the_formula<bfloat16>(0.25, 0.03);
}

// Gradients of a second micro-batch are added, and frozen parameters have none.
TEST(LowRank, AccumulatesGradientsOfTheAdapterAlone) {
  Layer<float> layer(0);
  const auto x = values<float>(kAdaptedRows * kAdaptedIn, 1);
  const auto grad_y = values<float>(kAdaptedRows * 3 * kAdaptedOut, 2);
  linear_backward_weight<float>(layer.pass(), layer.qkv, x, grad_y, {layer.grads, false});
  const std::vector<float> once = layer.grads;
  linear_backward_weight<float>(layer.pass(), layer.qkv, x, grad_y, {layer.grads, true});
  for (std::size_t i = 0; i < once.size(); ++i) EXPECT_EQ(layer.grads[i], 2 * once[i]) << i;
  EXPECT_EQ(Gradients{layer.grads}.at(layer.qkv.weight), nullptr);
  EXPECT_NE(Gradients{layer.grads}.at(layer.qkv.low_rank.parts[0].down), nullptr);
}

// The gradient in front of B is computed once for both functions, in either order.
TEST(LowRank, AKeptGradientHasTheBitsOfAComputedOne) {
  for (const bool weight_first : {true, false}) {
    for (const bool kept : {true, false}) {
      SCOPED_TRACE(fmt::format("{} {}", weight_first, kept));
      Layer<float> layer(0.25), expected(0.25);
      const auto x = values<float>(kAdaptedRows * kAdaptedIn, 1);
      const auto grad_y = values<float>(kAdaptedRows * 3 * kAdaptedOut, 2);
      std::vector<float> grad_x(kAdaptedRows * kAdaptedIn, 1.0f), expected_grad_x = grad_x;
      const LowRankGradient second = kept ? LowRankGradient::kKept : LowRankGradient::kCompute;
      const auto weight = [&](Layer<float>& of, LowRankGradient projected) {
        linear_backward_weight<float>(of.pass(), of.qkv, x, grad_y, {of.grads, false}, projected);
      };
      const auto input = [&](Layer<float>& of, std::span<float> to, LowRankGradient projected) {
        linear_backward_input<float, float>(of.pass(), of.qkv, grad_y, to, true, projected);
      };
      weight(expected, LowRankGradient::kCompute);
      input(expected, expected_grad_x, LowRankGradient::kCompute);
      if (weight_first) weight(layer, LowRankGradient::kCompute);
      input(layer, grad_x, weight_first ? second : LowRankGradient::kCompute);
      if (!weight_first) weight(layer, second);
      EXPECT_EQ(grad_x, expected_grad_x);
      EXPECT_EQ(layer.grads, expected.grads);
    }
  }
}

// One thread or three: the same bits.
TEST(LowRank, HasTheSameBitsForAnyNumberOfThreads) {
  const auto run = [](int threads) {
    Layer<bfloat16> layer(0.25, threads);
    const auto x = values<bfloat16>(kAdaptedRows * kAdaptedIn, 1);
    const auto grad_y = values<bfloat16>(kAdaptedRows * 3 * kAdaptedOut, 2);
    std::vector<bfloat16> y(kAdaptedRows * 3 * kAdaptedOut), grad_x(kAdaptedRows * kAdaptedIn);
    linear_forward<bfloat16>(layer.pass(), layer.qkv, x, y);
    linear_backward<bfloat16, bfloat16>(layer.pass(), layer.qkv, x, grad_y, grad_x, false,
                                        {layer.grads, false});
    std::vector<float> all = layer.grads;
    for (const auto* one : {&y, &grad_x})
      for (const bfloat16 value : *one) all.push_back(to_float(value));
    return all;
  };
  const std::vector<float> one = run(1), three = run(3);
  ASSERT_EQ(one.size(), three.size());
  EXPECT_EQ(std::memcmp(one.data(), three.data(), one.size() * sizeof(float)), 0);
}

}  // namespace
}  // namespace tandem::nn
