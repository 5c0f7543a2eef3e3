// The commands that run a job, `tandem run_qa` and its like: one row each. The command itself
// (apps/job_command.h), its help, manual page and completion, and the report to mpirun at an error
// follow from the row. A further task adds a row to the table in job_commands.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "apps/arguments/flags.h"
#include "apps/manual/description.h"

namespace tandem::apps {

// The models that a command trains.
enum class Trained : std::uint8_t { kEncoders, kDecoders, kBoth };

struct JobCommand {
  std::string_view name;     // "run_qa", from its TaskArguments
  std::string_view purpose;  // behind "Fine-tunes an encoder for "
  std::string_view names;    // whose names the flags have: "Hugging Face's run_qa.py"
  std::string_view summary;  // one line of `tandem --help`
  std::unique_ptr<tasks::TaskArguments> (*arguments)();
  Trained trained = Trained::kEncoders;

  FlagTable flags() const { return command_flags(*arguments()); }
};

// Makes a task's own arguments, a TaskArguments, for its row.
template <class T>
std::unique_ptr<tasks::TaskArguments> make_arguments() {
  return std::make_unique<T>();
}

std::span<const JobCommand> job_commands();
// Null when the command of this name runs no job.
const JobCommand* find_job_command(std::string_view name);

// Describes a command for its help, its manual page and the completion of shells. Lists every flag
// with default and meaning under its heading, then the flags without effect and the refused ones,
// with the reasons.
CommandDescription job_description(const JobCommand& command);

}  // namespace tandem::apps
