// Speed of the operations at the shapes of a MiniLM and a BERT-base step (12 x 384 rows). Verify
// with kernels_test first.
//   TANDEM_KERNELS-like choice: --kernels=gemm=avx512,...   threads: --threads=N   then Google
//   Benchmark's own flags.
// GFLOP/s stand beside the share of the peak that a register-only loop of the same instruction
// reaches in the same run.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <string_view>
#include <vector>

#include "tandem/core/buffer.h"
#include "tandem/kernels/activation.h"
#include "tandem/kernels/adamw.h"
#include "tandem/kernels/attention.h"
#include "tandem/kernels/context.h"
#include "tandem/kernels/layer_norm.h"
#include "tandem/kernels/linear.h"
#include "tandem/kernels/reduce.h"

namespace tandem::kernels {
namespace {

using benchmark::Counter;
using benchmark::State;

// Memory as the trainer has it: huge pages where the system gives them.
template <class T>
class Array {
 public:
  explicit Array(std::size_t count) : buffer_(count * sizeof(T)) {
    std::memset(buffer_.data(), 0,
                buffer_.size());  // touched, so that no benchmark counts page faults
  }
  T* data() const { return buffer_.as<T>().data(); }

 private:
  Buffer buffer_;
};

// Uniform in [-1, 1).
template <class T>
Array<T> values(std::size_t count) {
  Array<T> x(count);
  for (std::size_t i = 0; i < count; ++i) {
    x.data()[i] = to_storage<T>(static_cast<float>(splitmix64(i) >> 40) / 8388608.0f - 1.0f);
  }
  return x;
}

template <class T>
constexpr PeakType kPeakOf = std::is_same_v<T, float> ? PeakType::kF32 : PeakType::kBf16;

template <class T>
void report(State& state, const Context& ctx, double flops) {
  const double peak = measure_peak_flops(ctx, kPeakOf<T>);
  state.counters["GFLOPS"] = Counter(flops * 1e-9, Counter::kIsIterationInvariantRate);
  state.counters["peak_GFLOPS"] = peak * 1e-9;
  state.counters["share"] = Counter(flops / peak, Counter::kIsIterationInvariantRate);
}

void report_bytes(State& state, double bytes) {
  state.counters["GB/s"] = Counter(bytes * 1e-9, Counter::kIsIterationInvariantRate);
}

enum class Product { kForward, kBackwardInput, kBackwardWeight };

template <class T>
void linear(State& state, const Context& ctx, Product product, std::size_t N, std::size_t K) {
  constexpr std::size_t M = 4608;
  const auto x = values<T>(M * K);
  const auto weight = values<T>(N * K);
  const auto bias = values<float>(N);
  auto y = values<T>(M * N);
  Array<T> grad_x(M * K);
  Array<float> grad_weight(N * K);
  Array<float> grad_bias(N);
  for (auto _ : state) {
    if (product == Product::kForward) {
      linear_forward(ctx, M, N, K, x.data(), weight.data(), bias.data(), y.data());
    } else if (product == Product::kBackwardInput) {
      linear_backward_input(ctx, M, N, K, y.data(), weight.data(), grad_x.data(), false);
    } else {
      linear_backward_weight(ctx, M, N, K, y.data(), x.data(), grad_weight.data(), grad_bias.data(),
                             false);
    }
  }
  report<T>(state, ctx, 2.0 * M * static_cast<double>(N * K));
}

template <class T>
void register_linear(const Context& ctx, const char* type) {
  constexpr std::size_t kShapes[][2] = {{1152, 384}, {384, 384},  {1536, 384}, {384, 1536},
                                        {768, 768},  {3072, 768}, {768, 3072}, {4096, 1024}};
  constexpr std::pair<const char*, Product> kProducts[] = {{"forward", Product::kForward},
                                                           {"dX", Product::kBackwardInput},
                                                           {"dW", Product::kBackwardWeight}};
  for (const auto& shape : kShapes) {
    for (const auto& product : kProducts) {
      const std::size_t n = shape[0];
      const std::size_t k = shape[1];
      const Product which = product.second;
      benchmark::RegisterBenchmark(
          fmt::format("linear/{}/{}/{}x{}", type, product.first, n, k).c_str(),
          [&ctx, which, n, k](State& state) { linear<T>(state, ctx, which, n, k); })
          ->Unit(benchmark::kMillisecond)
          ->UseRealTime();
    }
  }
}

// 12 sequences of 384 rows.
struct Batch {
  std::vector<std::uint32_t> row_begin, key_count;
  std::vector<std::uint64_t> sample;
  Batch() {
    for (std::uint32_t i = 0; i < 12; ++i) {
      row_begin.push_back(i * 384);
      key_count.push_back(384);
      sample.push_back(i);
    }
    row_begin.push_back(12 * 384);
  }
  Sequences sequences() const { return {row_begin, key_count, sample}; }
};

template <class T>
void attention(State& state, const Context& ctx, bool backward, std::size_t heads,
               std::size_t head_dim) {
  const Batch batch;
  constexpr std::size_t rows = 4608;
  const std::size_t H = heads * head_dim;
  const Dropout dropout{.p = 0.1f, .seed = 1, .step = 2, .site = kAttentionPlace};
  const auto qkv = values<T>(rows * 3 * H);
  auto out = values<T>(rows * H);
  Array<float> lse(heads * rows);
  Array<T> grad(rows * 3 * H);
  attention_forward(ctx, batch.sequences(), heads, head_dim, dropout, qkv.data(), out.data(),
                    lse.data());
  const auto grad_out = values<T>(rows * H);
  for (auto _ : state) {
    if (backward) {
      attention_backward(ctx, batch.sequences(), heads, head_dim, dropout, qkv.data(), out.data(),
                         lse.data(), grad_out.data(), grad.data());
    } else {
      attention_forward(ctx, batch.sequences(), heads, head_dim, dropout, qkv.data(), out.data(),
                        lse.data());
    }
  }
  report<float>(state, ctx, (backward ? 10.0 : 4.0) * 12 * 384 * 384 * static_cast<double>(H));
}

void register_attention(const Context& ctx) {
  for (const std::size_t head_dim : {std::size_t{32}, std::size_t{64}}) {
    for (const bool backward : {false, true}) {
      benchmark::RegisterBenchmark(
          fmt::format("attention/bf16/{}/12x{}", backward ? "backward" : "forward", head_dim)
              .c_str(),
          [&ctx, backward, head_dim](State& state) {
            attention<bfloat16>(state, ctx, backward, 12, head_dim);
          })
          ->Unit(benchmark::kMillisecond)
          ->UseRealTime();
    }
  }
}

void layer_norm(State& state, const Context& ctx, bool backward) {
  const Batch batch;
  constexpr std::size_t rows = 4608;
  constexpr std::size_t H = 768;
  const Dropout dropout{.p = 0.1f, .seed = 1, .step = 2, .site = 1};
  const auto x = values<bfloat16>(rows * H);
  const auto residual = values<float>(rows * H);
  const auto gamma = values<float>(H);
  Array<float> y(rows * H), sum(rows * H), mean(rows), rstd(rows), grad_gamma(H), grad_beta(H);
  Array<bfloat16> copy(rows * H);
  const LayerNormForward<bfloat16> forward{.x = x.data(),
                                           .residual = residual.data(),
                                           .gamma = gamma.data(),
                                           .beta = gamma.data(),
                                           .y = y.data(),
                                           .y_copy = copy.data(),
                                           .sum = sum.data(),
                                           .mean = mean.data(),
                                           .rstd = rstd.data()};
  const LayerNormBackward<bfloat16> back{.grad_y = residual.data(),
                                         .sum = sum.data(),
                                         .mean = mean.data(),
                                         .rstd = rstd.data(),
                                         .gamma = gamma.data(),
                                         .grad_sum = y.data(),
                                         .grad_x = copy.data(),
                                         .grad_gamma = grad_gamma.data(),
                                         .grad_beta = grad_beta.data()};
  for (auto _ : state) {
    dropout_add_layer_norm_forward(ctx, batch.sequences(), H, dropout, forward);
    if (backward) dropout_add_layer_norm_backward(ctx, batch.sequences(), H, dropout, back);
  }
  report_bytes(state, (backward ? 34.0 : 16.0) * rows * H);
}

void gelu(State& state, const Context& ctx, bool backward) {
  constexpr std::size_t count = 4608 * 3072;
  const auto x = values<bfloat16>(count);
  auto y = values<bfloat16>(count);
  for (auto _ : state) {
    if (backward) {
      activation_backward(ctx, Activation::kGelu, count, x.data(), y.data(), y.data());
    } else {
      activation_forward(ctx, Activation::kGelu, count, x.data(), y.data());
    }
  }
  report_bytes(state, (backward ? 6.0 : 4.0) * count);
}

void adamw_step(State& state, const Context& ctx) {
  constexpr std::size_t count = 22'000'000;
  const auto grad = values<float>(count);
  Array<float> p(count), m(count), v(count);
  Array<bfloat16> copy(count);
  for (auto _ : state)
    adamw(ctx, count, {.lr = 1e-5}, grad.data(), p.data(), m.data(), v.data(), copy.data());
  report_bytes(state, 30.0 * count);
}

void norm(State& state, const Context& ctx) {
  constexpr std::size_t count = 22'000'000;
  const auto grad = values<float>(count);
  Array<double> partials(num_chunks(count, kNormChunk));
  for (auto _ : state) squared_norm_partials(ctx, count, grad.data(), partials.data());
  report_bytes(state, 4.0 * count);
}

}  // namespace
}  // namespace tandem::kernels

int main(int argc, char** argv) {
  using namespace tandem;           // NOLINT(google-build-using-namespace): main of a benchmark
  using namespace tandem::kernels;  // NOLINT(google-build-using-namespace)
  std::string_view overrides;
  int num_threads = available_cores();
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg.starts_with("--kernels=")) overrides = arg.substr(10);
    if (arg.starts_with("--threads="))
      std::from_chars(arg.data() + 10, arg.data() + arg.size(), num_threads);
  }
  benchmark::Initialize(&argc, argv);
  ThreadPool threads(num_threads);
  const KernelSet set = select_kernels(CpuFeatures::detect(), overrides);
  Scratch scratch(num_threads);
  const Context ctx{threads, set, scratch};
  fmt::print("{} threads, {}\n", num_threads, set.signature());
  register_linear<bfloat16>(ctx, "bf16");
  register_linear<float>(ctx, "f32");
  register_attention(ctx);
  for (const bool backward : {false, true}) {
    const char* direction = backward ? "forward+backward" : "forward";
    benchmark::RegisterBenchmark(
        fmt::format("layer_norm/bf16/{}", direction).c_str(),
        [&ctx, backward](benchmark::State& state) { layer_norm(state, ctx, backward); })
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
    benchmark::RegisterBenchmark(
        fmt::format("gelu/bf16/{}", backward ? "backward" : "forward").c_str(),
        [&ctx, backward](benchmark::State& state) { gelu(state, ctx, backward); })
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
  }
  benchmark::RegisterBenchmark("adamw", [&ctx](benchmark::State& state) { adamw_step(state, ctx); })
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime();
  benchmark::RegisterBenchmark("squared_norm",
                               [&ctx](benchmark::State& state) { norm(state, ctx); })
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
