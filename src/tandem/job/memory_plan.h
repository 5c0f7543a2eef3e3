// How much memory a job will take at its peak, said before the first step; and how much it took.
#pragma once

#include <cstddef>

#include "tandem/comm/api/communicator.h"
#include "tandem/dist/gradient_engine.h"
#include "tandem/job/arguments.h"
#include "tandem/job/console.h"
#include "tandem/kernels/context.h"
#include "tandem/tasks/job_task.h"
#include "tandem/tasks/task.h"

namespace tandem::job {

struct MemoryPlan {
  dist::MemoryPerNode node;  // weights, gradients and optimizer state
  // Of an elastic job, whose workers plan alone: how many this node has; this one plans for all. 0:
  // each rank plans for itself.
  int workers = 0;
  // Of this rank:
  std::size_t activations = 0;   // of the largest batch of the run
  std::size_t batch_rows = 0;    // its rows
  std::size_t scratch = 0;       // what the kernels use of their scratch memory
  std::size_t evaluation = 0;    // logits, answers, and activations beyond those above
  std::size_t main_only = 0;     // the part of it that only rank 0 has
  std::size_t quantization = 0;  // quantization_bytes(), compared_output_bytes()
  std::size_t process = 0;       // measured: program, data set, vocabulary
  std::size_t loading = 0;       // measured: the peak while they were loaded
  // Of this rank's node: measured, the agent of an elastic job; 0 without one.
  std::size_t agent = 0;
  // Of this rank's node: an elastic job's state with the file of the model mapped beside it, which
  // the first worker reads after the plan; 0 in other jobs.
  std::size_t state_loading = 0;

  std::size_t of_rank() const {
    return activations + scratch + evaluation + quantization + process;
  }
};

// A task as memory plans see it: the job's part and the trainer's.
struct PlannedTask {
  tasks::JobTask& of_job;
  tasks::Task& of_trainer;
};

// Allocates what training and evaluation need (as address space) and says how much of it they will
// use. The data is loaded and the weights are filled. `training` says what this job does;
// `workers`: MemoryPlan::workers.
MemoryPlan plan_memory(const trainer::TrainingArguments& training, const kernels::Context& context,
                       const comm::Communicator& communicator,
                       const dist::GradientEngine& gradients, const PlannedTask& task, int workers);

// What a rank of a job with --apply_quantization holds beside its plan: the weights of the
// encoder's linear layers in int8, three times at the peak (as rows, packed, and those of the trial
// before), the activations of calibration, and what --verify_loading reads: all weights in f32, and
// mapped beside them those of the file that are in f32. Allocates the second of these unless
// training has more: it comes before plan_memory(), for evaluations run in the same memory.
std::size_t quantization_bytes(const Arguments& arguments, tasks::Task& task);

// The outputs of this rank's evaluations that --apply_quantization keeps to compare them: those of
// a trial and of the one before. Comes after plan_memory().
std::size_t compared_output_bytes(const quant::QuantizationArguments& options,
                                  const tasks::JobTask& task,
                                  const comm::Communicator& communicator);

// Prints the plan and returns the peak of this rank's node, in bytes. Collective.
std::size_t print_memory_plan(const MemoryPlan& plan, comm::Communicator& communicator,
                              Console& console);

// Compares the plan with every limit of memory that the ranks run under, those that they share with
// the sum of their plans: warns where it will be tight, and throws ConfigError on all ranks where
// the job would be killed. Collective.
void check_memory_limits(const MemoryPlan& plan, comm::Communicator& communicator,
                         Console& console);

// What was really used so far at the peak, and how much more that is than planned. `has_agent`: an
// agent started this rank, which both figures include. Collective.
void print_memory_used(std::size_t planned, bool has_agent, comm::Communicator& communicator,
                       Console& console);

}  // namespace tandem::job
