#include <fmt/format.h>

#include <algorithm>

#include "apps/manual/manual.h"

namespace tandem::apps {
namespace {

// Text for roff: a backslash and a dash mean something, so does a dot or a quote that begins a
// line.
std::string roff(const std::string& text) {
  std::string escaped;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) escaped += "\\&";
    if (c == '\\') {
      escaped += "\\e";
    } else if (c == '-') {
      escaped += "\\-";
    } else {
      escaped += c;
    }
    line_begins = c == '\n';
  }
  return escaped;
}

std::string title(const std::string& name, const std::string& version) {
  return fmt::format(".TH {} 1 \"\" \"tandem {}\" \"tandem\"\n", roff(name), version);
}

std::string paragraphs(const std::string& text) {
  std::string out;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find("\n\n", begin), text.size());
    out += (begin == 0 ? "" : ".PP\n") + roff(text.substr(begin, end - begin)) + "\n";
    begin = end + 2;
  }
  return out;
}

std::string option_entry(const OptionDescription& option) {
  std::string names;
  for (const std::string& name : option.names)
    names += fmt::format("{}\\fB{}\\fR", names.empty() ? "" : ", ", roff(name));
  const std::string value =
      option.value.empty() ? "" : fmt::format(" \\fI{}\\fR", roff(option.value));
  const std::string help = roff(option_text(option, true));
  return fmt::format(".TP\n{}{}\n{}\n", names, value, help.empty() ? "\\&" : help);
}

std::string options(const CommandDescription& command, const std::string& heading) {
  if (command.options.empty()) return "";
  std::string text = fmt::format(".SH {}\n", roff(heading));
  std::string group;
  for (const OptionDescription& option : command.options) {
    if (option.group != group) text += fmt::format(".SS {}\n", roff(option.group));
    group = option.group;
    text += option_entry(option);
  }
  return text;
}

}  // namespace

std::string manual_page(const CommandDescription& command, const std::string& version) {
  const std::string name = "tandem-" + command.name;
  std::string text = title(name, version);
  text += fmt::format(".SH NAME\n{} \\- {}\n", roff(name), roff(command.summary));
  text += fmt::format(".SH SYNOPSIS\n\\fBtandem {}\\fR{} [\\fIOPTION\\fR]...\n", roff(command.name),
                      command.parts.empty() ? "" : " \\fICOMMAND\\fR");
  if (!command.text.empty()) text += ".SH DESCRIPTION\n" + paragraphs(command.text);
  text += options(command, "OPTIONS");
  for (const CommandDescription& part : command.parts) {
    text += options(part, fmt::format("OPTIONS OF {}", part.name));
  }
  return text +
         ".SH EXIT STATUS\n0: done; 1: input, data or configuration; 2: usage; 70: a bug of "
         "tandem; 143: "
         "preempted after a checkpoint; 200: a peer or the network failed.\n.SH SEE ALSO\n.BR "
         "tandem (1)\n";
}

std::string program_manual_page(std::span<const CommandDescription> commands,
                                const std::string& version) {
  std::string text = title("tandem", version);
  text +=
      ".SH NAME\ntandem \\- fine\\-tunes BERT\\-family models on CPUs\n.SH "
      "SYNOPSIS\n\\fBtandem\\fR "
      "\\fICOMMAND\\fR ...\n.SH COMMANDS\n";
  for (const CommandDescription& command : commands) {
    text += fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff(command.name), roff(command.summary));
  }
  text += ".SH SEE ALSO\n";
  for (std::size_t i = 0; i < commands.size(); ++i) {
    text += fmt::format(".BR tandem\\-{} (1){}\n", roff(commands[i].name),
                        i + 1 < commands.size() ? "," : "");
  }
  return text;
}

}  // namespace tandem::apps
