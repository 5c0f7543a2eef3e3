// What a rank computes with: threads, kernels, their scratch memory and their peak.
#pragma once

#include <string>

#include "tandem/comm/api/communicator.h"
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
  // Collective. All ranks compute the bits of the kernels that the weakest CPU among them has: with
  // those kernels, or with faster ones of the same bits. They measure their peaks at once, as they
  // will compute at once. Throws ConfigError.
  Machine(const Environment& environment, nn::Precision precision,
          comm::Communicator& communicator);
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  const RankThreads& rank_threads() const { return rank_threads_; }
  ThreadPool& threads() { return threads_; }
  const kernels::Context& context() const { return context_; }
  // Machines of equal texts compute the same bits: the kernels' arithmetic, and with oneDNN, which
  // chooses its own, the CPU.
  std::string arithmetic() const;
  // FLOP/s in the precision of the job.
  double peak_flops() const { return peak_flops_; }

  // What a person would act on of all that.
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
