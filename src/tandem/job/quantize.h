// --apply_quantization: from a model in f32 to a directory with an int8 model that is good enough.
#pragma once

#include <optional>
#include <string_view>

#include "tandem/comm/communicator.h"
#include "tandem/core/json.h"
#include "tandem/job/training_run.h"
#include "tandem/nn/int8_linear.h"
#include "tandem/quant/load_model.h"

namespace tandem::job {

struct Quantized {
  nn::Int8Linears linears;
  nlohmann::ordered_json metrics;  // metrics of its evaluation
};

// Evaluates in f32, calibrates, tries int8 models (quant/tuning.h), saves the accepted one and its
// prediction files in output_dir and, if requested, reads it again and compares. Returns nothing if
// no model was within the tolerance, or if the saved one differs. The console then has the numbers,
// and in the first case the best model is in output_dir/int8_below_tolerance. Collective; every
// rank returns the same. The task computes in f32 from here on. `saves`: this rank writes the
// model. Throws ConfigError, DataError, IoError, CommError.
std::optional<Quantized> quantize(const TrainingRun& run, comm::Communicator& communicator,
                                  trainer::Observer& observer, bool saves);

// Logs on the main process that --do_train trains nothing, if so. `examples`: the kind of the data.
void warn_of_no_training(const Arguments& arguments, std::string_view examples, bool is_main,
                         Console& console);

// Checks a job's use of a model. An int8 model is neither trained nor quantized, and an f32 model
// is not quantized into its own directory. Throws ConfigError.
void check_use_of_int8(const quant::ModelFiles& files, const Arguments& arguments,
                       const trainer::TrainingArguments& training);

}  // namespace tandem::job
