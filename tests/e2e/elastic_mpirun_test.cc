// Jobs that mpirun has started, tandem's own and MPICH's: ranks die, the others continue, and the
// bits are those of an undisturbed job.
#include <gmock/gmock.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <set>
#include <thread>

#include "e2e/job.h"
#include "tandem/core/error.h"

namespace tandem::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;
using namespace std::string_literals;
using Clock = std::chrono::steady_clock;

class ElasticMpirun : public JobTest {
 protected:
  static constexpr int kMpirunSteps = 120;

  static Words tandems_mpirun(const Words& more = {}) {
    return with({kProgram, "mpirun", "-n", "3", "-genv", "OMP_NUM_THREADS=1"}, more);
  }
  Words job(const Words& launcher, const std::string& output, const Words& more = {}) const {
    Words words = train_command(
        output, {"--max_train_samples", "600", "--max_steps", std::to_string(kMpirunSteps),
                 "--logging_steps", "10", "--save_steps", "50", "--report_to", "none"});
    return with(with(launcher, words), more);
  }
  // Ranks in the old way: the job ends when one does.
  void run_calm(const Words& more = {}) const {
    const auto calm =
        run_reference(job(tandems_mpirun({"-genv", "TANDEM_ELASTIC=0"}), "calm", more), "calm");
    EXPECT_THAT(unwrapped(calm.out), HasSubstr("3 ranks on 1 node"));
  }

  // The processes of a job, by rank on their host: those that compute, or those that mpirun has
  // started.
  std::map<int, pid_t> processes(const std::string& output, bool compute) const {
    std::map<int, pid_t> found;
    visit(output, compute, [&](pid_t pid, const std::string& variables) {
      if (!compute && ::getsid(pid) != pid) return;  // the agent, which one of them has started
      const std::string rank = compute ? "\0LOCAL_RANK="s : "\0PMI_RANK="s;
      const std::size_t at = variables.find(rank);
      if (at != variables.npos) found[std::atoi(variables.c_str() + at + rank.size())] = pid;
    });
    return found;
  }
  bool agent_runs(const std::string& output) const {
    bool runs = false;
    visit(output, false, [&](pid_t pid, const std::string& variables) {
      runs = runs || (::getsid(pid) != pid && variables.find("\0PMI_RANK="s) != variables.npos);
    });
    return runs;
  }
  template <typename Visitor>
  void visit(const std::string& output, bool compute, Visitor visitor) const {
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      pid_t pid = 0;
      const std::string name = entry.path().filename().native();
      std::from_chars(name.data(), name.data() + name.size(), pid);
      if (pid == 0) continue;
      const auto words = text_of(entry.path() / "cmdline");
      if (!words.starts_with(kProgram) || words.find("mpirun") != words.npos ||
          words.find(path(output).native() + '\0') == words.npos)
        continue;
      const auto variables = '\0' + text_of(entry.path() / "environ");
      if ((variables.find("\0TANDEM_AGENT="s) != variables.npos) != compute) continue;
      visitor(pid, variables);
    }
  }
  static std::string text_of(const std::filesystem::path& file) {
    try {
      return read_file_if_exists(file).value_or("");
    } catch (const Error&) {  // it has just ended, or is another user's
      return "";
    }
  }
  // Waits until the job has printed `text`, behind `before`, or has ended.
  static bool printed(Process& job, const std::string& text, const std::string& before = "") {
    const auto limit = Clock::now() + 60s;
    while (Clock::now() < limit) {
      const std::string all = job.out_so_far() + job.err_so_far();
      const std::size_t at = all.find(before);
      if (at != all.npos && all.find(text, at) != all.npos) return true;
      if (!job.running()) break;
      std::this_thread::sleep_for(2ms);
    }
    ADD_FAILURE() << "'" << text << "' was not printed: " << job.out_so_far() << job.err_so_far();
    return false;
  }
};

struct Launcher {
  const char* name;
  std::vector<std::string> words;  // empty: tandem's own
};

void PrintTo(const Launcher& one, std::ostream* out) { *out << one.name; }

class ElasticLaunchers : public ElasticMpirun, public ::testing::WithParamInterface<Launcher> {
 protected:
  Words launcher() const {
    if (GetParam().words.empty()) return tandems_mpirun();
    Words words = GetParam().words;
    words[0] = find_program(words[0]);
    return words;
  }
  void kill_rank(int rank) const {
    const auto workers = processes("job", true);
    ASSERT_TRUE(workers.contains(rank));
    ASSERT_EQ(::kill(workers.at(rank), SIGKILL), 0);
  }
  void SetUp() override {
    if (launcher()[0].empty())
      GTEST_SKIP() << "needs " << GetParam().words[0] << " (package mpich)";
  }
};

// Rank 0, which writes, and another one: they are started again, and mpirun is not informed.
TEST_P(ElasticLaunchers, RanksThatDieAreStartedAgain) {
  run_calm();
  Process job(this->job(launcher(), "job"));
  ASSERT_TRUE(printed(job, "/120 ["));
  kill_rank(0);
  ASSERT_TRUE(printed(job, "is applied", "worker 0 is back"));
  kill_rank(2);
  ASSERT_TRUE(printed(job, "worker 2 is back"));
  const auto result = job.wait();
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("was killed by SIGKILL"));
  expect_equal_results("calm", "job");
}

// A signal that comes when the job has just ended: the processes that mpirun has started are
// stopped until the agent is gone. They know the signal, and how the job has ended.
TEST_P(ElasticLaunchers, SigtermNeverEndsWith0) {
  Process job(this->job(launcher(), "job"));
  ASSERT_TRUE(printed(job, "/120 ["));
  const auto started = processes("job", false);
  ASSERT_EQ(started.size(), 3u);
  for (const auto& [rank, pid] : started) ::kill(pid, SIGSTOP);
  const auto limit = Clock::now() + 60s;
  while (agent_runs("job") && Clock::now() < limit) std::this_thread::sleep_for(20ms);
  ASSERT_FALSE(agent_runs("job"));
  for (const auto& [rank, pid] : started) ::kill(pid, SIGTERM);
  for (const auto& [rank, pid] : started) ::kill(pid, SIGCONT);
  const auto result = job.wait();
  EXPECT_EQ(result.exit_code, 128 + SIGTERM) << result.out << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("the agent of this host is gone")));
}

// A rank that ends whenever it is started, before the job has begun, does not disturb the others.
TEST_P(ElasticLaunchers, ARankThatNeverComesIsGivenUp) {
  // The other ranks compute longer than five starts take.
  const Words long_steps = {"--gradient_accumulation_steps", "4"};
  run_calm(long_steps);
  Process job(this->job(launcher(), "job", long_steps));
  std::set<pid_t> killed;
  const auto limit = Clock::now() + 60s;
  while (killed.size() < 5 && Clock::now() < limit && job.running()) {
    const auto workers = processes("job", true);
    if (workers.contains(1) && killed.insert(workers.at(1)).second) ::kill(workers.at(1), SIGKILL);
    std::this_thread::sleep_for(2ms);
  }
  const auto result = job.wait();
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(unwrapped(result.err), HasSubstr("it is not started again (it has ended 5 times "));
  EXPECT_THAT(result.err, HasSubstr("2 of 3 workers continue after step 0"));
  expect_equal_results("calm", "job");
}

INSTANTIATE_TEST_SUITE_P(Mpirun, ElasticLaunchers,
                         ::testing::Values(Launcher{"OfTandem", {}},
                                           Launcher{"OfMpich",
                                                    {"mpirun.mpich", "-disable-auto-cleanup", "-n",
                                                     "3", "-genv", "OMP_NUM_THREADS=1"}}),
                         [](const auto& test) { return test.param.name; });

// If a rank that mpirun started itself is killed, the rank goes and is not started again.
TEST_F(ElasticMpirun, AKilledRankDoesNotDisturbTheOthers) {
  run_calm();
  Process job(this->job(tandems_mpirun(), "job"));
  ASSERT_TRUE(printed(job, "/120 ["));
  const auto started = processes("job", false);
  ASSERT_TRUE(started.contains(0));  // the first, which has started the agent
  ASSERT_EQ(::kill(started.at(0), SIGKILL), 0);
  ASSERT_TRUE(printed(job, "2 of 3 workers continue"));
  const auto result = job.wait();
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("for worker 0 has ended: the others continue"));
  EXPECT_THAT(result.err, HasSubstr("the job has finished without them"));
  EXPECT_THAT(result.err, Not(HasSubstr("is back")));
  expect_equal_results("calm", "job");
}

// As under any mpirun: a checkpoint, and 128 + the signal.
TEST_F(ElasticMpirun, SigtermSavesACheckpoint) {
  Process job(this->job(tandems_mpirun(), "job"));
  ASSERT_TRUE(printed(job, "/120 ["));
  job.signal(SIGTERM);
  const auto result = job.wait();
  EXPECT_EQ(result.exit_code, 128 + SIGTERM) << result.out << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("again: the workers are killed")));
  const auto is_checkpoint = [](const auto& entry) {
    return entry.path().filename().native().starts_with("checkpoint-");
  };
  const std::filesystem::directory_iterator saved(path("job")), end;
  EXPECT_GE(std::count_if(saved, end, is_checkpoint), 1);
}

TEST_F(ElasticMpirun, NothingIsLeftBehind) {
  Process job(this->job(tandems_mpirun(), "job"));
  ASSERT_TRUE(printed(job, "/120 ["));
  ASSERT_EQ(processes("job", true).size(), 3u);
  job.signal(SIGKILL);
  job.wait();
  const auto any = [&] {
    return !processes("job", true).empty() || !processes("job", false).empty();
  };
  const auto limit = Clock::now() + 30s;
  while (any() && Clock::now() < limit) std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(any());
}

// A fault that repeats ends the job with its own exit code, and is reported once.
TEST_F(ElasticMpirun, WhatIsWrongEndsTheJob) {
  const auto result =
      run(job(tandems_mpirun(), "job", {"--model_name_or_path", "/no/such"}), {}, 60s);
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("/no/such"));
}

}  // namespace
}  // namespace tandem::testing
