// The first row of each sequence, [CLS], as a matrix of its own: what heads of whole sequences
// compute on.
#pragma once

#include <cstddef>

#include "tandem/kernels/context.h"
#include "tandem/kernels/dropout.h"
#include "tandem/kernels/sequences.h"

namespace tandem::kernels {

// T is float or bfloat16.

// y = the first rows of x, overwritten.   x: [rows, columns] T.   y: [sequences, columns] T, other
// memory. Throws InvalidArgument as check_sequences().
template <class T>
void gather_first_rows(const Context& ctx, const Sequences& sequences, std::size_t columns,
                       const T* x, T* y);

// Its backward: grad_x is grad_y in the first rows and 0 in all others, in place.
//   grad: [rows, columns] T; its first `sequences` rows are grad_y on entry, and it is grad_x on
//   return. Serial: it is bound by memory.
template <class T>
void spread_first_rows(const Sequences& sequences, std::size_t columns, T* grad);

// dropout_forward() (dropout.h) over a matrix with one row per sequence: the mask of row 0 of each.
//   x, y: [sequences, columns] f32; y may be x.
void dropout_first_rows(const Context& ctx, const Sequences& sequences, std::size_t columns,
                        const Dropout& dropout, const float* x, float* y);

}  // namespace tandem::kernels
