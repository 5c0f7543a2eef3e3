// `--output_dir output_$(date …)`: one place for all pods of a job and for their restarts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "e2e/job.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class OutputDirectoryOfAJob : public JobTest {
 protected:
  static Variables named(Variables variables, const std::string& job = "qa") {
    variables["TORCHELASTIC_RUN_ID"] = job;
    return variables;
  }
  // Marks the record of an ended job as that of a dead one.
  void set_unfinished(const std::string& job) const {
    const fs::path record = path(".tandem-job-" + job);
    auto kept = nlohmann::json::parse(read_file(record));
    kept["finished"] = false;
    write_file(record, kept.dump());
  }
  const Variables one_rank_ = {{"OMP_NUM_THREADS", "1"}};
};

TEST_F(OutputDirectoryOfAJob, IsRank0s) {
  const int port = free_port();
  Process first(train_command("output_20260101_120000"), rank_variables(0, 2, port));
  Process second(train_command("output_20260101_120003"), rank_variables(1, 2, port));
  const ProcessResult result = second.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(first.wait().exit_code, 0);
  EXPECT_TRUE(fs::exists(path("output_20260101_120000") / "model.safetensors"));
  EXPECT_FALSE(fs::exists(path("output_20260101_120003")));
}

TEST_F(OutputDirectoryOfAJob, OtherFlagsMustAgreeAndBothValuesAreShown) {
  const int port = free_port();
  Process first(train_command("a", {"--warmup_steps", "3"}), rank_variables(0, 2, port));
  Process second(train_command("b", {"--warmup_steps", "4"}), rank_variables(1, 2, port));
  const ProcessResult result = first.wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("warmup_steps: 3 on rank 0"));
  EXPECT_THAT(result.err, HasSubstr("4 on rank 1"));
  EXPECT_THAT(result.err, Not(HasSubstr("output_dir")));
}

TEST_F(OutputDirectoryOfAJob, IsFoundAgainByARestartedPod) {
  run_ok(train_command("undisturbed"));
  run_ok(train_command("output_20260101_120000"), named(one_rank_));
  set_unfinished("qa");  // as a pod leaves it that dies after step 7
  fs::remove_all(path("output_20260101_120000") / "checkpoint-12");
  fs::remove(path("output_20260101_120000") / "model.safetensors");

  const auto again = run_ok(train_command("output_20260102_080000"), named(one_rank_));
  EXPECT_THAT(again.out + again.err, HasSubstr("this job continues in"));
  EXPECT_THAT(again.out + again.err, HasSubstr("checkpoint-7"));
  EXPECT_FALSE(fs::exists(path("output_20260102_080000")));
  const std::string last = fmt::format(
      "--output_dir: the job continued in '{}', where it began, not "
      "in '{}'",
      path("output_20260101_120000").native(), path("output_20260102_080000").native());
  EXPECT_TRUE(again.out.find(last) != std::string::npos &&
              again.out.find(last) > again.out.find("tandem report"))
      << again.out;
  expect_equal_results("undisturbed", "output_20260101_120000");

  // Another job, and the same name with another purpose, have places of their own.
  run_ok(train_command("output_20260103_080000"), named(one_rank_, "other"));
  EXPECT_TRUE(fs::exists(path("output_20260103_080000")));
  run_ok(train_command("output_20260104_080000", {"--seed", "7"}), named(one_rank_));
  EXPECT_TRUE(fs::exists(path("output_20260104_080000")));

  // A place that is gone is not returned to.
  set_unfinished("other");
  fs::remove_all(path("output_20260103_080000"));
  run_ok(train_command("output_20260105_080000"), named(one_rank_, "other"));
  EXPECT_TRUE(fs::exists(path("output_20260105_080000")));
  EXPECT_FALSE(fs::exists(path("output_20260103_080000")));
}

// Only dates may differ: seeds of six digits are two jobs.
TEST_F(OutputDirectoryOfAJob, ANumberThatIsNoDateIsAnotherJobs) {
  run_ok(train_command("seed123456"), named(one_rank_));
  const auto other = run_ok(train_command("seed654321"), named(one_rank_));
  EXPECT_TRUE(fs::exists(path("seed654321") / "model.safetensors"));
  EXPECT_THAT(other.out, Not(HasSubstr("continued in")));
}

// On a shared volume any user may put something into the record's place.
TEST_F(OutputDirectoryOfAJob, ARecordThatIsALinkOrAPipeIsNotRead) {
  run_ok(train_command("output_20260101_120000"), named(one_rank_));
  set_unfinished("qa");
  const fs::path record = path(".tandem-job-qa");
  fs::rename(record, path("elsewhere"));
  fs::create_symlink(path("elsewhere"), record);
  const std::string before = read_file(path("elsewhere"));
  const auto linked = run_ok(train_command("output_20260102_080000"), named(one_rank_));
  EXPECT_THAT(linked.out + linked.err, Not(HasSubstr("this job continues in")));
  EXPECT_TRUE(fs::exists(path("output_20260102_080000")));
  EXPECT_EQ(read_file(path("elsewhere")), before);
  EXPECT_FALSE(fs::is_symlink(record));

  fs::remove(record);
  ASSERT_EQ(::mkfifo(record.c_str(), 0600), 0);
  run_ok(train_command("output_20260103_080000"), named(one_rank_));
  EXPECT_TRUE(fs::exists(path("output_20260103_080000")));
}

// A pod's command line has --overwrite_output_dir at every start.
TEST_F(OutputDirectoryOfAJob, OverwriteIsOfTheFirstStart) {
  const std::vector<std::string> overwrite = {"--overwrite_output_dir"};
  run_ok(train_command("undisturbed", overwrite));
  run_ok(train_command("output", {"--seed", "7"}));  // another job, with checkpoints
  const auto first = run_ok(train_command("output", overwrite), named(one_rank_));
  EXPECT_THAT(first.out + first.err, Not(HasSubstr("Checkpoint detected")));
  set_unfinished("qa");
  fs::remove_all(path("output") / "checkpoint-12");
  const auto again = run_ok(train_command("output", overwrite), named(one_rank_));
  EXPECT_THAT(again.out, HasSubstr("this is a restart"));
  EXPECT_THAT(again.out + again.err, HasSubstr("Checkpoint detected, resuming training at"));
  EXPECT_THAT(again.out + again.err, HasSubstr("checkpoint-7"));
  expect_equal_results("undisturbed", "output");

  // It died before it had a checkpoint of its own.
  run_ok(train_command("other", {"--seed", "7"}));
  run_ok(train_command("other", {"--overwrite_output_dir", "--save_strategy", "no"}),
         named(one_rank_, "early"));
  set_unfinished("early");
  const auto early =
      run_ok(train_command("other", {"--overwrite_output_dir", "--save_strategy", "no"}),
             named(one_rank_, "early"));
  EXPECT_THAT(early.out + early.err, Not(HasSubstr("Checkpoint detected")));
}

// tandem run draws the name of a job that no node can join: a later start never has it.
TEST_F(OutputDirectoryOfAJob, NothingStaysOfADefaultName) {
  const Words alone = {kProgram, "run", "--standalone", "--nproc-per-node", "1"};
  Words words = train_command("output");
  words.erase(words.begin());
  words.front() += ".py";
  fs::create_directories(path("temporary"));
  const Variables variables = {{"OMP_NUM_THREADS", "1"}, {"TMPDIR", path("temporary").native()}};
  run_ok(with(alone, words), variables);
  words.insert(words.end(), {"--seed", "no number"});
  EXPECT_NE(run(with(alone, words), variables).exit_code, 0);
  for (const fs::path& file : list_directory(path("")))
    EXPECT_EQ(file.filename().native().find(".tandem-job"), std::string::npos) << file;
  EXPECT_THAT(list_directory(path("temporary")), ::testing::IsEmpty());
}

}  // namespace
}  // namespace tandem::testing
