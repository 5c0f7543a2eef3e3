// `tandem run_glue`: what people type `python3 run_glue.py` for. The job is src/tandem/job/job.cc;
// what text classification adds to it is
// src/tandem/tasks/text_classification/text_classification_job.h.
#include <filesystem>
#include <utility>

#include "apps/arguments/job_command_line.h"
#include "apps/command/commands.h"
#include "apps/job_command.h"
#include "tandem/tasks/text_classification/command_line.h"
#include "tandem/tasks/text_classification/text_classification_job.h"

namespace tandem::apps {

int run_glue(const Invocation& invocation) {
  text_classification::ClassificationArguments arguments;
  text_classification::GlueCommandLine command_line(arguments);
  const job::Request request = parse_request(invocation.words, std::filesystem::current_path(),
                                             invocation.environment, command_line);
  text_classification::TextClassificationJob task(std::move(arguments));
  return run_job(request, task, invocation.environment);
}

}  // namespace tandem::apps
