// The inputs of a job's computation besides its command line, as text on which the ranks agree
// before the first step.
#pragma once

#include <string>
#include <string_view>

#include "tandem/job/model.h"
#include "tandem/tasks/job_task.h"

namespace tandem::job {

// Lines "name=value": the program (version and SHA-256 of its file), every key of config.json, a
// fingerprint of the tokenized data for training, evaluation and prediction, and the SHA-256 of the
// weights of an int8 model, which every rank reads itself (f32 weights come from rank 0). Throws
// IoError, DataError.
std::string describe_inputs(const tasks::JobTask& task, const Model& model);

// Such lines for the rank that reports differences. A long value is cut and followed by its hash,
// so that lines still differ. At most 32 KB: the last lines beyond are left out.
std::string shortened(std::string_view lines);

}  // namespace tandem::job
