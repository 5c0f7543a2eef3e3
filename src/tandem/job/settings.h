// The decisions of a job that precede its parts: the output directory, the checkpoint to resume
// from, and the arguments of training that follow from both.
#pragma once

#include "tandem/core/env.h"
#include "tandem/job/arguments.h"
#include "tandem/job/console.h"
#include "tandem/job/job_output.h"
#include "tandem/job/world.h"
#include "tandem/trainer/training_arguments.h"

namespace tandem::job {

// Sets `output` and the request's output_dir; returns the arguments of training. In an elastic job
// one worker decides, once, for all. Collective.
trainer::TrainingArguments settle(Request& request, PreparedOutput& output,
                                  const Environment& environment, const World& world,
                                  Console& console);

}  // namespace tandem::job
