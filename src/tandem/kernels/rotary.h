// Rotary positions on queries and keys (Su et al. 2021, "RoFormer"), in the form by halves:
//
//   y = x cos + [-x2, x1] sin   for the halves x1, x2 of a head,
//
// with the same angle for element j of both halves, position theta^(-2j / head_dim). Positions
// count from 0 in each sequence.
#pragma once

#include <cstddef>

#include "tandem/core/bfloat16.h"
#include "tandem/kernels/context.h"
#include "tandem/kernels/sequences.h"

namespace tandem::kernels {

// Cosines and sines of the angles: [positions, head_dim / 2] f32 each.
struct RotaryTable {
  std::size_t positions = 0;
  const float* cos = nullptr;
  const float* sin = nullptr;
};

// Lower frequencies for texts longer than those of the first training (Llama 3.1): wavelengths
// above original_positions / low_frequency_factor are `factor` times as long, those below
// original_positions / high_frequency_factor stay, and between them the change is gradual.
struct RotaryScaling {
  double factor = 8;
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  std::size_t original_positions = 8192;
};

// Writes the table. Frequencies and angles are rounded to f32 as Hugging Face does. scaling: or
// null. Throws InvalidArgument for an odd head_dim or a theta that is not positive.
void fill_rotary_table(double theta, std::size_t head_dim, std::size_t positions, float* cos,
                       float* sin, const RotaryScaling* scaling = nullptr);

// Rotates `heads` heads of every row in place. Head i of row r is at x + r ld + i head_dim, so the
// queries and keys of a product [rows, 3H] are 2 H / head_dim heads with ld = 3H; queries or keys
// alone have their own x, ld and heads. Values between the heads and the next row stay.
//   x: T (float or bfloat16); the arithmetic is f32.
// Throws InvalidArgument for bad sequences, an odd head_dim, heads that do not fit in ld, or a
// sequence of more rows than the table has positions.
template <class T>
void rotary_forward(const Context& ctx, const Sequences& sequences, std::size_t heads,
                    std::size_t head_dim, const RotaryTable& table, T* x, std::size_t ld);

// The gradient of x from that of y, in place: the transpose, a rotation by the negative angles.
template <class T>
void rotary_backward(const Context& ctx, const Sequences& sequences, std::size_t heads,
                     std::size_t head_dim, const RotaryTable& table, T* grad, std::size_t ld);

}  // namespace tandem::kernels
