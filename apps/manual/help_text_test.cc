// The layout of --help, and that every command's fits the terminal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "apps/manual/manual.h"
#include "support/process.h"
#include "support/terminal.h"
#include "tandem/core/text_layout.h"

namespace tandem::apps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kProgram = TANDEM_BINARY_DIR "/bin/tandem";

// Length of the longest line that could be broken: a long word stays whole.
std::size_t longest_line(const std::string& text) {
  std::size_t longest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t begin = std::min(line.find_first_not_of(' '), line.size());
    if (line.find(' ', begin) != std::string::npos) longest = std::max(longest, text_columns(line));
  }
  return longest;
}

OptionDescription option(std::string name, std::string value, std::string help) {
  OptionDescription described;
  described.names = {std::move(name)};
  described.value = std::move(value);
  described.help = std::move(help);
  return described;
}

TEST(HelpText, ShowsUsageArgumentsAndDefaults) {
  CommandDescription command;
  command.name = "tandem sort";
  command.text = "Sorts lines\nof a file.\n\nLeaves the file alone.";
  command.options = {option("--file", "FILE", "the file"), option("--by", "NAME", "the key"),
                     option("--reverse", "", "last first"), argument("WORD...", "what to find")};
  command.options[0].required = true;
  command.options[1].choices = {"text", "number"};
  command.options[1].initial = "text";
  EXPECT_EQ(help_text(command, 54),
            "usage: tandem sort --file FILE [options] WORD...\n"
            "\nSorts lines of a file.\n"
            "\nLeaves the file alone.\n"
            "\narguments:\n"
            "  WORD...           what to find (required)\n"
            "\noptions:\n"
            "  --file FILE       the file (required)\n"
            "  --by NAME         the key: text, number (default:\n"
            "                    text)\n"
            "  --reverse         last first\n");
}

TEST(HelpText, OfEveryCommandFoldsToTheTerminal) {
  std::istringstream commands(TANDEM_COMMANDS);
  for (std::string name; commands >> name;) {
    for (const int columns : {60, 80, 200}) {
      const std::string help = testing::run_in_terminal({kProgram, name, "--help"}, columns).output;
      EXPECT_LE(longest_line(help), static_cast<std::size_t>(std::min(columns, 100))) << name;
      EXPECT_THAT(help, HasSubstr("usage: tandem " + name)) << name;
    }
    const std::string piped = testing::run({kProgram, name, "--help"}).out;
    EXPECT_LE(longest_line(piped), 100u) << name;
    // Notation of the parser.
    EXPECT_THAT(piped, AllOf(Not(HasSubstr("REQUIRED")), Not(HasSubstr("INT:")),
                             Not(HasSubstr("TEXT:{")), Not(HasSubstr(" in ["))))
        << name;
  }
}

TEST(HelpText, NamesRangesAndDefaults) {
  const std::string serve = testing::run({kProgram, "serve", "--help"}).out;
  EXPECT_THAT(serve, HasSubstr("--port N"));
  EXPECT_THAT(serve, HasSubstr("default: "));
  const std::string inspect = testing::run({kProgram, "inspect", "tokens", "--help"}).out;
  EXPECT_THAT(inspect, HasSubstr("usage: tandem inspect tokens"));
}

}  // namespace
}  // namespace tandem::apps
