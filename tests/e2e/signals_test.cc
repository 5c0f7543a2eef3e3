// Signals that terminals, Slurm, systemd and Kubernetes send to jobs, their agents and launchers.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <sstream>
#include <thread>

#include "e2e/job.h"
#include "support/children.h"
#include "tandem/trainer/checkpoint.h"

namespace tandem::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;
using ::testing::Not;

class SignalsTest : public JobTest {
 protected:
  // A job of so many steps that no test waits for its end.
  Words plain(const std::string& steps = "5000") const {
    Words words = train_command("job", {"--max_train_samples", "600", "--max_steps", steps,
                                        "--save_steps", "5000", "--report_to", "none"});
    return words;
  }
  Words under(const Words& launcher, const std::string& steps = "5000") const {
    const Words words = plain(steps);
    return with(with({kProgram}, launcher), Words(words.begin() + 1, words.end()));
  }
  Words agent(const std::string& steps = "5000") const {
    const Words words = plain(steps);
    return with({kProgram, "run", "--standalone", "--nproc-per-node", "2", words[1] + ".py"},
                Words(words.begin() + 2, words.end()));
  }
  static bool trains(Process& job) { return prints(job, "/5000 ["); }
  bool has_checkpoint() const { return trainer::last_checkpoint(path("job")).has_value(); }
  static bool gone(pid_t pid) {
    const auto limit = steady_clock::now() + std::chrono::seconds(10);
    while (::kill(pid, 0) == 0 && steady_clock::now() < limit)
      std::this_thread::sleep_for(milliseconds(5));
    return ::kill(pid, 0) != 0;
  }
  void expect_checkpoint(Process& job, int number) const {
    const ProcessResult ended = job.wait();
    EXPECT_EQ(ended.exit_code, 128 + number) << ended.err;
    EXPECT_TRUE(has_checkpoint()) << signal(number) << ended.err;
    std::filesystem::remove_all(path("job"));
  }
  static std::string signal(int number) { return ::sigabbrev_np(number); }
};

TEST_F(SignalsTest, EveryStopSignalSavesACheckpoint) {
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    Process job(plain());
    ASSERT_TRUE(trains(job));
    job.signal(number);
    expect_checkpoint(job, number);
  }
}

TEST_F(SignalsTest, EveryStopSignalToAnAgentSavesACheckpoint) {
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    Process job(agent());
    ASSERT_TRUE(trains(job));
    job.signal(number);
    expect_checkpoint(job, number);
  }
}

TEST_F(SignalsTest, EveryStopSignalToMpirunSavesACheckpoint) {
  for (const int number : {SIGHUP, SIGQUIT}) {
    for (const char* const elastic : {"0", "1"}) {
      Process job(under({"mpirun", "-n", "2", "-genv", "TANDEM_ELASTIC", elastic, kProgram}));
      ASSERT_TRUE(trains(job));
      job.signal(number);
      expect_checkpoint(job, number);
    }
  }
}

// `timeout` sends two signals; Slurm and systemd signal the workers as well as their agent.
TEST_F(SignalsTest, SignalsToAllProcessesOfAJobAreOneRequest) {
  Process job(agent());
  ASSERT_TRUE(trains(job));
  for (const pid_t worker : children(job.pid())) ::kill(worker, SIGTERM);
  job.signal(SIGTERM);
  std::this_thread::sleep_for(milliseconds(2));
  job.signal(SIGTERM);
  expect_checkpoint(job, SIGTERM);
}

// Slurm's --signal=B:USR1 ends neither the agent nor a worker.
TEST_F(SignalsTest, UserSignalsGoToTheWorkers) {
  Process job(agent("300"));
  ASSERT_TRUE(prints(job, "/300 ["));
  job.signal(SIGUSR1);
  job.signal(SIGUSR2);
  const ProcessResult ended = job.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, Not(HasSubstr("is started again")));
}

TEST_F(SignalsTest, UserSignalsMayAskForTheEnd) {
  Words words = agent();
  words.insert(words.begin() + 2, {"--signals-to-handle", "SIGTERM,SIGUSR1"});
  Process job(words);
  ASSERT_TRUE(trains(job));
  job.signal(SIGUSR1);
  expect_checkpoint(job, SIGUSR1);
}

// As when a terminal closes after `nohup tandem run … &`.
TEST_F(SignalsTest, NohupOutlivesItsTerminal) {
  for (const Words& command : {agent("300"), plain("300")}) {
    Process job(with({"nohup"}, command));
    ASSERT_TRUE(prints(job, "/300 ["));
    job.signal(SIGHUP);
    const ProcessResult ended = job.wait();
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    std::filesystem::remove_all(path("job"));
  }
}

// A stopped process acts on nothing but SIGCONT and SIGKILL.
TEST_F(SignalsTest, AStoppedWorkerEndsWithItsAgent) {
  Process job(agent());
  ASSERT_TRUE(trains(job));
  const std::vector<pid_t> workers = children(job.pid());
  ASSERT_EQ(workers.size(), 2u);
  ::kill(workers[1], SIGSTOP);
  job.signal(SIGKILL);
  for (const pid_t worker : workers) EXPECT_TRUE(gone(worker)) << worker;
  for (const pid_t worker : workers) ::kill(worker, SIGKILL);
}

TEST_F(SignalsTest, AStoppedWorkerLearnsThatTheJobEnds) {
  Process job(agent());
  ASSERT_TRUE(trains(job));
  const std::vector<pid_t> workers = children(job.pid());
  ASSERT_EQ(workers.size(), 2u);
  ::kill(workers[1], SIGSTOP);
  job.signal(SIGTERM);
  expect_checkpoint(job, SIGTERM);
}

}  // namespace
}  // namespace tandem::testing
