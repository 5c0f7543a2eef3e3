// Products through oneDNN's matmul primitive: for CPUs that no kernel of our own covers, and the
// rival in the benchmarks.
//
// oneDNN divides its work by the number of OpenMP threads, and so would its sums be. Here C is cut
// into blocks by size, and each block is one primitive that runs on one thread of our pool.
// Primitives are kept per thread, by shape.
#include "tandem/kernels/gemm_onednn.h"

#include <algorithm>
#include <dnnl.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/kernels/kernel_set.h"
#include "tandem/kernels/machine_kernels.h"

// Function of the OpenMP runtime that oneDNN uses (libgomp). Sets an ICV of the calling thread.
extern "C" void omp_set_num_threads(int num_threads);

namespace tandem::kernels {
namespace {

using dnnl::memory;

template <class T>
constexpr memory::data_type kDataType =
    std::is_same_v<T, float> ? memory::data_type::f32 : memory::data_type::bf16;

// Everything that a primitive is made for.
struct Shape {
  memory::dim m, n, k;
  memory::dim ld_a, ld_b, ld_c;
  bool a_rows, b_rows, bias, accumulate;
  memory::data_type in, out;
  auto key() const {
    return std::tie(m, n, k, ld_a, ld_b, ld_c, a_rows, b_rows, bias, accumulate, in, out);
  }
  bool operator<(const Shape& other) const { return key() < other.key(); }
};

memory::desc matrix(memory::dim rows, memory::dim columns, memory::data_type type, memory::dim ld,
                    bool row_major) {
  const memory::dims strides = row_major ? memory::dims{ld, 1} : memory::dims{1, ld};
  return {{rows, columns}, type, strides};
}

// Versions 2 (Debian 12) and 3 describe an operation differently. `bias` null: none.
dnnl::matmul make_matmul(const dnnl::engine& engine, const memory::desc& a, const memory::desc& b,
                         const memory::desc* bias, const memory::desc& c,
                         const dnnl::primitive_attr& attributes) {
  using Description = dnnl::matmul::primitive_desc;
#if DNNL_VERSION_MAJOR >= 3
  return dnnl::matmul(bias ? Description(engine, a, b, *bias, c, attributes)
                           : Description(engine, a, b, c, attributes));
#else
  return dnnl::matmul(Description(
      bias ? dnnl::matmul::desc(a, b, *bias, c) : dnnl::matmul::desc(a, b, c), attributes, engine));
#endif
}

// oneDNN detects by itself: what TANDEM_CPU_FEATURES hides must be hidden from it too. It takes a
// limit only before its first primitive, and where it was built to take none it keeps its own
// choice.
void limit_instructions() {
#if defined(__x86_64__)
  const CpuFeatures cpu = CpuFeatures::detect();
  auto most = dnnl::cpu_isa::sse41;
  if (cpu.avx2) most = dnnl::cpu_isa::avx2;
  if (cpu.avx512) most = dnnl::cpu_isa::avx512_core;
  if (cpu.avx512_vnni) most = dnnl::cpu_isa::avx512_core_vnni;
  if (cpu.avx512_bf16) most = dnnl::cpu_isa::avx512_core_bf16;
  if (cpu.amx_bf16) return;
  dnnl::set_max_cpu_isa(most);
#endif
}

// State of one thread: an engine, a stream, and the primitives made so far.
class ThreadState {
 public:
  ThreadState() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    static std::once_flag limited;
    std::call_once(limited, limit_instructions);
    omp_set_num_threads(1);
  }

  void run(const Shape& shape, const void* a, const void* b, const float* bias, void* c) {
    Primitive& p = find_or_make(shape);
    p.a.set_data_handle(const_cast<void*>(a));
    p.b.set_data_handle(const_cast<void*>(b));
    p.c.set_data_handle(c);
    std::unordered_map<int, memory> arguments = {
        {DNNL_ARG_SRC, p.a}, {DNNL_ARG_WEIGHTS, p.b}, {DNNL_ARG_DST, p.c}};
    if (shape.bias) {
      p.bias.set_data_handle(const_cast<float*>(bias));
      arguments.emplace(DNNL_ARG_BIAS, p.bias);
    }
    p.matmul.execute(stream_, arguments);
    stream_.wait();
  }

 private:
  struct Primitive {
    dnnl::matmul matmul;
    memory a, b, bias, c;
  };

  Primitive& find_or_make(const Shape& s) {
    const auto found = primitives_.find(s);
    if (found != primitives_.end()) return found->second;
    const memory::desc a = matrix(s.m, s.k, s.in, s.ld_a, s.a_rows);
    const memory::desc b = matrix(s.k, s.n, s.in, s.ld_b, !s.b_rows);
    const memory::desc c = matrix(s.m, s.n, s.out, s.ld_c, true);
    dnnl::primitive_attr attributes;
    if (s.accumulate) {
      dnnl::post_ops add;
      add.append_sum(1.0f);
      attributes.set_post_ops(add);
    }
    const memory::desc bias({1, s.n}, memory::data_type::f32, memory::dims{s.n, 1});
    Primitive p{make_matmul(engine_, a, b, s.bias ? &bias : nullptr, c, attributes),
                memory(a, engine_, nullptr), memory(b, engine_, nullptr),
                memory(bias, engine_, nullptr), memory(c, engine_, nullptr)};
    return primitives_.emplace(s, std::move(p)).first->second;
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  std::map<Shape, Primitive> primitives_;
};

ThreadState& state_of(const Context& ctx, int thread) {
  std::any& state = ctx.scratch.state_of_thread(thread);
  if (!state.has_value()) state = std::make_shared<ThreadState>();
  return **std::any_cast<std::shared_ptr<ThreadState>>(&state);
}

// Element (outer, 0) of an operand.
template <class T>
const T* at_outer(const GemmOperand<T>& operand, std::size_t outer) {
  return operand.data + (operand.reduction_is_row ? outer * operand.ld : outer);
}

template <class T, class Out>
void gemm(const Context& ctx, const Gemm<T, Out>& g) {
  if (g.m == 0 || g.n == 0) return;
  // Long blocks of rows suit oneDNN's own blocking; gradients of weights have few rows and a long
  // reduction instead.
  const std::size_t block_rows = g.a.reduction_is_row ? 512 : 192;
  const std::size_t block_columns = 768;
  const std::size_t row_blocks = num_chunks(g.m, block_rows);
  const auto dim = [](std::size_t x) { return static_cast<memory::dim>(x); };
  ctx.threads.parallel_for(
      row_blocks * num_chunks(g.n, block_columns), [&](std::size_t chunk, int thread) {
        const std::size_t row = chunk % row_blocks * block_rows;
        const std::size_t column = chunk / row_blocks * block_columns;
        const Shape shape{dim(std::min(block_rows, g.m - row)),
                          dim(std::min(block_columns, g.n - column)),
                          dim(g.k),
                          dim(g.a.ld),
                          dim(g.b.ld),
                          dim(g.n),
                          g.a.reduction_is_row,
                          g.b.reduction_is_row,
                          g.bias != nullptr,
                          g.accumulate,
                          kDataType<T>,
                          kDataType<Out>};
        try {
          state_of(ctx, thread)
              .run(shape, at_outer(g.a, row), at_outer(g.b, column),
                   g.bias == nullptr ? nullptr : g.bias + column, g.c + row * g.n + column);
        } catch (const dnnl::error& error) {
          raise<InvalidArgument>("oneDNN cannot multiply [{}, {}] by [{}, {}]: {}", g.m, g.k, g.k,
                                 g.n, error.what());
        }
      });
}

// oneDNN picks its instructions by itself; the peak is that of the best ones we can measure.
template <PeakType kType>
double peak_of_this_cpu(std::size_t iterations) {
  static const CpuFeatures cpu = CpuFeatures::detect();  // slow under a hypervisor
  const MachineKernels& machine = machine_kernels();
  if (kType == PeakType::kBf16 && cpu.amx_bf16) return machine.amx.gemm->peak_bf16(iterations);
  if (kType == PeakType::kBf16 && cpu.avx512_bf16)
    return machine.avx512bf16.gemm->peak_bf16(iterations);
  if (cpu.avx512) return machine.avx512.gemm->peak_f32(iterations);
  if (cpu.avx2) return machine.avx2.gemm->peak_f32(iterations);
  return kGemmReference.peak_f32(iterations);
}

}  // namespace

constinit const GemmKernels kGemmOneDnn = {.f32 = gemm<float, float>,
                                           .bf16 = gemm<bfloat16, bfloat16>,
                                           .bf16_to_f32 = gemm<bfloat16, float>,
                                           .peak_f32 = peak_of_this_cpu<PeakType::kF32>,
                                           .peak_bf16 = peak_of_this_cpu<PeakType::kBf16>};

}  // namespace tandem::kernels
