#include "tandem/trainer/resume_differences.h"

#include <optional>

#include "tandem/core/error.h"
#include "tandem/formats/torch_file.h"

namespace tandem::trainer {
namespace {

namespace fs = std::filesystem;
using formats::TorchValue;

constexpr std::string_view kStateFile = "trainer_state.json";
constexpr std::string_view kArgumentsFile = "training_args.bin";

class Differences {
 public:
  void compare(std::string_view name, std::int64_t ours, std::int64_t theirs,
               std::string_view file) {
    if (ours != theirs) add(name, fmt::format("{}", ours), fmt::format("{}", theirs), file);
  }
  void compare(std::string_view name, bool ours, bool theirs, std::string_view file) {
    const auto text = [](bool value) { return value ? "True" : "False"; };
    if (ours != theirs) add(name, text(ours), text(theirs), file);
  }
  const std::string& text() const { return text_; }

 private:
  void add(std::string_view name, const std::string& ours, const std::string& theirs,
           std::string_view file) {
    text_ += fmt::format("\n  {}: {} (from args) != {} (from {})", name, ours, theirs, file);
  }
  std::string text_;
};

// Zero stands for an interval that is not by steps.
void compare_intervals(const TrainerState& saved, const TrainingPlan& plan,
                       Differences& differences) {
  const auto compare = [&](std::string_view name, std::int64_t ours, std::int64_t theirs) {
    if (ours != 0 && theirs != 0) differences.compare(name, ours, theirs, kStateFile);
  };
  compare("logging_steps", plan.logging_steps, saved.logging_steps);
  compare("eval_steps", plan.eval_steps, saved.eval_steps);
  compare("save_steps", plan.save_steps, saved.save_steps);
}

// Attributes that a version of transformers does not have are not compared.
void compare_arguments(const TorchValue& attributes, const TrainingArguments& arguments,
                       Differences& differences) {
  const auto number = [&](std::string_view name) -> std::optional<std::int64_t> {
    const auto value = attributes.find(name);
    if (!value || value->is_none()) return std::nullopt;
    return value->as_int();
  };
  const auto compare = [&](std::string_view name, std::int64_t ours) {
    if (const auto theirs = number(name)) differences.compare(name, ours, *theirs, kArgumentsFile);
  };
  const auto compare_flag = [&](std::string_view name, bool ours) {
    if (const auto theirs = attributes.find(name))
      differences.compare(name, ours, theirs->as_bool(), kArgumentsFile);
  };
  compare("gradient_accumulation_steps", arguments.gradient_accumulation_steps);
  compare("seed", arguments.seed);
  // An unset data_seed is the seed, which was compared.
  if (arguments.data_seed || number("data_seed")) {
    differences.compare("data_seed", arguments.data_seed.value_or(arguments.seed),
                        number("data_seed").value_or(number("seed").value_or(arguments.seed)),
                        kArgumentsFile);
  }
  compare_flag("dataloader_drop_last", arguments.dataloader_drop_last);
  // A truth value before transformers 5.
  compare_flag("group_by_length",
               arguments.train_sampling_strategy == SamplingStrategy::kGroupByLength);
}

}  // namespace

std::string resume_differences(const fs::path& checkpoint, const TrainerState& saved,
                               const TrainingPlan& plan, const TrainingArguments& arguments) {
  Differences differences;
  compare_intervals(saved, plan, differences);
  std::string text;
  const fs::path file = checkpoint / kArgumentsFile;
  if (fs::exists(file)) {
    try {
      const formats::TorchFile content(file, formats::PickledObjects::kDescribed);
      const auto attributes = content.root().attributes();
      if (!attributes) raise<DataError>("{}: an object without attributes", file.native());
      compare_arguments(*attributes, arguments, differences);
    } catch (const Error& error) {
      text = fmt::format("The arguments of the run behind the checkpoint are not known: {}\n",
                         error.what());
    }
  }
  if (!differences.text().empty()) {
    text += "The following arguments do not match the ones within the checkpoint directory:" +
            differences.text();
  }
  return text;
}

}  // namespace tandem::trainer
