// The text of `tandem run_qa --help`, made from the flag table of the command.
#include <cmath>
#include <string>

#include "apps/arguments/job_commands.h"

namespace tandem::apps {
namespace {

constexpr std::size_t kWidth = 100;
constexpr std::size_t kIndent = 34;  // where the meanings begin

// Above the flags, in the help and in the manual.
std::string description_of(const JobCommand& command) {
  return fmt::format(
      "Fine-tunes a BERT-family model for {1} and evaluates it, with the\n"
      "flags of Hugging Face's {0}.py. Start it with mpirun or torchrun to use several ranks.\n"
      "--foo_bar may be written --foo-bar, --foo_bar=VALUE, or as any unique prefix; of repeated "
      "flags\n"
      "the last one counts; true flags stand alone or take yes/no, true/false, 1/0. The words of\n"
      "./{0}.args, if that file exists, come before the command line's.\n"
      "SIGTERM and Ctrl-C during training write a checkpoint and end the job after the step (a "
      "second\n"
      "one ends it at once), before and after training they end it within a second.",
      command.name, command.purpose);
}

// The flags that do not work come last, by verdict.
constexpr std::pair<Verdict, std::string_view> kOtherHeadings[] = {
    {Verdict::kNote, "Accepted, without effect"}, {Verdict::kRefused, "Not supported"}};

std::string metavar(const Flag& flag) {
  switch (flag.kind()) {
    case Kind::kBool:
      return flag.bare ? "" : " true|false";
    case Kind::kInteger:
      return " N";
    case Kind::kNumber:
      return " X";
    case Kind::kString:
      return " TEXT";
    case Kind::kChoice:
      return " NAME";
    case Kind::kList:
      return " NAME...";
    case Kind::kDict:
      return " JSON|FILE";
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
  if (flag.required) return " (required)";
  const Json& value = flag.initial;
  const bool nothing =
      value.is_null() || value == Json(false) || (value.is_structured() && value.empty());
  return nothing ? "" : fmt::format(" (default: {})", plain_value(value));
}

// One entry: the flag, then its text wrapped into the right column.
std::string entry(const std::string& left, const std::string& right) {
  std::string text = "  " + left;
  std::size_t column = text.size();
  if (column + 2 > kIndent) {
    text += "\n";
    column = 0;
  }
  text.append(kIndent - column, ' ');
  column = kIndent;
  std::size_t begin = 0;
  while (begin < right.size()) {
    std::size_t end = right.find(' ', begin);
    if (end == std::string::npos) end = right.size();
    const std::size_t length = end - begin;
    if (column > kIndent && column + 1 + length > kWidth) {
      text += "\n" + std::string(kIndent, ' ');
      column = kIndent;
    } else if (column > kIndent) {
      text += ' ';
      ++column;
    }
    text.append(right, begin, length);
    column += length;
    begin = end + 1;
  }
  return text + "\n";
}

std::string choices_text(const Flag& flag) {
  std::string works;
  for (const Choice& choice : flag.choices) {
    if (choice.verdict == Verdict::kWorks) works += (works.empty() ? "" : ", ") + choice.value;
  }
  return works.empty() ? "" : ": " + works;
}

std::string working_flags(const FlagTable& table) {
  std::string text;
  std::string_view group;
  for (const Flag& flag : table) {
    if (flag.verdict != Verdict::kWorks) continue;
    if (flag.group != group) {
      group = flag.group;
      text += fmt::format("\n{}:\n", group);
    }
    std::string left = fmt::format("--{}{}", flag.name, metavar(flag));
    if (flag.negatable) left += fmt::format(", --no_{}", flag.name);
    std::string right = fmt::format("{}{}{}", flag.help, choices_text(flag), default_text(flag));
    for (const Alias& alias : flag.aliases) right += fmt::format(" (also --{})", alias.name);
    text += entry(left, right);
  }
  return text;
}

std::string flags_with(const FlagTable& table, Verdict verdict, std::string_view heading) {
  std::string text = fmt::format("\n{}:\n", heading);
  for (const Flag& flag : table) {
    if (flag.verdict == verdict)
      text += entry(fmt::format("--{}", flag.name), std::string(flag.reason));
  }
  return text;
}

}  // namespace

CommandDescription job_description(const JobCommand& command) {
  CommandDescription description{.name = std::string(command.name),
                                 .summary = "",
                                 .text = description_of(command),
                                 .options = {},
                                 .parts = {}};
  const auto add = [&](const Flag& flag, std::string group, std::string help) {
    OptionDescription option{.group = std::move(group),
                             .names = {fmt::format("--{}", flag.name)},
                             .value = metavar(flag),
                             .help = std::move(help),
                             .choices = {},
                             .note_only = flag.verdict != Verdict::kWorks};
    if (!option.value.empty()) option.value.erase(0, 1);  // the space before it
    if (flag.negatable) option.names.push_back(fmt::format("--no_{}", flag.name));
    for (const Choice& choice : flag.choices) {
      if (choice.verdict == Verdict::kWorks) option.choices.push_back(choice.value);
    }
    description.options.push_back(std::move(option));
  };
  const FlagTable table = command.flags();
  for (const Flag& flag : table) {
    if (flag.verdict == Verdict::kWorks)
      add(flag, std::string(flag.group), std::string(flag.help) + default_text(flag));
  }
  for (const auto& [verdict, heading] : kOtherHeadings) {
    for (const Flag& flag : table) {
      if (flag.verdict == verdict) add(flag, std::string(heading), std::string(flag.reason));
    }
  }
  return description;
}

std::string job_help(const JobCommand& command) {
  const FlagTable table = command.flags();
  std::string text = fmt::format(
      "usage: tandem {0} --model_name_or_path DIR|NAME [flags]\n"
      "       tandem {0} FILE.json        all flags from one JSON object\n"
      "\n{1}\n{2}",
      command.name, description_of(command), working_flags(table));
  for (const auto& [verdict, heading] : kOtherHeadings) text += flags_with(table, verdict, heading);
  return text;
}

}  // namespace tandem::apps
