// The first row of each sequence, [CLS], as a matrix of its own: what heads of whole sequences
// compute on.
#pragma once

#include <cstddef>

#include "tandem/kernels/context.h"
#include "tandem/kernels/dropout.h"
#include "tandem/kernels/sequences.h"

namespace tandem::kernels {

// y = the first rows of x, overwritten.   x: [rows, columns] f32.   y: [sequences, columns] f32,
// other memory. Throws InvalidArgument as check_sequences().
void gather_first_rows(const Context& ctx, const Sequences& sequences, std::size_t columns,
                       const float* x, float* y);

// The same in place: x[i] becomes the first row of sequence i, and what lies behind these rows
// means nothing.   x: [rows, columns] T, float or bfloat16. Serial.
template <class T>
void keep_first_rows(const Sequences& sequences, std::size_t columns, T* x);

// Its backward: grad_x is grad_y in the first rows and 0 in all others, overwritten.
//   grad_y: [sequences, columns] f32.   grad_x: [rows, columns] f32, other memory.
void scatter_first_rows(const Context& ctx, const Sequences& sequences, std::size_t columns,
                        const float* grad_y, float* grad_x);

// dropout_forward() (dropout.h) over a matrix with one row per sequence: the mask of row 0 of each.
//   x, y: [sequences, columns] f32; y may be x.
void dropout_first_rows(const Context& ctx, const Sequences& sequences, std::size_t columns,
                        const Dropout& dropout, const float* x, float* y);

}  // namespace tandem::kernels
