// Output of a job before the first step, as far as a user can act on it: notes of the command line,
// ranks, threads, model, data, memory and disk; with --log_level debug also every argument, the
// kernels, buckets and bytes.
#pragma once

#include <filesystem>
#include <string_view>

#include "tandem/comm/communicator.h"
#include "tandem/dist/gradient_engine.h"
#include "tandem/dist/model_state.h"
#include "tandem/job/arguments.h"
#include "tandem/job/console.h"
#include "tandem/job/memory_plan.h"
#include "tandem/job/rank_threads.h"
#include "tandem/kernels/context.h"
#include "tandem/models/pretrained/pretrained.h"
#include "tandem/rendezvous/identity.h"
#include "tandem/report/html_report.h"
#include "tandem/tasks/job_task.h"
#include "tandem/tasks/task.h"

namespace tandem::job {

// The arguments, the notes of the command line, and this process's rank.
void print_start(const Request& request, const tasks::JobTask& task,
                 const rendezvous::Identity& identity, const comm::Communicator& communicator,
                 Console& console);

void print_machine(const kernels::Context& context, const RankThreads& threads, double peak_flops,
                   const comm::Communicator& communicator, Console& console);

// The same and the ranks, for the report.
std::vector<report::Fact> machine_facts(const kernels::Context& context, const RankThreads& threads,
                                        double peak_flops, const comm::Communicator& communicator,
                                        bool bf16);

// This machine's rates (FLOP/s) of products in f32 and in bf16; a warning if --bf16 is not faster.
void print_bf16_rate(double f32_flops, double bf16_flops, Console& console);

void print_model(const std::filesystem::path& directory, const tasks::JobTask& task,
                 const nn::ParameterLayout& layout, Console& console);

// Weights of the file that were not used, and parameters that are new.
// `trains`: missing weights will be trained. Otherwise a warning states that the results of the run
// are random.
void print_load_report(const models::LoadReport& report, std::string_view model, bool trains,
                       Console& console);

// The NUMA node of this rank's part of the model's memory, if one was chosen.
void log_memory_location(const dist::GradientEngine& gradients, Console& console);

// The summation of gradients, what depends on the number of devices, and the disk of the
// checkpoints; warns if that is too small.
void print_estimates(const trainer::TrainingArguments& training, const PlannedTask& task,
                     const dist::ModelState& state, const dist::GradientEngine& gradients,
                     const comm::Communicator& communicator, Console& console);

}  // namespace tandem::job
