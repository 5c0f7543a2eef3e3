#include "tandem/kernels/activation.h"

#include <algorithm>

#include "tandem/kernels/kernel_tables.h"

namespace tandem::kernels {
namespace {
constexpr std::size_t kChunk = 16384;
}

template <class T>
void activation_forward(const Context& ctx, Activation activation, std::size_t count, const T* x,
                        T* y) {
  ctx.threads.parallel_for(num_chunks(count, kChunk), [&](std::size_t chunk, int) {
    const std::size_t begin = chunk * kChunk;
    of<T>(*ctx.kernels.activation)
        .forward(activation, std::min(kChunk, count - begin), x + begin, y + begin);
  });
}

template <class T>
void activation_backward(const Context& ctx, Activation activation, std::size_t count, const T* x,
                         const T* grad_y, T* grad_x, T* y) {
  ctx.threads.parallel_for(num_chunks(count, kChunk), [&](std::size_t chunk, int) {
    const std::size_t begin = chunk * kChunk;
    of<T>(*ctx.kernels.activation)
        .backward(activation, std::min(kChunk, count - begin), x + begin, grad_y + begin,
                  grad_x + begin, y == nullptr ? nullptr : y + begin);
  });
}

template void activation_forward(const Context&, Activation, std::size_t, const float*, float*);
template void activation_forward(const Context&, Activation, std::size_t, const bfloat16*,
                                 bfloat16*);
template void activation_backward(const Context&, Activation, std::size_t, const float*,
                                  const float*, float*, float*);
template void activation_backward(const Context&, Activation, std::size_t, const bfloat16*,
                                  const bfloat16*, bfloat16*, bfloat16*);

}  // namespace tandem::kernels
