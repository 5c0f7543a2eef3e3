// The peak memory of a job: the estimate before the first step, and the measured use.
#pragma once

#include <cstddef>

#include "tandem/comm/communicator.h"
#include "tandem/dist/gradient_engine.h"
#include "tandem/job/arguments.h"
#include "tandem/job/console.h"
#include "tandem/kernels/context.h"
#include "tandem/tasks/job_task.h"
#include "tandem/tasks/task.h"

namespace tandem::job {

struct MemoryPlan {
  dist::MemoryPerNode node;  // weights, gradients and optimizer state
  // For an elastic job, whose workers plan alone: the number of workers of this node; this one
  // plans for all. 0: each rank plans for itself.
  int workers = 0;
  // For this rank:
  std::size_t activations = 0;   // activations of the largest batch of the run
  std::size_t batch_rows = 0;    // its rows
  std::size_t scratch = 0;       // used part of the kernels' scratch memory
  std::size_t evaluation = 0;    // logits, answers, and activations beyond those above
  std::size_t main_only = 0;     // the part that only rank 0 has
  std::size_t quantization = 0;  // quantization_bytes(), compared_output_bytes()
  std::size_t process = 0;       // measured: program, data set, vocabulary
  std::size_t loading = 0;       // measured: the peak while they were loaded
  // Measured on this rank's node: the agent of an elastic job; 0 without one.
  std::size_t agent = 0;
  // An elastic job's state on this rank's node with the mapped file of the model, which the first
  // worker reads after the plan; 0 in other jobs.
  std::size_t state_loading = 0;

  std::size_t of_rank() const {
    return activations + scratch + evaluation + quantization + process;
  }
};

// A task from the side of memory plans: the job's part and the trainer's.
struct PlannedTask {
  tasks::JobTask& of_job;
  tasks::Task& of_trainer;
};

// Allocates the memory of training and evaluation (as address space) and estimates the part that
// will be used. The data is loaded and the weights are filled. `training` selects the phases;
// `workers`: MemoryPlan::workers.
MemoryPlan plan_memory(const trainer::TrainingArguments& training, const kernels::Context& context,
                       const comm::Communicator& communicator,
                       const dist::GradientEngine& gradients, const PlannedTask& task, int workers);

// Memory of a rank with --apply_quantization in addition to its plan. It holds the weights of the
// encoder's linear layers in int8, three times at the peak (as rows, packed, and those of the
// previous trial), the activations of calibration, and the data of --verify_loading: all weights in
// f32, and the file's f32 weights mapped in addition. Allocates the activations unless training has
// more. Call it before plan_memory(), because evaluations run in the same memory.
std::size_t quantization_bytes(const Arguments& arguments, tasks::Task& task);

// The outputs of this rank's evaluations that --apply_quantization compares: those of a trial and
// of the previous one. Call it after plan_memory().
std::size_t compared_output_bytes(const quant::QuantizationArguments& options,
                                  const tasks::JobTask& task,
                                  const comm::Communicator& communicator);

// Prints the plan and returns the peak of this rank's node, in bytes. Collective.
std::size_t print_memory_plan(const MemoryPlan& plan, comm::Communicator& communicator,
                              Console& console);

// Compares the plan with every memory limit of the ranks; a shared limit is compared with the sum
// of their plans. Warns if memory is tight, and throws ConfigError on all ranks if the job would be
// killed. Collective.
void check_memory_limits(const MemoryPlan& plan, comm::Communicator& communicator,
                         Console& console);

// Prints the peak use so far, and its excess over the plan. `has_agent`: an agent started this
// rank, which both figures include. Collective.
void print_memory_used(std::size_t planned, bool has_agent, comm::Communicator& communicator,
                       Console& console);

}  // namespace tandem::job
