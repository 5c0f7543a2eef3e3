// From the command line of a job to checked argument structs, whatever its task.
#pragma once

#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "apps/arguments/flags.h"
#include "tandem/core/env.h"
#include "tandem/job/arguments.h"
#include "tandem/tasks/task_arguments.h"

namespace tandem::apps {

// Remarks about a command line, in addition to its values.
struct CommandLineRemarks {
  // One line each, for the main process to print: flags without effect, old spellings, defaults
  // that were filled in.
  std::vector<std::string> notes;
  // The flags that were given, by their own names (for messages such as "the checkpoint was made
  // with another …").
  std::set<std::string> given;
};

// Reads, applies and checks `words` (for example the words after `tandem run_qa`) into `arguments`
// and those of `task`:
//   - exactly one word that ends in .json is a file {flag: value};
//   - the words of a file <command>.args, for example run_qa.args, in `directory` (the working
//     directory; where run_qa.py lies for most people, whose sibling run_qa.args the original
//     reads) come before the given ones, with a note about it;
//   - a leading ~ of paths becomes HOME.
// The result is complete: disable_tqdm, eval_steps, do_eval, metric_for_best_model and
// greater_is_better are filled in by Hugging Face's rules. Reads nothing but the files named here.
// Throws ConfigError; usage errors (grammar.h, a missing required flag) exit with 2, refused flags
// and contradictions with 1.
CommandLineRemarks parse_job(std::span<const std::string> words,
                             const std::filesystem::path& directory, const Environment& environment,
                             tasks::TaskArguments& task, job::Arguments& arguments);

// parse_job() with everything that a run shows and stores of its command line. `task` is filled.
job::Request parse_request(std::span<const std::string> words,
                           const std::filesystem::path& directory, const Environment& environment,
                           tasks::TaskArguments& task);

// All arguments that have a field, by flag name, sorted; secrets as "<TOKEN>" when given.
Json to_json(job::Arguments& arguments, tasks::TaskArguments& task);
// The command for people to read and repeat: quoted for a shell, without the values of secret
// flags.
std::string shown_command(std::span<const std::string> words, const tasks::TaskArguments& task);

}  // namespace tandem::apps
