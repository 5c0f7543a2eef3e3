// From the command line of run_qa to checked argument structs.
#pragma once

#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "apps/arguments/flags.h"
#include "apps/manual/description.h"
#include "tandem/core/env.h"

namespace tandem::apps {

struct RunQaArguments {
  hub::ModelArguments model;
  tasks::QaArguments data;
  trainer::TrainingArguments training;
  quant::QuantizationArguments quantization;

  ArgumentParts parts() { return {&model, &data, &training, &quantization}; }
  // Whether --do_train changes weights: with --apply_quantization it only gives the questions for
  // calibration unless training was asked for by name.
  bool trains() const {
    return training.do_train &&
           (!quantization.apply_quantization || quantization.train_before_quantization);
  }
};

struct ParsedRunQa {
  RunQaArguments arguments;
  // One line each, for the main process to print: flags without effect, old spellings, defaults
  // that were filled in.
  std::vector<std::string> notes;
  // The flags that were given, by their own names (for messages such as "the checkpoint was made
  // with another …").
  std::set<std::string> given;
};

// Reads, applies and checks `words` (what follows `tandem run_qa`):
//   - exactly one word that ends in .json is a file {flag: value};
//   - the words of a file run_qa.args in `directory` (the working directory; where run_qa.py lies
//   for most people, whose
//     sibling run_qa.args the original reads) come before the given ones, with a note that says so;
//   - a leading ~ of paths becomes HOME.
// The result is complete: disable_tqdm, eval_steps, do_eval, metric_for_best_model and
// greater_is_better are filled in by Hugging Face's rules. Reads nothing but the files named here.
// Throws ConfigError; usage errors (grammar.h, a missing required flag) exit with 2, refused flags
// and contradictions with 1.
ParsedRunQa parse_run_qa(std::span<const std::string> words, const std::filesystem::path& directory,
                         const Environment& environment);

// All arguments that have a field, by flag name, sorted; secrets as "<TOKEN>" when given.
Json to_json(const RunQaArguments& arguments);
// "name=value" lines of to_json, for the console.
std::string describe(const RunQaArguments& arguments);
// The content of training_args.json: to_json, 2-space indent, newline at the end.
std::string training_args_json(const RunQaArguments& arguments);

// What run_qa takes, for its manual page and the completion of shells; the same table and texts as
// run_qa_help().
CommandDescription run_qa_description();

// The text of `tandem run_qa --help`: every flag with default and meaning under its heading, then
// the flags without effect and the refused ones, with the reasons.
std::string run_qa_help();

}  // namespace tandem::apps
