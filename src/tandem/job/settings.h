// The decisions of a job that precede its parts: the output directory, the checkpoint to resume
// from, and the arguments of training that follow from both.
#pragma once

#include <optional>

#include "tandem/core/env.h"
#include "tandem/core/volume.h"
#include "tandem/job/arguments.h"
#include "tandem/job/console.h"
#include "tandem/job/job_output.h"
#include "tandem/job/output_directory.h"
#include "tandem/job/world.h"
#include "tandem/trainer/training_arguments.h"

namespace tandem::job {

struct Settings {
  trainer::TrainingArguments training;
  PreparedOutput output;
  std::optional<VolumeMark> volume;  // volume of output_dir
};

// `directory` is set on ranks that have one. In an elastic job one worker decides, once, for all.
// Collective.
Settings settle(Request& request, std::optional<OutputDirectory>& directory,
                const Environment& environment, const World& world, Console& console);

}  // namespace tandem::job
