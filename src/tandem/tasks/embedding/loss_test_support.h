// Threads, kernels and memory for the tests of losses.
#pragma once

#include "tandem/kernels/context.h"

namespace tandem::tasks::embedding {

struct Machine {
  explicit Machine(int count)
      : threads(count),
        kernels(kernels::select_kernels(kernels::CpuFeatures::detect())),
        scratch(count) {}
  ThreadPool threads;
  kernels::KernelSet kernels;
  kernels::Scratch scratch;
  kernels::Context context{threads, kernels, scratch};
};

}  // namespace tandem::tasks::embedding
