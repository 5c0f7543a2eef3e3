// `tandem run_qa`: what people type `python3 run_qa.py` for. The job is src/tandem/job/job.cc; what
// question answering adds to it is src/tandem/tasks/question_answering/question_answering_job.h.
#include <filesystem>
#include <utility>

#include "apps/arguments/job_command_line.h"
#include "apps/command/commands.h"
#include "apps/job_command.h"
#include "tandem/tasks/question_answering/command_line.h"
#include "tandem/tasks/question_answering/question_answering_job.h"

namespace tandem::apps {

int run_qa(const Invocation& invocation) {
  tasks::QaArguments arguments;
  question_answering::CommandLine command_line(arguments);
  const job::Request request = parse_request(invocation.words, std::filesystem::current_path(),
                                             invocation.environment, command_line);
  question_answering::QuestionAnsweringJob task(std::move(arguments));
  return run_job(request, task, invocation.environment);
}

}  // namespace tandem::apps
