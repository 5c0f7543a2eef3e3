// Manual pages and completion as the program prints them, read by the tools that people use: groff,
// bash, zsh.
#include "apps/manual/manual.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <sstream>

#include "support/process.h"
#include "support/test_support.h"
#include "tandem/core/file.h"

namespace tandem::apps {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::string kManualProgram = TANDEM_BINARY_DIR "/bin/tandem";

std::string output_of(const std::vector<std::string>& words) {
  std::vector<std::string> command = words;
  command.insert(command.begin(), kManualProgram);
  const auto result = testing::run(command);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return result.out;
}

// Every flag of an option list: what stands before the first space of lines that begin with "  --".
std::vector<std::string> flags_in_help(const std::string& help) {
  std::vector<std::string> flags;
  for (std::size_t at = help.find("\n  --"); at != std::string::npos;
       at = help.find("\n  --", at + 1)) {
    const std::size_t end = help.find_first_of(" ,\n", at + 3);
    flags.push_back(help.substr(at + 3, end - at - 3));
  }
  return flags;
}

// The commands for which pages are installed.
std::vector<std::string> installed_pages() {
  std::istringstream stream(TANDEM_COMMANDS);
  return {std::istream_iterator<std::string>(stream), {}};
}

TEST(Manual, EveryCommandHasAPage) {
  const std::string help = output_of({"--help"});
  std::vector<std::string> commands;
  std::istringstream lines(help.substr(help.find("commands:\n") + 10));
  for (std::string line; std::getline(lines, line) && line.starts_with("  ");)
    commands.push_back(line.substr(2, line.find(' ', 2) - 2));
  EXPECT_THAT(installed_pages(), ::testing::UnorderedElementsAreArray(commands));
}

TEST(Manual, ListsEveryFlagOfTheHelp) {
  const std::string page = output_of({"man", "run_qa"});
  const std::vector<std::string> flags = flags_in_help(output_of({"run_qa", "--help"}));
  EXPECT_GT(flags.size(), 150u);
  std::string plain;
  for (const char c : page) {
    if (c != '\\') plain += c;
  }
  for (const std::string& flag : flags) EXPECT_THAT(plain, HasSubstr(flag)) << flag;
  EXPECT_THAT(page, HasSubstr(".SS Accepted, without effect"));
}

TEST(Manual, IsReadByGroffWithoutAWarning) {
  const std::string groff = testing::find_program("groff");
  if (groff.empty()) GTEST_SKIP() << "needs groff";
  testing::TemporaryFolder folder;
  std::vector<std::vector<std::string>> pages = {{"man"}};
  for (const std::string& command : installed_pages()) pages.push_back({"man", command});
  for (const auto& words : pages) {
    write_file(folder / "page.1", output_of(words));
    const auto result = testing::run({groff, "-man", "-ww", "-K", "utf8", "-T", "utf8", "-P-cbou",
                                      (folder / "page.1").native()});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.err, IsEmpty()) << words.back();
    EXPECT_THAT(result.out, AllOf(HasSubstr("NAME"), HasSubstr("SEE ALSO"))) << words.back();
  }
}

TEST(Manual, RoffsOwnLettersStayText) {
  const CommandDescription command{.name = "x",
                                   .summary = "",
                                   .text = ".SH not a heading\n'nor this\\n",
                                   .usage = {},
                                   .options = {},
                                   .parts = {}};
  const std::string page = manual_page(command, "1");
  EXPECT_THAT(page, HasSubstr("\\&.SH not a heading\n\\&'nor this\\en"));
}

// The completions that bash offers for the words; the last word is incomplete.
std::vector<std::string> bash_offers(const std::string& script, const std::string& words,
                                     int index) {
  testing::TemporaryFolder folder;
  write_file(folder / "completion", script);
  const auto result =
      testing::run({"bash", "-c",
                    fmt::format("cd '{}'; . ./completion; COMP_WORDS=({}); COMP_CWORD={}; _tandem; "
                                "printf '%s\\n' \"${{COMPREPLY[@]}}\"",
                                folder.path().native(), words, index)});
  EXPECT_THAT(result.err, IsEmpty());
  std::vector<std::string> offers;
  for (std::size_t begin = 0; begin < result.out.size();) {
    const std::size_t end = result.out.find('\n', begin);
    offers.push_back(result.out.substr(begin, end - begin));
    begin = end + 1;
  }
  return offers;
}

TEST(Completion, InBash) {
  const std::string script = output_of({"completion", "bash"});
  EXPECT_THAT(bash_offers(script, "tandem ru", 1),
              ::testing::UnorderedElementsAre("run", "run_qa", "run_ner", "run_glue",
                                              "run_classification", "run_embedding", "run_mlm",
                                              "run_clm", "run_sft", "run_reranker"));
  EXPECT_THAT(bash_offers(script, "tandem run_qa --learning", 2),
              ::testing::ElementsAre("--learning_rate", "--learning_rate_mapping"));
  EXPECT_THAT(bash_offers(script, "tandem run_qa --eval_strategy ''", 3),
              ::testing::ElementsAre("no", "steps", "epoch"));
  EXPECT_THAT(bash_offers(script, "tandem run_qa --eval_strategy st", 3),
              ::testing::ElementsAre("steps"));
  EXPECT_THAT(bash_offers(script, "tandem run_qa --train_file comp", 3),
              ::testing::ElementsAre("completion"));
  EXPECT_THAT(bash_offers(script, "tandem run_qa --use_i", 2),
              Not(Contains("--use_ipex")));  // it has no effect
  EXPECT_THAT(bash_offers(script, "tandem serve --po", 2), ::testing::ElementsAre("--port"));
  EXPECT_THAT(bash_offers(script, "tandem bench st", 2), Contains("step"));
}

// zsh parses the script; its _arguments is replaced by a printer of its arguments.
TEST(Completion, InZsh) {
  const std::string zsh = testing::find_program("zsh");
  if (zsh.empty()) GTEST_SKIP() << "needs zsh";
  testing::TemporaryFolder folder;
  write_file(folder / "_tandem", output_of({"completion", "zsh"}));
  const auto offers = [&](const std::string& words, int current) {
    const auto result =
        testing::run({zsh, "-f", "-c",
                      fmt::format("compdef() {{ }}; _arguments() {{ print -rl -- \"$@\" }}; "
                                  "_describe() {{ print -rl -- $commands }}; source '{}'; "
                                  "words=({}); CURRENT={}; _tandem",
                                  (folder / "_tandem").native(), words, current)});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.err, IsEmpty());
    return result.out;
  };
  EXPECT_THAT(offers("tandem ''", 2), HasSubstr("run_qa:fine-tune"));
  EXPECT_THAT(offers("tandem run_qa ''", 3),
              AllOf(HasSubstr("*--learning_rate["),
                    HasSubstr("*--eval_strategy[when to evaluate (default\\: no; also "
                              "--evaluation_strategy)]:NAME:(no steps epoch)"),
                    HasSubstr("*--do_train[train]\n"), Not(HasSubstr("use_ipex"))));
  EXPECT_THAT(offers("tandem serve ''", 3), HasSubstr("*--port["));
}

TEST(Completion, InFish) {
  const std::string script = output_of({"completion", "fish"});
  EXPECT_THAT(script, AllOf(HasSubstr("-a run_qa -d 'fine-tune"),
                            HasSubstr("__fish_seen_subcommand_from serve' -l port -r"),
                            HasSubstr("-l eval_strategy -x -a 'no steps epoch'"),
                            Not(HasSubstr("use_ipex"))));
  const std::string fish = testing::find_program("fish");
  if (fish.empty()) GTEST_SKIP() << "needs fish";
  testing::TemporaryFolder folder;
  write_file(folder / "tandem.fish", script);
  const auto offers = [&](const std::string& line) {
    const auto result = testing::run(
        {fish, "--no-config", "-c",
         fmt::format("source '{}'; complete -C '{}'", (folder / "tandem.fish").native(), line)},
        {{"HOME", folder.path().native()}});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.err, IsEmpty());
    return result.out;
  };
  EXPECT_THAT(offers("tandem run_n"), HasSubstr("run_ner\t"));
  EXPECT_THAT(offers("tandem run_qa --learning"), HasSubstr("--learning_rate\t"));
  EXPECT_THAT(offers("tandem run_qa --eval_strategy st"), HasSubstr("steps"));
  EXPECT_THAT(offers("tandem inspect tok"), HasSubstr("tokens\t"));
  EXPECT_THAT(offers("tandem serve --po"), HasSubstr("--port\t"));
}

TEST(Completion, DescribingIsNotForPeople) {
  const auto result = testing::run({kManualProgram, "ask", "--describe-command-line"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("see --help"));
}

}  // namespace
}  // namespace tandem::apps
