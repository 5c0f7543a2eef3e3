// The reference activations, in f64.
#include <cmath>
#include <numbers>

#include "tandem/kernels/kernel_tables.h"

namespace tandem::kernels {
namespace {

constexpr double kCubic = 0.044715;
const double kSqrt2OverPi = std::sqrt(2.0 / std::numbers::pi);

double gelu(double x) { return 0.5 * x * std::erfc(-x / std::numbers::sqrt2); }

double gelu_derivative(double x) {
  const double density = std::exp(-0.5 * x * x) / std::sqrt(2.0 * std::numbers::pi);
  return 0.5 * std::erfc(-x / std::numbers::sqrt2) + x * density;
}

double gelu_new(double x) {
  return 0.5 * x * (1.0 + std::tanh(kSqrt2OverPi * (x + kCubic * x * x * x)));
}

double gelu_new_derivative(double x) {
  const double t = std::tanh(kSqrt2OverPi * (x + kCubic * x * x * x));
  return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * kSqrt2OverPi * (1.0 + 3.0 * kCubic * x * x);
}

// As torch: NaN passes through; the derivative at 0 is 0.
double relu(double x) { return x <= 0 ? 0 : x; }
double relu_derivative(double x) { return x <= 0 ? 0 : 1; }

double tanh_derivative(double x) { return 1 - std::tanh(x) * std::tanh(x); }

double silu(double x) { return x / (1 + std::exp(-x)); }
double silu_derivative(double x) {
  const double s = 1 / (1 + std::exp(-x));
  return s + x * s * (1 - s);
}

using Function = double (*)(double);
struct Functions {
  Function value;
  Function derivative;
};
Functions functions_of(Activation activation) {
  switch (activation) {
    case Activation::kGelu:
      return {gelu, gelu_derivative};
    case Activation::kGeluNew:
      return {gelu_new, gelu_new_derivative};
    case Activation::kRelu:
      return {relu, relu_derivative};
    case Activation::kTanh:
      return {std::tanh, tanh_derivative};
    case Activation::kSilu:
      return {silu, silu_derivative};
  }
  return {};
}

template <class T>
void forward(Activation activation, std::size_t count, const T* x, T* y) {
  const Function f = functions_of(activation).value;
  for (std::size_t i = 0; i < count; ++i)
    y[i] = to_storage<T>(static_cast<float>(f(to_float(x[i]))));
}

template <class T>
void backward(Activation activation, std::size_t count, const T* x, const T* grad_y, T* grad_x,
              T* y) {
  const Function f = functions_of(activation).derivative;
  for (std::size_t i = 0; i < count; ++i) {
    grad_x[i] = to_storage<T>(static_cast<float>(f(to_float(x[i])) * to_float(grad_y[i])));
  }
  if (y != nullptr) forward(activation, count, x, y);
}

template <class T>
void gated_forward(Activation activation, std::size_t count, const T* x, const T* gate, T* y) {
  const Function f = functions_of(activation).value;
  for (std::size_t i = 0; i < count; ++i) {
    const double gated = f(to_float(x[i])) * static_cast<double>(to_float(gate[i]));
    y[i] = to_storage<T>(static_cast<float>(gated));
  }
}

template <class T>
void gated_backward(Activation activation, const GatedRowBackward<T>& r) {
  const Functions f = functions_of(activation);
  for (std::size_t i = 0; i < r.count; ++i) {
    const double x = to_float(r.x[i]);
    const double gate = to_float(r.gate[i]);
    const double grad_y = to_float(r.grad_y[i]);
    r.grad_x[i] = to_storage<T>(static_cast<float>(grad_y * gate * f.derivative(x)));
    r.grad_gate[i] = to_storage<T>(static_cast<float>(grad_y * f.value(x)));
    if (r.y != nullptr) r.y[i] = to_storage<T>(static_cast<float>(f.value(x) * gate));
  }
}

}  // namespace

const ActivationKernels kActivationReference = {
    .f32 = {forward<float>, backward<float>, gated_forward<float>, gated_backward<float>},
    .bf16 = {forward<bfloat16>, backward<bfloat16>, gated_forward<bfloat16>,
             gated_backward<bfloat16>},
};

}  // namespace tandem::kernels
