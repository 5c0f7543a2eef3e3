// Internal: activations, written once over an instruction set's vector type V.
#pragma once

#include <cstddef>
#include <type_traits>

#include "tandem/kernels/kernel_tables.h"
#include "tandem/kernels/simd/loop.h"
#include "tandem/kernels/simd/math.h"

namespace tandem::kernels::simd {

inline constexpr float kGeluNewSlope = 1.59576912160573071f;  // 2 sqrt(2/pi)
inline constexpr float kGeluNewCubic = 0.044715f;

// x Phi(x) with t = |x|: Phi(x) is Phi(-t) where x < 0 and 1 - Phi(-t) elsewhere, so the value is
// max(x, 0) - t Phi(-t), and the derivative Phi(x) + x phi(x) is d := Phi(-t) - t phi(t) or 1 - d.
template <class V>
struct Gelu {
  // t up to where the tail is zero. NaN stays NaN.
  [[gnu::always_inline]] static V magnitude(V x) { return V::min(V::set1(kTailEnd), V::abs(x)); }
  [[gnu::always_inline]] static V value(V x) {
    const V t = magnitude(x);
    return V::fnma(t, normal_tail(t).below, V::max(V::zero(), x));
  }
  [[gnu::always_inline]] static V derivative(V x, V& value) {
    const V t = magnitude(x);
    const NormalTail<V> tail = normal_tail(t);
    value = V::fnma(t, tail.below, V::max(V::zero(), x));
    const V d = V::fnma(t, tail.density, tail.below);
    return V::select(V::less(x, V::zero()), d, V::set1(1.0f) - d);
  }
};

// The same for results that are rounded to bf16.
template <class V>
struct ShortGelu {
  [[gnu::always_inline]] static V value(V x) {
    const V t = Gelu<V>::magnitude(x);
    const ShortNormalTail<V> tail = short_normal_tail(t);
    return V::fnma(t * tail.bell, tail.mills, V::max(V::zero(), x));
  }
  [[gnu::always_inline]] static V derivative(V x, V& value) {
    const V t = Gelu<V>::magnitude(x);
    const ShortNormalTail<V> tail = short_normal_tail(t);
    value = V::fnma(t * tail.bell, tail.mills, V::max(V::zero(), x));
    const V d = tail.bell * V::fnma(t, V::set1(kInverseSqrt2Pi), tail.mills);
    return V::select(V::less(x, V::zero()), d, V::set1(1.0f) - d);
  }
};

template <class V, class T>
using GeluOf = std::conditional_t<std::is_same_v<T, bfloat16>, ShortGelu<V>, Gelu<V>>;

// 0.5 (1 + tanh u) = sigmoid(2u) =: s, so the value is x s
// and the derivative s + x s (1 - s) (2u)'.
template <class V>
struct GeluNew {
  [[gnu::always_inline]] static Sigmoid<V> gate(V x) {
    const V cubic = V::fma(x * x * x, V::set1(kGeluNewCubic), x);
    return sigmoid(cubic * V::set1(kGeluNewSlope));
  }
  [[gnu::always_inline]] static V value(V x) { return x * gate(x).value; }
  [[gnu::always_inline]] static V derivative(V x, V& value) {
    const Sigmoid<V> s = gate(x);
    value = x * s.value;
    const V slope =
        V::fma(x * x, V::set1(3.0f * kGeluNewCubic * kGeluNewSlope), V::set1(kGeluNewSlope));
    return V::fma(value * s.rest, slope, s.value);
  }
};

// x s with s = sigmoid(x), and the derivative s + x s (1 - s).
template <class V>
struct Silu {
  [[gnu::always_inline]] static V value(V x) { return x * sigmoid(x).value; }
  [[gnu::always_inline]] static V derivative(V x, V& value) {
    const Sigmoid<V> s = sigmoid(x);
    value = x * s.value;
    return V::fma(value, s.rest, s.value);
  }
};

template <class V>
struct Relu {
  [[gnu::always_inline]] static V value(V x) { return V::max(V::zero(), x); }
  [[gnu::always_inline]] static V derivative(V x, V& y) {
    y = value(x);
    return V::select(V::less_equal(x, V::zero()), V::zero(), V::set1(1.0f));
  }
};

template <class V>
struct Tanh {
  [[gnu::always_inline]] static V value(V x) { return tanh(x); }
  [[gnu::always_inline]] static V derivative(V x, V& y) {
    y = value(x);
    return V::fnma(y, y, V::set1(1.0f));
  }
};

template <class V, class Function, class T>
void activate(std::size_t count, const T* x, T* y) {
  for_each_vector<V>(
      count, [&](auto at) __attribute__((always_inline)) {
        fetch_ahead(at, x);
        claim_ahead(at, y);
        at.store(Function::value(at.load(x)), y);
      });
}

template <class V, class Function, class T>
void activate_backward(std::size_t count, const T* x, const T* grad_y, T* grad_x, T* y) {
  for_each_vector<V>(
      count, [&](auto at) __attribute__((always_inline)) {
        V value;
        fetch_ahead(at, x);
        fetch_ahead(at, grad_y);
        claim_ahead(at, grad_x);
        if (y != nullptr) claim_ahead(at, y);
        at.store(at.load(grad_y) * Function::derivative(at.load(x), value), grad_x);
        if (y != nullptr) at.store(value, y);
      });
}

template <class V, class T>
void activation_forward(Activation activation, std::size_t count, const T* x, T* y) {
  switch (activation) {
    case Activation::kGelu:
      return activate<V, GeluOf<V, T>>(count, x, y);
    case Activation::kGeluNew:
      return activate<V, GeluNew<V>>(count, x, y);
    case Activation::kRelu:
      return activate<V, Relu<V>>(count, x, y);
    case Activation::kTanh:
      return activate<V, Tanh<V>>(count, x, y);
    case Activation::kSilu:
      return activate<V, Silu<V>>(count, x, y);
  }
}

template <class V, class T>
void activation_backward(Activation activation, std::size_t count, const T* x, const T* grad_y,
                         T* grad_x, T* y) {
  switch (activation) {
    case Activation::kGelu:
      return activate_backward<V, GeluOf<V, T>>(count, x, grad_y, grad_x, y);
    case Activation::kGeluNew:
      return activate_backward<V, GeluNew<V>>(count, x, grad_y, grad_x, y);
    case Activation::kRelu:
      return activate_backward<V, Relu<V>>(count, x, grad_y, grad_x, y);
    case Activation::kTanh:
      return activate_backward<V, Tanh<V>>(count, x, grad_y, grad_x, y);
    case Activation::kSilu:
      return activate_backward<V, Silu<V>>(count, x, grad_y, grad_x, y);
  }
}

template <class V, class Function, class T>
void gate(std::size_t count, const T* x, const T* gate, T* y) {
  for_each_vector<V>(
      count, [&](auto at) __attribute__((always_inline)) {
        fetch_ahead(at, x);
        fetch_ahead(at, gate);
        claim_ahead(at, y);
        at.store(Function::value(at.load(x)) * at.load(gate), y);
      });
}

template <class V, class Function, class T>
void gate_backward(const GatedRowBackward<T>& r) {
  for_each_vector<V>(
      r.count, [&](auto at) __attribute__((always_inline)) {
        V value;
        const V slope = Function::derivative(at.load(r.x), value);
        const V gate = at.load(r.gate);
        const V grad_y = at.load(r.grad_y);
        at.store(grad_y * gate * slope, r.grad_x);
        at.store(grad_y * value, r.grad_gate);
        if (r.y != nullptr) at.store(value * gate, r.y);
      });
}

template <class V, class T>
void gated_forward(Activation activation, std::size_t count, const T* x, const T* gates, T* y) {
  switch (activation) {
    case Activation::kGelu:
      return gate<V, GeluOf<V, T>>(count, x, gates, y);
    case Activation::kGeluNew:
      return gate<V, GeluNew<V>>(count, x, gates, y);
    case Activation::kRelu:
      return gate<V, Relu<V>>(count, x, gates, y);
    case Activation::kTanh:
      return gate<V, Tanh<V>>(count, x, gates, y);
    case Activation::kSilu:
      return gate<V, Silu<V>>(count, x, gates, y);
  }
}

template <class V, class T>
void gated_backward(Activation activation, const GatedRowBackward<T>& r) {
  switch (activation) {
    case Activation::kGelu:
      return gate_backward<V, GeluOf<V, T>>(r);
    case Activation::kGeluNew:
      return gate_backward<V, GeluNew<V>>(r);
    case Activation::kRelu:
      return gate_backward<V, Relu<V>>(r);
    case Activation::kTanh:
      return gate_backward<V, Tanh<V>>(r);
    case Activation::kSilu:
      return gate_backward<V, Silu<V>>(r);
  }
}

template <class V>
constexpr ActivationKernels activation_kernels() {
  return {.f32 = {activation_forward<V, float>, activation_backward<V, float>,
                  gated_forward<V, float>, gated_backward<V, float>},
          .bf16 = {activation_forward<V, bfloat16>, activation_backward<V, bfloat16>,
                   gated_forward<V, bfloat16>, gated_backward<V, bfloat16>}};
}

}  // namespace tandem::kernels::simd
