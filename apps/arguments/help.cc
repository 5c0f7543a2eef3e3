// The text of `tandem run_qa --help` and of the manual, made from the command's flag table.
#include <cmath>
#include <string>

#include "apps/arguments/job_commands.h"

namespace tandem::apps {
namespace {

std::string_view trained_by(const JobCommand& command) {
  if (command.trained == Trained::kBoth) return "an encoder or a decoder";
  return command.trained == Trained::kDecoders ? "a decoder" : "an encoder";
}

// Above the flags, in the help and in the manual.
std::string description_of(const JobCommand& command) {
  return fmt::format(
      "Fine-tunes {3} for {1} and evaluates it, with the\n"
      "flags of {2}. Start it with mpirun or torchrun to use several ranks.\n"
      "--foo_bar may be written --foo-bar, --foo_bar=VALUE, or as any unique prefix; of repeated "
      "flags\n"
      "the last one counts; true flags stand alone or take yes/no, true/false, 1/0. The words of\n"
      "./{0}.args, if that file exists, come before the command line's.\n"
      "SIGTERM and Ctrl-C during training write a checkpoint and end the job after the step (a "
      "second\n"
      "one ends it at once), before and after training they end it within a second.",
      command.name, command.purpose, command.names, trained_by(command));
}

// The flags that do not work come last, by verdict.
constexpr std::pair<Verdict, std::string_view> kOtherHeadings[] = {
    {Verdict::kNote, "Accepted, without effect"}, {Verdict::kRefused, "Not supported"}};

std::string metavar(const Flag& flag) {
  switch (flag.kind()) {
    case Kind::kBool:
      return flag.bare ? "" : "true|false";
    case Kind::kInteger:
      return "N";
    case Kind::kNumber:
      return "X";
    case Kind::kString:
      return "TEXT";
    case Kind::kChoice:
      return "NAME";
    case Kind::kList:
      return "NAME...";
    case Kind::kDict:
      return "JSON|FILE";
  }
  return "";
}

std::string plain_value(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  const bool whole =
      value.is_number_float() && value.get<double>() == std::floor(value.get<double>());
  return whole ? fmt::format("{:.0f}", value.get<double>()) : value.dump();
}

std::string default_text(const Flag& flag) {
  const Json& value = flag.initial;
  const bool nothing =
      value.is_null() || value == Json(false) || (value.is_structured() && value.empty());
  return nothing || flag.required ? "" : plain_value(value);
}

OptionDescription describe(const Flag& flag, std::string group) {
  OptionDescription option;
  option.group = std::move(group);
  option.names = {fmt::format("--{}", flag.name)};
  option.note_only = flag.verdict != Verdict::kWorks;
  if (option.note_only) {
    option.help = flag.reason;
    return option;
  }
  option.value = metavar(flag);
  option.help = flag.help;
  for (const Alias& alias : flag.aliases) option.also.push_back(fmt::format("--{}", alias.name));
  option.initial = default_text(flag);
  option.required = flag.required;
  if (flag.negatable) option.names.push_back(fmt::format("--no_{}", flag.name));
  for (const Choice& choice : flag.choices) {
    if (choice.verdict == Verdict::kWorks) option.choices.push_back(choice.value);
  }
  return option;
}

}  // namespace

CommandDescription job_description(const JobCommand& command) {
  CommandDescription description;
  description.name = command.name;
  description.text = description_of(command);
  description.usage = {
      fmt::format("tandem {} --model_name_or_path DIR|NAME [flags]", command.name),
      fmt::format("tandem {} FILE.json   (all flags from one JSON object)", command.name)};
  const FlagTable table = command.flags();
  for (const Flag& flag : table) {
    if (flag.verdict == Verdict::kWorks)
      description.options.push_back(describe(flag, std::string(flag.group)));
  }
  for (const auto& [verdict, heading] : kOtherHeadings) {
    for (const Flag& flag : table) {
      if (flag.verdict == verdict)
        description.options.push_back(describe(flag, std::string(heading)));
    }
  }
  return description;
}

}  // namespace tandem::apps
