#include "tandem/kernels/squared_error.h"

#include "tandem/kernels/chunked_sum.h"

namespace tandem::kernels {

double squared_error(const Context& ctx, std::size_t count, const float* predictions,
                     const float* targets, float grad_scale, float* grad) {
  const auto values = static_cast<double>(count);
  const double sum = chunked_sum(ctx, count, [&](std::size_t i) {
    const double error = static_cast<double>(predictions[i]) - static_cast<double>(targets[i]);
    if (grad != nullptr) grad[i] = static_cast<float>(2 * error * grad_scale / values);
    return error * error;
  });
  return sum / values;
}

}  // namespace tandem::kernels
