// `tandem run_ner`: what people type `python3 run_ner.py` for. The job is src/tandem/job/job.cc;
// what tagging words adds to it is
// src/tandem/tasks/token_classification/token_classification_job.h.
#include <filesystem>
#include <utility>

#include "apps/arguments/job_command_line.h"
#include "apps/command/commands.h"
#include "apps/job_command.h"
#include "tandem/tasks/token_classification/command_line.h"
#include "tandem/tasks/token_classification/token_classification_job.h"

namespace tandem::apps {

int run_ner(const Invocation& invocation) {
  tasks::NerArguments arguments;
  token_classification::CommandLine command_line(arguments);
  const job::Request request = parse_request(invocation.words, std::filesystem::current_path(),
                                             invocation.environment, command_line);
  token_classification::TokenClassificationJob task(std::move(arguments));
  return run_job(request, task, invocation.environment);
}

}  // namespace tandem::apps
