// What enters the computation of a job beside its command line, as text on which the ranks agree
// before the first step.
#pragma once

#include <string>
#include <string_view>

#include "tandem/job/model.h"
#include "tandem/tasks/job_task.h"

namespace tandem::job {

// Lines "name=value": the program (version and SHA-256 of its file), every key of config.json, a
// fingerprint of what the tokenizer made of the data to train on, to evaluate and to predict, and
// the SHA-256 of the weights of a model in int8, which every rank reads for itself: those in f32
// are rank 0's. Throws IoError, DataError.
std::string describe_inputs(const tasks::JobTask& task, const Model& model);

// Such lines, to be sent to who tells what differs: of a long value the beginning, and its hash, so
// that lines differ as before. At most 32 KB: the last lines of more are left out.
std::string shortened(std::string_view lines);

}  // namespace tandem::job
