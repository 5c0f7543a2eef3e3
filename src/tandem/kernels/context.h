// The context of every operation: the threads it runs on, the implementations chosen at start, and
// reusable memory.
#pragma once

#include "tandem/core/profile.h"
#include "tandem/core/thread_pool.h"
#include "tandem/kernels/kernel_set.h"
#include "tandem/kernels/scratch.h"

namespace tandem::kernels {

// References to objects that main() owns; cheap to copy. One operation at a time per Context (the
// pool is not reentrant). scratch must have been made for at least threads.num_threads() threads.
//
//   ThreadPool threads(available_cores());
//   const KernelSet kernels = select_kernels(CpuFeatures::detect());
//   Scratch scratch(threads.num_threads());
//   const Context ctx{threads, kernels, scratch};
struct Context {
  ThreadPool& threads;
  const KernelSet& kernels;
  Scratch& scratch;
  Profile* profile = nullptr;  // the stages of a step are timed into it; null: they are not
};

}  // namespace tandem::kernels
