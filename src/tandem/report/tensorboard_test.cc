#include "tandem/report/tensorboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>

#include "support/test_support.h"
#include "tandem/core/crc32c.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"

namespace tandem::report {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

template <class T>
T read_number(const std::string& bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

std::uint32_t unmask(std::uint32_t crc) {
  crc -= 0xa282ead8u;
  return (crc >> 17) | (crc << 15);
}

// The events of a file, each checked against its two CRCs.
std::vector<std::string> records(const fs::path& path) {
  const std::string bytes = read_file(path);
  std::vector<std::string> found;
  for (std::size_t at = 0; at < bytes.size();) {
    const auto size = read_number<std::uint64_t>(bytes, at);
    EXPECT_EQ(unmask(read_number<std::uint32_t>(bytes, at + 8)), crc32c(bytes.substr(at, 8)));
    found.push_back(bytes.substr(at + 12, size));
    EXPECT_EQ(unmask(read_number<std::uint32_t>(bytes, at + 12 + size)), crc32c(found.back()));
    at += 12 + size + 4;
  }
  return found;
}

// The bytes after the wall time (tag and eight bytes).
std::string without_time(const std::string& event) { return event.substr(9); }

TEST(EventFile, HoldsTensorFlowsMessages) {
  const testing::TemporaryFolder folder;
  fs::path path;
  {
    EventFile file(folder / "runs/a");
    path = file.path();
    file.add_scalar("train/loss", 0.5, 300);
    file.add_text("args", "{}", 0);
  }
  EXPECT_THAT(
      path.filename().string(),
      ::testing::MatchesRegex("events\\.out\\.tfevents\\.[0-9]{10}\\..+\\.[0-9]+\\.[0-9]+"));
  const std::vector<std::string> events = records(path);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0][0], '\x09');  // wall_time, a double
  EXPECT_EQ(without_time(events[0]),
            "\x1a\x0d"
            "brain.Event:2");
  // step 300; summary{ value{ tag "train/loss", simple_value 0.5 } }
  EXPECT_EQ(without_time(events[1]),
            std::string("\x10\xac\x02\x2a\x13\x0a\x11\x0a\x0atrain/loss\x15\0\0\0\x3f", 24));
  EXPECT_THAT(events[2], HasSubstr("args/text_summary"));
}

// TensorBoard reads a directory in the order of its names and never goes back.
TEST(EventFile, IsReadAfterThoseThatAreThere) {
  const testing::TemporaryFolder folder;
  std::string last;
  for (int i = 0; i < 12; ++i) {  // in one second, and past the ninth of this process
    const std::string name = EventFile(folder / "runs").path().filename().string();
    EXPECT_GT(name, last);
    last = name;
  }
  // A file of a host whose clock is ahead, and files that TensorBoard did not write.
  const fs::path ahead = folder / "runs/events.out.tfevents.5000000000.zz.9.0";
  for (const fs::path& file : {ahead, folder / "runs/events.out.tfevents.9999999999.a.1.0",
                               folder / "runs/events.out.tfevents.77777777777.a.1.0",
                               folder / "runs/events.out.tfevents.", folder / "runs/notes"})
    write_file(file, "");
  EXPECT_THAT(EventFile(folder / "runs").path().filename().string(),
              StartsWith("events.out.tfevents.5000000001."));
}

TEST(TensorBoardObserver, WritesLogEntriesUnderTransformersTags) {
  EXPECT_EQ(tensorboard_tag("loss"), "train/loss");
  EXPECT_EQ(tensorboard_tag("train_loss"), "train/train_loss");
  EXPECT_EQ(tensorboard_tag("eval_f1"), "eval/f1");
  EXPECT_EQ(tensorboard_tag("test_f1"), "test/f1");
}

// A resumed job writes its log from the beginning, once, and replaces the entries of earlier files.
TEST(TensorBoardObserver, ContinuesWithTheWholeLog) {
  const testing::TemporaryFolder folder;
  TensorBoardObserver observer({.directory = folder / "runs",
                                .arguments_json = "{}",
                                .model_config_json = "{}",
                                .warn = [](const std::string&) {}});
  const std::vector<nlohmann::ordered_json> log = {{{"loss", 2.0}, {"step", 10}},
                                                   {{"loss", 1.0}, {"step", 20}}};
  const std::vector<trainer::StepPoint> steps = {{.step = 5, .loss = 3.0}};
  observer.log_so_far({.entries = log, .steps = steps, .step = 25});
  observer.log({{"eval_f1", 1.0}});
  observer.log_so_far({.entries = log, .steps = steps, .step = 30});  // another view
  const auto file = fs::directory_iterator(folder / "runs")->path();
  const std::vector<std::string> events = records(file);
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(without_time(events[1]), "\x10\x05\x3a\x02\x08\x01");  // step 5; START
  EXPECT_THAT(without_time(events[2]), AllOf(StartsWith("\x10\x05"), HasSubstr("train/step_loss")));
  EXPECT_THAT(without_time(events[3]), AllOf(StartsWith("\x10\x0a"), HasSubstr("train/loss")));
  EXPECT_THAT(without_time(events[4]), AllOf(StartsWith("\x10\x14"), HasSubstr("train/loss")));
  EXPECT_THAT(without_time(events[5]), AllOf(StartsWith("\x10\x19"), HasSubstr("eval/f1")));
}

// Whatever is logged: every step at first, later a number of events that grows with the logarithm.
TEST(TensorBoardObserver, WritesTheLossOfEverySteps) {
  const testing::TemporaryFolder folder;
  TensorBoardObserver observer({.directory = folder / "runs",
                                .arguments_json = "{}",
                                .model_config_json = "{}",
                                .warn = [](const std::string&) {}});
  for (std::int64_t step = 1; step <= 3; ++step)
    observer.step_end({.step = step, .loss = 9, .mean_loss = 0.5 * static_cast<double>(step)});
  const auto file = fs::directory_iterator(folder / "runs")->path();
  const std::vector<std::string> events = records(file);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_THAT(without_time(events[3]),
              AllOf(StartsWith("\x10\x03"), HasSubstr("train/step_loss"),
                    ::testing::EndsWith(std::string("\x15\0\0\xc0\x3f", 5))));  // 1.5
  for (std::int64_t step = 4; step <= 100000; ++step) observer.step_end({.step = step});
  // 1000, then 500 for each of 2000, 4000 … 64000, and 36000 steps of which every 128th.
  EXPECT_NEAR(static_cast<double>(records(file).size()), 1 + 1000 + 6 * 500 + 36000 / 128, 1);
}

// Logging that fails is reported once and does not end the run.
TEST(TensorBoardObserver, ContinuesWithoutItsFile) {
  const testing::TemporaryFolder folder;
  write_file(folder / "a_file", "");
  std::vector<std::string> warnings;
  TensorBoardObserver observer(
      {.directory = folder / "a_file",
       .arguments_json = "{}",
       .model_config_json = "{}",
       .warn = [&](const std::string& text) { warnings.push_back(text); }});
  observer.log({{"loss", 1.0}});
  observer.log({{"loss", 1.0}});
  EXPECT_THAT(warnings,
              ElementsAre(HasSubstr("no more TensorBoard events: cannot create directory")));
}

}  // namespace
}  // namespace tandem::report
