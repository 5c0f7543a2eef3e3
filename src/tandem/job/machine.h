// A rank's means of computation: threads, kernels, their scratch memory and their peak.
#pragma once

#include <string>

#include "tandem/comm/communicator.h"
#include "tandem/core/env.h"
#include "tandem/core/thread_pool.h"
#include "tandem/job/console.h"
#include "tandem/job/rank_threads.h"
#include "tandem/kernels/context.h"
#include "tandem/kernels/kernel_set.h"
#include "tandem/kernels/scratch.h"
#include "tandem/nn/pass.h"

namespace tandem::job {

class Machine {
 public:
  // Collective. All ranks compute the bits of the kernels of the weakest CPU among them: with those
  // kernels, or with faster ones of the same bits. All measure their peaks at the same time, as
  // they compute at the same time. Throws ConfigError.
  Machine(const Environment& environment, nn::Precision precision,
          comm::Communicator& communicator);
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  const RankThreads& rank_threads() const { return rank_threads_; }
  ThreadPool& threads() { return threads_; }
  const kernels::Context& context() const { return context_; }
  // Machines with equal texts compute the same bits. The text contains the kernels' arithmetic, and
  // with oneDNN, which selects its own kernels, the CPU.
  std::string arithmetic() const;
  // FLOP/s in the precision of the job.
  double peak_flops() const { return peak_flops_; }

  // The parts of this that a user can act on.
  void describe(const comm::Communicator& communicator, Console& console) const;

 private:
  const nn::Precision precision_;
  const RankThreads rank_threads_;
  ThreadPool threads_;
  kernels::KernelSet kernels_;
  const std::string tiles_;  // a line about tuned tiles, or nothing
  kernels::Scratch scratch_;
  const kernels::Context context_;
  double peak_flops_ = 0;
};

}  // namespace tandem::job
