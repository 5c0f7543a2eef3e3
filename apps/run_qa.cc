// `tandem run_qa`: what people type `python3 run_qa.py` for. The job is src/tandem/job/job.cc; what
// question answering adds to it is src/tandem/tasks/question_answering/question_answering_job.h.
#include <filesystem>

#include "apps/arguments/run_qa_arguments.h"
#include "apps/command/commands.h"
#include "apps/job_command.h"
#include "tandem/tasks/question_answering/question_answering_job.h"

namespace tandem::apps {

int run_qa(const Invocation& invocation) {
  const ParsedRunQa parsed =
      parse_run_qa(invocation.words, std::filesystem::current_path(), invocation.environment);
  question_answering::QuestionAnsweringJob task(parsed.arguments.data);
  return run_job(job_request(parsed, invocation.words), task, invocation.environment);
}

}  // namespace tandem::apps
