// Emulations of what passes over rows and arrays against the instructions that this machine has,
// bit for bit. Products and attention: linear_test.cc, attention_test.cc and int8_test.cc of
// src/tandem/kernels.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "emulated_cpu/emulated_kernels.h"
#include "tandem/kernels/cpu_features.h"
#include "tandem/kernels/dropout.h"

namespace tandem::kernels::emulated {
namespace {

template <class T>
std::vector<T> random_values(std::size_t count, std::uint64_t seed) {
  std::vector<T> x(count);
  for (T& e : x) {
    seed = splitmix64(seed);
    e = to_storage<T>(static_cast<float>(seed >> 40) / 2097152.0f - 4.0f);
  }
  return x;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// Whole vectors of both widths, ragged ends, and nothing but one.
const std::size_t kCounts[] = {1, 7, 8, 15, 16, 17, 33, 64, 129, 400};

struct Width {
  const char* name;
  bool CpuFeatures::*needs;
  const KernelGroup MachineKernels::*group;
};

void PrintTo(const Width& one, std::ostream* out) { *out << one.name; }

class EmulatedElementwise : public ::testing::TestWithParam<Width> {
 protected:
  void SetUp() override {
    if (!(CpuFeatures::of_processor().*GetParam().needs))
      GTEST_SKIP() << "this CPU has no " << GetParam().name;
  }
  static const KernelGroup& hardware() { return hardware_kernels().*GetParam().group; }
  static const KernelGroup& plain() { return emulated_kernels().*GetParam().group; }
};

template <class T>
void expect_equal_activations(const ActivationKernels& a, const ActivationKernels& b) {
  for (const Activation activation :
       {Activation::kGelu, Activation::kGeluNew, Activation::kRelu, Activation::kTanh}) {
    for (const std::size_t count : kCounts) {
      const auto x = random_values<T>(count, count);
      const auto grad = random_values<T>(count, count + 1);
      std::vector<T> y[2], grad_x[2], again[2];
      for (int i = 0; i < 2; ++i) {
        y[i].resize(count);
        grad_x[i].resize(count);
        again[i].resize(count);
        const auto& kernels = of<T>(i == 0 ? a : b);
        kernels.forward(activation, count, x.data(), y[i].data());
        kernels.backward(activation, count, x.data(), grad.data(), grad_x[i].data(),
                         again[i].data());
      }
      EXPECT_TRUE(same_bits(y[0], y[1])) << static_cast<int>(activation) << " " << count;
      EXPECT_TRUE(same_bits(grad_x[0], grad_x[1])) << static_cast<int>(activation) << " " << count;
      EXPECT_TRUE(same_bits(again[0], again[1])) << static_cast<int>(activation) << " " << count;
    }
  }
}

TEST_P(EmulatedElementwise, ActivationsAreTheHardwares) {
  expect_equal_activations<float>(*hardware().activation, *plain().activation);
  expect_equal_activations<bfloat16>(*hardware().activation, *plain().activation);
}

TEST_P(EmulatedElementwise, DropoutIsTheHardwares) {
  const Dropout dropout{.p = 0.1f, .seed = 42, .step = 3, .site = dropout_site(1, 2)};
  const DropoutMask mask = dropout_mask(dropout, 7);
  for (const std::size_t count : kCounts) {
    const auto x = random_values<float>(count, count);
    std::vector<float> y(count), want(count);
    hardware().dropout->f32.forward(mask, 5, count, x.data(), y.data());
    plain().dropout->f32.forward(mask, 5, count, x.data(), want.data());
    EXPECT_TRUE(same_bits(y, want)) << count;
  }
}

// Parameters with their state, after one update of each optimizer.
struct Updated {
  std::vector<float> p, m, v;
  std::vector<bfloat16> copy;
};

template <class Update>
Updated updated(std::size_t count, Update update) {
  Updated u{random_values<float>(count, 1), random_values<float>(count, 2),
            random_values<float>(count, 3), std::vector<bfloat16>(count)};
  for (float& v : u.v) v *= v;
  update(random_values<float>(count, 4).data(), u);
  return u;
}

void expect_equal(const Updated& a, const Updated& b, const char* what, std::size_t count) {
  EXPECT_TRUE(same_bits(a.p, b.p)) << what << " " << count;
  EXPECT_TRUE(same_bits(a.m, b.m)) << what << " " << count;
  EXPECT_TRUE(same_bits(a.v, b.v)) << what << " " << count;
  EXPECT_TRUE(same_bits(a.copy, b.copy)) << what << " " << count;
}

TEST_P(EmulatedElementwise, OptimizersAreTheHardwares) {
  const AdamWFactors adamw{.grad_scale = 0.5f,
                           .decay = 0.999f,
                           .one_minus_beta1 = 0.1f,
                           .beta2 = 0.999f,
                           .one_minus_beta2 = 0.001f,
                           .step_size = 0.01f,
                           .inverse_sqrt_correction2 = 3.3f,
                           .eps = 1e-8f,
                           .decay_after = 1.0f};
  const SgdFactors sgd{.grad_scale = 0.5f,
                       .weight_decay = 0.01f,
                       .lr = 0.1f,
                       .keep = 0.9f,
                       .add = 1.0f,
                       .ahead = 0.9f,
                       .nesterov = true};
  const AdagradFactors adagrad{.grad_scale = 0.5f,
                               .weight_decay = 0.01f,
                               .lr = 0.1f,
                               .eps = 1e-10f,
                               .keep = 1.0f,
                               .start = 0.1f};
  for (const std::size_t count : kCounts) {
    const auto all = [&](const OptimizerKernels& k) {
      return std::vector<Updated>{
          updated(count,
                  [&](const float* g, Updated& u) {
                    k.adamw(adamw, count, g, u.p.data(), u.m.data(), u.v.data(), u.copy.data(),
                            nullptr);
                  }),
          updated(count,
                  [&](const float* g, Updated& u) {
                    k.sgd(sgd, count, g, u.p.data(), u.m.data(), u.copy.data(), nullptr);
                  }),
          updated(count, [&](const float* g, Updated& u) {
            k.adagrad(adagrad, count, g, u.p.data(), u.v.data(), u.copy.data(), nullptr);
          })};
    };
    const auto got = all(*hardware().optimizer);
    const auto want = all(*plain().optimizer);
    const char* const names[] = {"adamw", "sgd", "adagrad"};
    for (std::size_t i = 0; i < got.size(); ++i) expect_equal(got[i], want[i], names[i], count);
  }
}

TEST_P(EmulatedElementwise, SumsAreTheHardwares) {
  for (const std::size_t columns : kCounts) {
    constexpr std::size_t kRows = 5;
    const auto x = random_values<bfloat16>(kRows * columns, columns);
    std::vector<float> sums(columns, 1.0f), want(columns, 1.0f);
    hardware().reduce->bf16.add_column_sums(kRows, columns, x.data(), columns, sums.data());
    plain().reduce->bf16.add_column_sums(kRows, columns, x.data(), columns, want.data());
    EXPECT_TRUE(same_bits(sums, want)) << columns;
    const auto y = random_values<float>(columns, columns);
    EXPECT_EQ(hardware().reduce->squared_norm(columns, y.data()),
              plain().reduce->squared_norm(columns, y.data()))
        << columns;
    std::vector<bfloat16> narrow(columns), wanted(columns);
    hardware().reduce->to_bf16(columns, y.data(), narrow.data());
    plain().reduce->to_bf16(columns, y.data(), wanted.data());
    EXPECT_TRUE(same_bits(narrow, wanted)) << columns;
  }
}

INSTANTIATE_TEST_SUITE_P(, EmulatedElementwise,
                         ::testing::Values(Width{"avx2", &CpuFeatures::avx2, &MachineKernels::avx2},
                                           Width{"avx512", &CpuFeatures::avx512,
                                                 &MachineKernels::avx512}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace tandem::kernels::emulated
