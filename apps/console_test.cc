#include "apps/console.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <limits>
#include <sstream>
#include <thread>

#include "apps/command/download_progress.h"
#include "apps/command/error_text.h"
#include "apps/command/progress_line.h"
#include "apps/monitor/agent_metrics.h"
#include "support/test_support.h"
#include "tandem/core/json.h"
#include "tandem/core/text_layout.h"
#include "tandem/trainer/training_plan.h"

namespace tandem::apps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// One entry of the log as it appears on stdout.
std::string logged(const nlohmann::ordered_json& entry) {
  Console console({.library_lines = false, .progress_bars = false});
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  const trainer::TrainingPlan plan;
  console.train_begin({.plan = plan});
  console.log(entry);
  std::string text = ::testing::internal::GetCapturedStdout();
  ::testing::internal::GetCapturedStderr();
  return text;
}

// On a terminal an error is folded; a program that looks for a sentence finds it in one piece.
TEST(ErrorText, IsFoldedForTerminalsOnly) {
  std::string words = "cannot open";
  while (words.size() < 300) words += " 'a file'";
  EXPECT_EQ(error_text(words, std::nullopt), "tandem: error: " + words + "\n");
  for (const std::size_t columns : {std::size_t{60}, kLineColumns}) {
    const std::string folded = error_text(words, columns);
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = folded.find('\n', begin)) != std::string::npos;
         begin = end + 1)
      EXPECT_LE(end - begin, columns) << folded;
    EXPECT_EQ(folded.find("\n  "), folded.find('\n')) << folded;
  }
}

TEST(Console, LogEntriesAreDictionariesOfPython) {
  EXPECT_EQ(logged({{"loss", 1.25}, {"learning_rate", 1e-5}, {"epoch", 0.0678}, {"step", 7}}),
            "{'loss': 1.25, 'learning_rate': 1e-05, 'epoch': 0.07, 'step': 7}\n");
}

TEST(Console, NumbersThatAreNoneLookAsInPython) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(logged({{"loss", std::numeric_limits<double>::quiet_NaN()},
                    {"grad_norm", infinity},
                    {"other", -infinity}}),
            "{'loss': nan, 'grad_norm': inf, 'other': -inf}\n");
}

TEST(Console, Durations) {
  EXPECT_EQ(format_duration(75.4), "01:15");
  EXPECT_EQ(format_duration(4000), "1:06:40");
}

ProgressLine training_progress() {
  return {.fraction = 0.46,
          .count = "690/1500",
          .details = {"00:03<00:04", "217.31it/s", "loss 2.7313", "101.1k tok/s", "37% of peak"},
          .optional_details = 2};
}

TEST(ProgressLine, HasEverythingWhereTheOutputIsNoTerminal) {
  EXPECT_EQ(format_progress(training_progress(), std::nullopt),
            " 46%| 690/1500 [00:03<00:04, 217.31it/s, loss 2.7313, 101.1k tok/s, 37% of peak]");
}

TEST(ProgressLine, LeavesOutThePeakThenTheTokensThenTheDrawing) {
  const auto of = [](int columns) { return format_progress(training_progress(), columns); };
  EXPECT_THAT(of(90), HasSubstr("%|████    | 690/1500 ["));
  EXPECT_THAT(of(90), HasSubstr("37% of peak]"));
  EXPECT_THAT(of(86), AllOf(HasSubstr("|██"), HasSubstr("tok/s]")));
  EXPECT_EQ(of(59), " 46%| 690/1500 [00:03<00:04, 217.31it/s, loss 2.7313]");
  EXPECT_EQ(of(60), " 46%|██   | 690/1500 [00:03<00:04, 217.31it/s, loss 2.7313]");
  EXPECT_EQ(of(40), " 46%| 690/1500 [00:03<00:04]");
  EXPECT_EQ(of(10), " 46%| 69…");
  for (int columns = 1; columns < 200; ++columns) {
    EXPECT_LT(text_columns(of(columns)), std::max(columns, 2));
  }
}

TEST(TextLayout, TextsAreCutBetweenCharacters) {
  EXPECT_EQ(keep_end("äöü", 3), "äöü");
  EXPECT_EQ(keep_end("äöü", 2), "…ü");
  EXPECT_EQ(keep_begin("äöü", 2), "ä…");
  EXPECT_EQ(keep_begin("äöü", 0), "");
}

// Standard error is a terminal of `columns` while this lives; what went there is what text() gives.
class Terminal {
 public:
  explicit Terminal(unsigned short columns) : saved_(dup(STDERR_FILENO)) {
    winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    int end = -1;
    EXPECT_EQ(openpty(&reader_, &end, nullptr, nullptr, &size), 0);
    dup2(end, STDERR_FILENO);
    close(end);
  }
  ~Terminal() {
    dup2(saved_, STDERR_FILENO);
    close(saved_);
    close(reader_);
  }
  std::string text() {
    std::string all;
    pollfd ready{.fd = reader_, .events = POLLIN, .revents = 0};
    std::array<char, 4096> part{};
    while (poll(&ready, 1, 0) == 1) {  // what was written to a terminal is there at once
      const ssize_t size = read(reader_, part.data(), part.size());
      if (size <= 0) break;
      all.append(part.data(), static_cast<std::size_t>(size));
    }
    return all;
  }

 private:
  int saved_;
  int reader_ = -1;
};

// The longest of the texts between two returns, without the order that erases a line.
std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\r', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (const std::size_t order = line.find("\033[K"); order != std::string::npos)
      line.erase(order, 3);
    widest = std::max(widest, text_columns(line));
    begin = end + 1;
  }
  return widest;
}

TEST(Console, BarsFitATerminalOf60Columns) {
  Terminal terminal(60);
  Console console({.library_lines = false, .peak_flops = 1e12});
  const trainer::TrainingPlan plan;
  console.train_begin({.plan = plan});
  console.step_end({.step = 1,
                    .max_steps = 14754,
                    .loss = 3.25,
                    .real_tokens_per_second = 95000,
                    .flops_per_second = 4e11,
                    .seconds_left = 40000});
  console.train_end();
  console.evaluation_begin("Evaluation", 1234567, 8);
  console.evaluation_progress(1234567, 1234567);
  const std::string text = terminal.text();
  EXPECT_THAT(text, HasSubstr("1/14754 ["));
  EXPECT_THAT(text, HasSubstr("1234567/1234567 features ["));
  EXPECT_LT(widest_line(text), 60u);
}

TEST(Console, WarningsFoldToTheTerminal) {
  Terminal terminal(60);
  Console console({});
  console.warning(std::string(200, 'a').replace(100, 1, " ").replace(50, 1, " ") + " and the end");
  console.warning("a text of words that is longer than sixty columns and has no long word in it");
  std::istringstream lines(terminal.text());
  std::vector<std::string> all;
  for (std::string line; std::getline(lines, line);) all.push_back(line);
  EXPECT_LE(all.back().size(), 61u) << all.back();  // with the return of the terminal
  EXPECT_GT(all.size(), 5u);
}

// An editor's shell shows escape sequences as text.
TEST(Console, NoEscapeSequenceForADumbTerminal) {
  Terminal terminal(80);
  const testing::ScopedEnvironment dumb("TERM", "dumb");
  {
    Console console({.library_lines = false});
    console.train_begin({.plan = {}});
    console.step_end({.step = 1, .max_steps = 10, .loss = 3.25});
    console.train_end();
    DownloadProgress progress;
    progress.file_begin("a/file", 1'000'000, 0);
    progress.file_end();
  }
  const std::string text = terminal.text();
  EXPECT_THAT(text, HasSubstr("1/10 ["));
  EXPECT_EQ(text.find('\033'), std::string::npos) << text;
}

TEST(DownloadProgress, FitsATerminalOf60Columns) {
  Terminal terminal(60);
  DownloadProgress progress;
  progress.file_begin("google-bert/bert-large-uncased-whole-word-masking/model.safetensors",
                      1'344'951'957, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(250));  // longer than between two redraws
  progress.file_progress(700'000'000, 1'344'951'957);
  const std::string text = terminal.text();
  EXPECT_THAT(text, HasSubstr("…"));
  EXPECT_THAT(text, HasSubstr(".safetensors:  52% of 1.34 GB"));
  EXPECT_LT(widest_line(text), 60u);
}

TEST(TextLayout, LinesOfAtMost100Columns) {
  const std::string words = "0123456789 0123456789 0123456789 0123456789";
  EXPECT_EQ(wrapped(words, 0, 2), words);
  EXPECT_EQ(wrapped(words, 57, 2), words);
  EXPECT_EQ(wrapped(words, 58, 2), "0123456789 0123456789 0123456789\n  0123456789");
  EXPECT_EQ(wrapped("a\nb", 0, 2), "a\n  b");
  EXPECT_EQ(wrapped("", 0, 2), "");
  const std::string path(120, 'x');  // stays whole, so that it can be copied
  EXPECT_EQ(wrapped("in " + path + " it is", 0, 2), "in\n  " + path + "\n  it is");
}

// Everything that comes before the first step.
TEST(Console, TheStartHasShortLines) {
  std::string long_text;
  for (int i = 0; i < 40; ++i) long_text += "some words of a text ";
  Console console({.progress_bars = false});
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  console.fact("model", long_text);
  console.warning(long_text);
  const trainer::TrainingPlan plan;
  console.train_begin({.plan = plan, .num_parameters = 340'000'000, .first_step = 12345});
  console.evaluation_begin("Evaluation", 10570, 8);
  std::istringstream lines(::testing::internal::GetCapturedStdout() +
                           ::testing::internal::GetCapturedStderr());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count)
    EXPECT_LE(text_columns(line), 100u) << line;
  EXPECT_GT(count, 20);
}

TEST(Console, EveryLineOfTheScriptAndTheLibraryIsShort) {
  const std::string words =
      "time of the steps: 93.2 % forward and backward, 6.5 % sums of gradients and waits for other "
      "ranks, 0.3 % optimizer";
  Console console({});
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  console.script_line("INFO", words);
  console.library_line("ERROR", "tandem", words);
  console.saving("/scratch/somebody/experiments/of-this-week/minilm-squad/checkpoint-1000");
  console.note(words);
  console.warning(words);
  std::istringstream lines(::testing::internal::GetCapturedStdout() +
                           ::testing::internal::GetCapturedStderr());
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count)
    EXPECT_LE(text_columns(line), kLineColumns) << line;
  EXPECT_EQ(count, 10u);
}

// Such a text has its lines, but may be longer than people's.
TEST(Console, LinesOfATextThatHasSomeAreShortToo) {
  Console console({});
  ::testing::internal::CaptureStderr();
  console.warning(
      "The following arguments do not match the ones within the checkpoint directory:\n"
      "  seed: 1 != 2\n  a_name_of_some_length: a value of some length (from args) != another "
      "value "
      "(from trainer_state.json)");
  const std::string errors = ::testing::internal::GetCapturedStderr();
  std::istringstream lines(errors);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(text_columns(line), kLineColumns);
  EXPECT_THAT(errors, HasSubstr("\n  seed: 1 != 2\n  a_name_of_some_length: a value"));
}

TEST(Console, EveryLineIsAJsonObject) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Console console({.format = LogFormat::kJson, .rank = 3});
  console.script_line("INFO", "*** Evaluate ***");
  console.fact("memory", "39 MiB of \"all\"");
  console.library_line("WARNING", "tandem", "bytes \xff of no text\nin two lines");
  trainer::TrainingPlan plan;
  console.train_begin({.plan = plan});
  trainer::StepProgress progress;
  progress.step = 1;
  progress.max_steps = 2;
  progress.loss = std::numeric_limits<double>::quiet_NaN();
  console.step_end(progress);
  console.log({{"loss", 1.5}, {"epoch", 0.25}});
  console.train_end();
  console.metrics_table("train", {{"train_loss", 1.25}});
  DownloadProgress downloads(true, true, {.format = LogFormat::kJson, .name = "", .rank = {}});
  downloads.note("a file");
  std::istringstream lines(::testing::internal::GetCapturedStdout() +
                           ::testing::internal::GetCapturedStderr());
  std::vector<nlohmann::json> objects;
  for (std::string line; std::getline(lines, line);) {
    objects.push_back(nlohmann::json::parse(line));
    for (const char* member : {"time", "severity", "logger", "message"})
      EXPECT_TRUE(objects.back().contains(member)) << line;
  }
  ASSERT_EQ(objects.size(), 9u);
  EXPECT_EQ(objects[1]["logger"], "memory");
  EXPECT_EQ(objects[1]["rank"], 3);
  EXPECT_EQ(objects[2]["metrics"]["loss"], 1.5);
  EXPECT_EQ(objects[3]["metrics"]["train_loss"], 1.25);
  EXPECT_EQ(objects[4]["severity"], "WARNING");
  EXPECT_EQ(objects[4]["message"], "bytes \xEF\xBF\xBD of no text\nin two lines");
  EXPECT_EQ(objects[6]["progress"]["max_steps"], 2);
  EXPECT_TRUE(objects[6]["progress"]["loss"].is_null());
  EXPECT_FALSE(objects[8].contains("rank"));
}

TEST(LogFormat, IsFoundAmongWords) {
  const auto found = [](std::vector<std::string> words) { return find_log_format(words); };
  EXPECT_EQ(found({"--log_format", "json"}), LogFormat::kJson);
  EXPECT_EQ(found({"--log-format=json", "--log_format", "text"}), LogFormat::kText);
  EXPECT_EQ(found({"--log_format"}), std::nullopt);
  EXPECT_EQ(found({"--log_format", "xml"}), std::nullopt);
  EXPECT_EQ(found({"--log_formats", "json"}), std::nullopt);
}

TEST(Console, OnlyTheMainProcessPrintsForTheJob) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Console console({.main_process = false});
  console.fact("model", "text");
  console.note("text");
  console.warning("text");
  console.warning_of_host("host a: text");
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), ::testing::EndsWith(">> host a: text\n"));
}

TEST(AgentMetrics, AreReadyAtOnceAndAliveWhileTheAgentIs) {
  AgentMetrics metrics;
  EXPECT_TRUE(metrics.ready());
  EXPECT_TRUE(metrics.alive());
  launch::JobStatus status;
  status.view = 3;
  status.nodes = 2;
  status.ranks = 5;
  status.losses = 1;
  status.seconds_lost = 0.25;
  status.seconds_since_step = 1.5;
  status.members = {{0, 1, 17, "computes"}, {1, -1, 0, "is drained"}};
  status.measured = "tandem_loss 2.5\n";
  const AgentMetrics::Clock::time_point now{};
  metrics.publish(status, now);
  const std::string text = metrics.text_at(now + std::chrono::seconds(2));
  for (const char* line :
       {"\ntandem_view 3\n", "\ntandem_members 2\n", "\ntandem_ranks 5\n", "\ntandem_workers 1\n",
        "\ntandem_losses_total 1\n", "\ntandem_lost_seconds_total 0.25\n",
        "# TYPE tandem_losses_total counter\n", "\ntandem_seconds_since_step 3.5\n",
        "\ntandem_loss 2.5\n"})
    EXPECT_THAT(text, HasSubstr(line));
  EXPECT_TRUE(metrics.alive_at(now + std::chrono::seconds(59)));
  EXPECT_FALSE(metrics.alive_at(now + std::chrono::seconds(61)));
  status.ending = true;
  metrics.publish(status, now);
  EXPECT_FALSE(metrics.ready());
}

}  // namespace
}  // namespace tandem::apps
