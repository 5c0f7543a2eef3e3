// Checkpoints of the Hugging Face Trainer: optimizer.pt, scheduler.pt, trainer_state.json. A run
// begun in Python is resumed here, and one begun here is resumed in Python; optimizer.pt is also
// where tandem's own checkpoints keep the optimizer's state, so that nothing is stored twice.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/models/pretrained/parameter_order.h"
#include "tandem/nn/parameter_layout.h"
#include "tandem/optim/optimizer.h"
#include "tandem/optim/schedule.h"
#include "tandem/trainer/checkpoint.h"
#include "tandem/trainer/trainer_state.h"

namespace tandem::trainer {

// Files of such a checkpoint.
inline constexpr std::string_view kOptimizerFile = "optimizer.pt";
inline constexpr std::string_view kSchedulerFile = "scheduler.pt";

// Whether `directory` holds an optimizer.pt and none of tandem's own state.
bool is_python_checkpoint(const std::filesystem::path& directory);

// Facts about the run behind such a checkpoint: its batch size, how many ranks it had (as many as
// there are rng_state files), and where reduce_lr_on_plateau stood. Data and accumulation are not
// in the state; ResumeState::from_python marks that (resume_differences.h looks at
// training_args.bin). The state of PyTorch's random numbers is of no use here: dropout draws from
// tandem's own. Throws IoError or DataError.
ResumeState python_resume_state(const std::filesystem::path& directory, const TrainerState& state);

// Fills arenas.optimizer_state from optimizer.pt: by the names of the parameters where the file has
// them, else in the order of transformers 5 or 4 in which all shapes fit (checkpoints of tandem
// without names: in the order that it wrote before). Throws IoError or DataError (another
// optimizer, another model, another order).
void load_python_optimizer(const std::filesystem::path& directory,
                           const nn::ParameterLayout& layout, const TrainedArenas& arenas);

// Write what torch.save makes of the state_dict() of the Trainer's optimizer (torch's or
// transformers' of that name) and schedule. Throw IoError.
void write_python_optimizer(const std::filesystem::path& directory,
                            const nn::ParameterLayout& layout, const TrainedArenas& arenas,
                            const OptimizationState& state);
void write_python_schedule(const std::filesystem::path& directory,
                           const nn::ParameterLayout& layout, const OptimizationState& state);

// Names of the trainable parameters in the order in which the Trainer's optimizer numbers them:
// those that decay first, each group in the order of the model's named_parameters(). Valid as long
// as the layout. optimizer.pt is written in that of transformers 5, with the names ("param_names",
// as PyTorch's optimizers of named parameters write them), so that nothing depends on the order
// when tandem reads it.
using ParameterOrder = std::vector<std::string_view>;
ParameterOrder python_parameter_order(
    const nn::ParameterLayout& layout,
    models::DefinitionOrder order = models::DefinitionOrder::kTransformers5);

}  // namespace tandem::trainer
