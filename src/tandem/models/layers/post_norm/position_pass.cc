#include "tandem/models/layers/post_norm/position_pass.h"

#include "tandem/nn/linear.h"

namespace tandem::models {

template <class T>
PositionTensors<T> PositionTensors<T>::lay_out(Region& saved, Region& scratch,
                                               const RelativeEmbeddings& shared,
                                               const kernels::AttentionShape& shape,
                                               const LayerRows& rows, bool training) {
  const std::size_t P = shared.positions(rows.all), H = shape.out_width();
  PositionTensors t;
  t.qkv = saved.allocate<T>(P * 3 * H);
  t.input = scratch.allocate<T>(P * H);
  if (training) {
    t.grad_qkv = scratch.allocate<T>(P * 3 * H);
    t.grad_input = scratch.allocate<float>(P * H);
    t.sums = scratch.allocate<float>(kernels::disentangled_attention_memory(rows.all, P, shape));
  }
  return t;
}

template <class T>
PositionPass<T>::PositionPass(const LayerPass<T>& pass, const RelativeEmbeddings& shared,
                              const nn::Linear& qkv, const kernels::Dropout& dropout,
                              const PositionTensors<T>& tensors)
    : texts_(pass.rows),
      qkv_(qkv),
      dropout_(dropout),
      tensors_(tensors),
      positions_(shared.positions_of(pass.rows, pass.shared)),
      pass_(positions_.pass_of(texts_)) {}

// One mask for all texts of a step: the rows belong to none of them.
template <class T>
std::span<const T> PositionPass<T>::input() const {
  const std::span<T> shared = positions_.template operand<T>();
  if (dropout_.p == 0.0f) return shared;
  kernels::dropout_positions<T>(texts_.context, dropout_, positions_.first, positions_.rows,
                                width(), shared.data(), tensors_.input.data());
  return tensors_.input.first(shared.size());
}

template <class T>
void PositionPass<T>::project() const {
  nn::linear_forward<T>(pass_, qkv_, input(), tensors_.qkv.first(positions_.rows * 3 * width()));
}

template <class T>
kernels::RelativePositions<T> PositionPass<T>::relative() const {
  return {.row_of = positions_.row_of, .rows = positions_.rows, .qkv = tensors_.qkv.data()};
}

template <class T>
void PositionPass<T>::backward(const nn::Gradients& grads) const {
  nn::Gradients further = grads;
  further.accumulate = true;
  const std::span<float> grad_input = tensors_.grad_input.first(positions_.rows * width());
  nn::linear_backward<T, float>(pass_, qkv_, input(), grad_qkv(), grad_input,
                                /*accumulate_grad_x=*/false, further);
  kernels::dropout_positions_backward(texts_.context, dropout_, positions_.first, positions_.rows,
                                      width(), grad_input.data(), positions_.grad.data());
}

template struct PositionTensors<float>;
template struct PositionTensors<bfloat16>;
template class PositionPass<float>;
template class PositionPass<bfloat16>;

}  // namespace tandem::models
