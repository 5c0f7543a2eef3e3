// From the command line of run_qa to checked argument structs.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "apps/arguments/flags.h"
#include "apps/arguments/job_command_line.h"
#include "apps/manual/description.h"
#include "tandem/core/env.h"
#include "tandem/job/arguments.h"
#include "tandem/tasks/question_answering/qa_arguments.h"

namespace tandem::apps {

struct RunQaArguments : job::Arguments {
  tasks::QaArguments data;
};

struct ParsedRunQa : CommandLineRemarks {
  RunQaArguments arguments;
};

// parse_job() with the flags of question answering.
ParsedRunQa parse_run_qa(std::span<const std::string> words, const std::filesystem::path& directory,
                         const Environment& environment);

// What a job needs of the command line beside the task's own arguments.
job::Request job_request(const ParsedRunQa& parsed, std::span<const std::string> words);

// What run_qa takes, for its manual page and the completion of shells; the same table and texts as
// run_qa_help().
CommandDescription run_qa_description();

// The text of `tandem run_qa --help`: every flag with default and meaning under its heading, then
// the flags without effect and the refused ones, with the reasons.
std::string run_qa_help();

}  // namespace tandem::apps
