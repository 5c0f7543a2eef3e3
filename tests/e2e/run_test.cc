// `tandem run` from outside: the environment of its workers, their streams, signals and exit codes,
// and other programs, which torch's torchrun runs. Elastic jobs are in elastic_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "e2e/job.h"
#include "support/children.h"
#include "tandem/core/json.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

class TandemRun : public JobTest {
 protected:
  static Words agent(const Words& flags, const Words& job) {
    return with(with({kProgram, "run"}, flags), job);
  }
  // A Python that prints what it is called with. `torch`: it has torch.
  Variables python(bool torch) const {
    const std::string file = path("python").native();
    write_file(file, fmt::format("#!/bin/sh\nif [ \"$1\" = -c ]; then {}; exit 0; fi\n"
                                 "echo \"$@\" $PET_NNODES\nexit 6\n",
                                 torch ? "echo " + file : "true"));
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    return {{"PYTHON_EXEC", file}, {"PET_NNODES", "1"}};
  }
};

// The variables of a process.
std::map<std::string, std::string> environment_of(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/environ", process), std::ios::binary);
  std::map<std::string, std::string> variables;
  for (std::string entry; std::getline(file, entry, '\0');) {
    const std::size_t equals = std::min(entry.find('='), entry.size());
    variables[entry.substr(0, equals)] = entry.substr(std::min(equals + 1, entry.size()));
  }
  return variables;
}

TEST_F(TandemRun, WorkersHaveTorchrunsEnvironment) {
  Words job = train_command("job", {"--max_steps", "100000", "--save_strategy", "no"});
  job.erase(job.begin());
  job.front() += ".py";
  Process agent(this->agent({"--standalone", "--nproc-per-node", "2", "--role", "trainer",
                             "--max-restarts", "3", "--virtual-local-rank"},
                            job),
                {{"KEPT", "yes"}, {"PMI_RANK", "9"}, {"OMP_NUM_THREADS", ""}});
  ASSERT_TRUE(prints(agent, "/100000 ["));
  std::vector<std::string> ranks;
  for (const pid_t worker : children(agent.pid())) {
    auto variables = environment_of(worker);
    for (const auto& [name, value] :
         std::map<std::string, std::string>{{"LOCAL_RANK", "0"},
                                            {"GROUP_RANK", "0"},
                                            {"ROLE_NAME", "trainer"},
                                            {"LOCAL_WORLD_SIZE", "2"},
                                            {"WORLD_SIZE", "2"},
                                            {"GROUP_WORLD_SIZE", "1"},
                                            {"ROLE_WORLD_SIZE", "2"},
                                            {"MASTER_ADDR", "127.0.0.1"},
                                            {"TORCHELASTIC_RESTART_COUNT", "0"},
                                            {"TORCHELASTIC_MAX_RESTARTS", "3"},
                                            {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                            {"KEPT", "yes"}})
      EXPECT_EQ(variables[name], value) << name;
    EXPECT_EQ(variables["TORCHELASTIC_RUN_ID"].size(), 36u);
    EXPECT_EQ(variables["RANK"], variables["ROLE_RANK"]);
    EXPECT_THAT(variables["TORCHELASTIC_ERROR_FILE"], EndsWith("/error.json"));
    EXPECT_FALSE(variables.contains("PMI_RANK"));
    EXPECT_GT(std::stoi(variables["MASTER_PORT"]), 0);
    ranks.push_back(variables["RANK"]);
  }
  EXPECT_THAT(ranks, ::testing::UnorderedElementsAre("0", "1"));
  agent.signal(SIGTERM);
  EXPECT_EQ(agent.wait(60s).exit_code, 143);
}

TEST_F(TandemRun, StreamsGoWhereTheyAreSent) {
  const std::string logs = path("logs").string();
  const auto result =
      run(agent({"--nproc-per-node", "2", "--log-dir", logs, "-r", "1:2", "-t", "1",
                 "--log-line-prefix-template", "<${rank}> ", "--duplicate-stdout-filters", "usage"},
                {"run_qa.py", "--help"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("<0> usage: "), HasSubstr("<1> usage: ")));
  for (const std::string& line : lines_of(result.out))
    EXPECT_TRUE(line.starts_with("<0> ") || line.starts_with("<1> ")) << line;
  const auto folder = std::filesystem::directory_iterator(logs)->path() / "attempt_0";
  EXPECT_TRUE(read_file(folder / "0" / "stdout.log").starts_with("usage: "));
  EXPECT_TRUE(std::filesystem::exists(folder / "1" / "stderr.log"));
  EXPECT_FALSE(std::filesystem::exists(folder / "0" / "stderr.log"));
  EXPECT_THAT(read_file(folder / "filtered_stdout.log"),
              AllOf(HasSubstr("<0> usage: "), HasSubstr("<1> usage: ")));
  const auto filtered = run(agent({"--nproc-per-node", "2", "--local-ranks-filter", "1", "-t", "1"},
                                  {"run_qa.py", "--help"}));
  EXPECT_THAT(filtered.out, AllOf(HasSubstr("[default1]:usage: "), Not(HasSubstr("[default0]"))));
}

TEST_F(TandemRun, OtherProgramsRunUnderTheTorchrunOfTheirPython) {
  for (const Words& words : std::vector<Words>{{"--nproc-per-node", "2", "train.py", "--a", "b"},
                                               {"-m", "package.train"},
                                               {"--no-python", "/bin/sh", "-c", "true"},
                                               {"--run-path", "train.py"},
                                               {"--nproc-per-node", "gpu", "train.py"},
                                               {"--rdzv-backend=etcd-v2", "train.py"},
                                               {"--flag-of-tomorrow", "x", "train.py"}}) {
    const auto result = run(agent(words, {}), python(/*torch=*/true));
    EXPECT_EQ(result.out, fmt::format("-m torch.distributed.run {} 1\n", fmt::join(words, " ")));
    EXPECT_EQ(result.exit_code, 6) << result.err;
    EXPECT_THAT(unwrapped(result.err), HasSubstr("this is not a job of tandem: it runs under"));
  }
}

TEST_F(TandemRun, OtherProgramsNeedTorch) {
  for (const Words& words :
       std::vector<Words>{{"train.py"}, {"no_such_job"}, {kProgram, "inspect"}}) {
    const auto without = run(agent(words, {}), python(/*torch=*/false));
    EXPECT_EQ(without.exit_code, 1);
    EXPECT_THAT(
        unwrapped(without.err),
        AllOf(HasSubstr("run_qa"), HasSubstr("found no torch in " + path("python").native()),
              HasSubstr("-m pip install torch")));
  }
  const auto nothing = run(agent({"train.py"}, {}), {{"PYTHON_EXEC", "python-from-nowhere"}});
  EXPECT_EQ(nothing.exit_code, 1);
  EXPECT_THAT(unwrapped(nothing.err), HasSubstr("found no program 'python-from-nowhere' in PATH"));
}

TEST_F(TandemRun, RefusesWithTheReason) {
  const auto unknown = run(agent({"--nproc-per-nod=2x"}, {"run_qa.py"}));
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("--nproc-per-node: '2x'"));
  EXPECT_EQ(run(agent({"--nproc-per-node", "2"}, {})).exit_code, 2);
  EXPECT_THAT(run({kProgram, "run", "--help"}).out, HasSubstr("PET_RDZV_ENDPOINT"));
}

TEST_F(TandemRun, CalledTorchrunItIsTheSame) {
  std::filesystem::create_symlink(kProgram, path("torchrun"));
  EXPECT_THAT(run({path("torchrun").string(), "run_qa.py", "--help"}).out,
              HasSubstr("usage: tandem run_qa"));
}

TEST_F(TandemRun, OwnJobsTrainAsElsewhere) {
  run_ok(train_command("reference", {"--logical_shards", "2"}));
  const auto result =
      train_under({kProgram, "run", "--nproc-per-node", "2", "examples/pytorch/run_qa.py"}, "job");
  EXPECT_THAT(result.out, HasSubstr("2 ranks on 1 node"));
  EXPECT_TRUE(weights("reference") == weights("job"));
  // A pod with nothing but an operator's variables.
  const auto pod = run_ok(train_command("pod"),
                          {{"PET_NNODES", "1:1"},
                           {"PET_NPROC_PER_NODE", "2"},
                           {"PET_RDZV_BACKEND", "c10d"},
                           {"PET_RDZV_ENDPOINT", fmt::format("localhost:{}", free_port())}});
  EXPECT_THAT(pod.err, HasSubstr("acts as the agent of its node"));
  EXPECT_TRUE(weights("reference") == weights("pod"));
}

TEST_F(TandemRun, OwnJobsKeepTheirExitCodes) {
  const auto usage = run({kProgram, "run", "--nproc-per-node", "2", "--max-restarts", "5",
                          "run_qa.py", "--no_such_flag"},
                         {{"TORCHELASTIC_ERROR_FILE", path("why.json").string()}});
  EXPECT_EQ(usage.exit_code, 2) << usage.err;
  EXPECT_THAT(usage.err, Not(HasSubstr("restart 1")));
  EXPECT_THAT(last_line(usage.err),
              AllOf(HasSubstr("root failure: rank"), HasSubstr("no_such_flag")));
  const auto why = nlohmann::json::parse(read_file(path("why.json")));
  EXPECT_THAT(why["message"]["message"].get<std::string>(), HasSubstr("no_such_flag"));
}

}  // namespace
}  // namespace tandem::testing
