#include "apps/arguments/job_commands.h"

#include <algorithm>

#include "tandem/tasks/question_answering/command_line.h"
#include "tandem/tasks/question_answering/qa_arguments.h"
#include "tandem/tasks/text_classification/command_line.h"
#include "tandem/tasks/token_classification/command_line.h"
#include "tandem/tasks/token_classification/ner_arguments.h"

namespace tandem::apps {
namespace {

template <class CommandLine, class Arguments>
FlagTable flags_of() {
  Arguments defaults;
  return command_flags(CommandLine(defaults));
}

constexpr JobCommand kJobCommands[] = {
    {"run_qa", "extractive question answering",
     flags_of<question_answering::CommandLine, tasks::QaArguments>},
    {"run_glue", "classification of texts and pairs of texts",
     flags_of<text_classification::GlueCommandLine, text_classification::ClassificationArguments>},
    {"run_classification", "classification of texts by one or several labels",
     flags_of<text_classification::ClassificationCommandLine,
              text_classification::ClassificationArguments>},
    {"run_ner", "tagging words", flags_of<token_classification::CommandLine, tasks::NerArguments>},
};

}  // namespace

std::span<const JobCommand> job_commands() { return kJobCommands; }

const JobCommand* find_job_command(std::string_view name) {
  const auto all = job_commands();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const JobCommand& command) { return command.name == name; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace tandem::apps
