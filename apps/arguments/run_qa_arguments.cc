#include "apps/arguments/run_qa_arguments.h"

#include "tandem/tasks/question_answering/command_line.h"

namespace tandem::apps {

using question_answering::CommandLine;

FlagTable run_qa_flags() {
  tasks::QaArguments defaults;
  return command_flags(CommandLine(defaults));
}

ParsedRunQa parse_run_qa(std::span<const std::string> words, const std::filesystem::path& directory,
                         const Environment& environment) {
  ParsedRunQa parsed;
  CommandLine task(parsed.arguments.data);
  static_cast<CommandLineRemarks&>(parsed) =
      parse_job(words, directory, environment, task, parsed.arguments);
  return parsed;
}

job::Request job_request(const ParsedRunQa& parsed, std::span<const std::string> words) {
  RunQaArguments arguments = parsed.arguments;
  CommandLine task(arguments.data);
  return {.command = shown_command(words, task),
          .arguments = arguments,
          .values = to_json(arguments, task),
          .notes = parsed.notes};
}

}  // namespace tandem::apps
