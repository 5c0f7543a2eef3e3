// `tandem run` from outside: the environment of its workers, their streams, restarts, signals and
// exit codes, several agents, programs of torch, and tandem's own jobs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "e2e/job.h"
#include "tandem/core/json.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAreArray;
using namespace std::chrono_literals;

class TandemRun : public JobTest {
 protected:
  // `tandem run FLAGS --no-python /bin/sh SCRIPT`.
  Words shell(Words flags, const std::string& script) const {
    const std::string file = path("worker.sh").string();
    write_file(file, script);
    Words words = {kProgram, "run"};
    words.insert(words.end(), flags.begin(), flags.end());
    for (const std::string& word : {std::string("--no-python"), std::string("/bin/sh"), file})
      words.push_back(word);
    return words;
  }
};

TEST_F(TandemRun, WorkersHaveTorchrunsEnvironment) {
  const auto result = run(
      shell(
          {"--standalone", "--nproc-per-node", "2", "--role", "trainer", "--max-restarts", "3"},
          "for name in RANK LOCAL_RANK GROUP_RANK ROLE_RANK ROLE_NAME LOCAL_WORLD_SIZE WORLD_SIZE "
          "GROUP_WORLD_SIZE ROLE_WORLD_SIZE MASTER_ADDR TORCHELASTIC_RESTART_COUNT "
          "TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_USE_AGENT_STORE "
          "OMP_NUM_THREADS KEPT; do eval \"all=\\\"\\$all $name=\\$$name\\\"\"; done\n"
          "[ \"$MASTER_PORT\" -gt 0 ] && [ -n \"$TORCHELASTIC_ERROR_FILE\" ] && [ "
          "\"${#TORCHELASTIC_RUN_ID}\" = 36 ] && echo \"$all\"\n"),
      {{"KEPT", "yes"}, {"OMP_NUM_THREADS", ""}});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::vector<std::string> expected;
  for (const char* rank : {"0", "1"}) {
    expected.push_back(fmt::format(
        " RANK={0} LOCAL_RANK={0} GROUP_RANK=0 ROLE_RANK={0} ROLE_NAME=trainer LOCAL_WORLD_SIZE=2 "
        "WORLD_SIZE=2 GROUP_WORLD_SIZE=1 ROLE_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "
        "TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_MAX_RESTARTS=3 "
        "TORCHELASTIC_USE_AGENT_STORE=True OMP_NUM_THREADS=1 KEPT=yes",
        rank));
  }
  EXPECT_THAT(lines_of(result.out), UnorderedElementsAreArray(expected));
}

// Whether this process may take a TCP port of any address; `joining`: also one that is only kept.
bool may_bind(int port, bool joining) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int reuse = joining ? 1 : 0;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  const bool bound = ::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                     ::listen(socket, 1) == 0;
  ::close(socket);
  return bound;
}

// Behind the agent's: rank 0 of a program that uses tandem's collectives listens there, after a
// restart at the next one.
TEST_F(TandemRun, PortsOfRanksAreKeptForThem) {
  const std::string go = path("go").string();
  Process job(shell({"--standalone", "--max-restarts", "1"},
                    "echo $MASTER_PORT\nuntil [ -e " + go + " ]; do sleep 0.05; done\n"));
  const auto limit = std::chrono::steady_clock::now() + 60s;
  while (job.running() && !job.out_so_far().ends_with('\n') &&
         std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(5ms);
  const int port = std::stoi(job.out_so_far());
  for (const int next : {port + 1, port + 2}) {
    EXPECT_FALSE(may_bind(next, /*joining=*/false)) << next;
    EXPECT_TRUE(may_bind(next, /*joining=*/true)) << next;
  }
  write_file(go, "");
  EXPECT_EQ(job.wait().exit_code, 0);
}

TEST_F(TandemRun, AFailureStopsTheOthersAndIsNamedLast) {
  const auto start = std::chrono::steady_clock::now();
  const auto result =
      run(shell({"--nproc-per-node", "3"},
                "[ $RANK = 1 ] || exec sleep 300\n"
                "echo '{\"message\": {\"message\": \"ValueError: no luck\", \"extraInfo\": "
                "{\"timestamp\": \"1\"}}}' > $TORCHELASTIC_ERROR_FILE\nexit 7\n"),
          {{"TORCHELASTIC_ERROR_FILE", path("why.json").string()}});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(last_line(result.err), AllOf(HasSubstr("root failure: rank 1 (local rank 1"),
                                           HasSubstr("exited with 7: ValueError: no luck")));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 60s);
  const auto why = nlohmann::json::parse(read_file(path("why.json")));
  EXPECT_EQ(why["message"]["message"], "ValueError: no luck");
}

TEST_F(TandemRun, RestartsAllWorkers) {
  const auto result = run(shell({"--nproc-per-node", "2", "--max-restarts", "2"},
                                "echo $RANK.$TORCHELASTIC_RESTART_COUNT\n"
                                "[ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0\n"
                                "[ $RANK = 0 ] && exit 3\nexec sleep 300\n"));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(lines_of(result.out), ::testing::IsSupersetOf({"0.0", "0.1", "0.2", "1.2"}));
  EXPECT_THAT(result.err, HasSubstr("restart 2 of 2: rank 0"));
}

TEST_F(TandemRun, SignalsReachTheWorkersAndTheirChildren) {
  Process job(shell({"--nproc-per-node", "2"},
                    "trap 'echo saved; exit 0' TERM\necho up\nsleep 300 & wait\n"));
  ASSERT_TRUE(prints(job, "up\nup\n"));
  job.signal(SIGTERM);
  const auto result = job.wait(60s);
  EXPECT_EQ(result.exit_code, 143) << result.err;
  EXPECT_EQ(result.out, "up\nup\nsaved\nsaved\n");

  Process stubborn(
      shell({"--shutdown-timeout", "1"}, "trap '' TERM\necho up\nsleep 300\nsleep 300"));
  ASSERT_TRUE(prints(stubborn, "up"));
  stubborn.signal(SIGTERM);
  EXPECT_EQ(stubborn.wait(60s).exit_code, 143);
}

TEST_F(TandemRun, StreamsGoWhereTheyAreSent) {
  const std::string logs = path("logs").string();
  const auto result =
      run(shell({"--nproc-per-node", "2", "--log-dir", logs, "-r", "1:2", "-t", "1",
                 "--log-line-prefix-template", "<${rank}> ", "--duplicate-stdout-filters", "apple"},
                "echo apple$RANK\necho pear$RANK\necho err$RANK >&2\nprintf unfinished$RANK\n"));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(lines_of(result.out),
              ::testing::UnorderedElementsAre("<0> apple0", "<0> pear0", "<0> unfinished0",
                                              "<1> apple1", "<1> pear1", "<1> unfinished1"));
  EXPECT_THAT(result.err, AllOf(HasSubstr("err0"), Not(HasSubstr("err1"))));
  const auto folder = std::filesystem::directory_iterator(logs)->path() / "attempt_0";
  EXPECT_EQ(read_file(folder / "0" / "stdout.log"), "apple0\npear0\nunfinished0");
  EXPECT_EQ(read_file(folder / "1" / "stderr.log"), "err1\n");
  EXPECT_THAT(lines_of(read_file(folder / "filtered_stdout.log")),
              ::testing::UnorderedElementsAre("<0> apple0", "<1> apple1"));
  const auto filtered =
      run(shell({"--nproc-per-node", "2", "--local-ranks-filter", "1"}, "echo from $RANK\n"));
  EXPECT_EQ(filtered.out, "from 1\n");
}

TEST_F(TandemRun, RefusesWithTheReason) {
  const auto unknown = run({kProgram, "run", "--nproc-per-nod=2x", "train.py"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("--nproc-per-node: '2x'"));
  const auto missing = run({kProgram, "run", "no_such_script.py"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("there is no script 'no_such_script.py'"));
  const auto binary = run({kProgram, "run", kProgram, "run_qa"});
  EXPECT_EQ(binary.exit_code, 1);
  EXPECT_THAT(binary.err, HasSubstr("is a program, not a Python script: put --no-python"));
  EXPECT_THAT(run({kProgram, "run", "--help"}).out, HasSubstr("PET_RDZV_ENDPOINT"));
}

TEST_F(TandemRun, CalledTorchrunItIsTheSame) {
  std::filesystem::create_symlink(kProgram, path("torchrun"));
  Words command = shell({}, "echo $WORLD_SIZE\n");
  command.erase(command.begin(), command.begin() + 2);
  command.insert(command.begin(), path("torchrun").string());
  EXPECT_EQ(run(command).out, "1\n");
}

// Three agents on one machine, as on three hosts: they meet, one dies, the others go on.
TEST_F(TandemRun, AgentsMeetAndMissTheLost) {
  const int port = free_port();
  const Words command =
      shell({"--nnodes", "2:3", "--rdzv-backend", "c10d", "--rdzv-endpoint",
             fmt::format("localhost:{}", port), "--rdzv-conf", "last_call_timeout=3"},
            "echo size $WORLD_SIZE\n[ $WORLD_SIZE = 2 ] && exit 0\nexec sleep 300\n");
  const Variables token = {{"TANDEM_JOB_TOKEN", "secret"}};
  Process host(command, token);
  ASSERT_TRUE(prints(host, "worker"));
  Process second(command, token);
  Process third(command, token);
  ASSERT_TRUE(prints(host, "size 3") && prints(third, "size 3"));
  const auto unauthenticated_peer = run(command, {{"TANDEM_JOB_TOKEN", "guess"}});
  EXPECT_EQ(unauthenticated_peer.exit_code, 1);
  EXPECT_THAT(unauthenticated_peer.err, HasSubstr("another job token"));
  third.signal(SIGKILL);
  const auto first = host.wait(60s);
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(second.wait(60s).exit_code, 0);
  EXPECT_THAT(first.err, HasSubstr("is gone: its connection ended"));
  EXPECT_THAT(first.out, EndsWith("size 2\n"));
}

TEST_F(TandemRun, FixedPlacesAndAFailureElsewhere) {
  const int port = free_port();
  const auto node = [&](int rank) {
    return shell({"--nnodes", "2", "--node-rank", std::to_string(rank), "--master-port",
                  std::to_string(port)},
                 "[ $RANK = 1 ] && [ $GROUP_RANK = 1 ] && exit 9\nexec sleep 300\n");
  };
  Process one(node(1));
  Process zero(node(0));
  const auto result = zero.wait(60s);
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(last_line(result.err), HasSubstr("root failure: rank 1"));
  EXPECT_EQ(one.wait(60s).exit_code, 1);
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
                          "run_qa.py", "--no_such_flag"});
  EXPECT_EQ(usage.exit_code, 2) << usage.err;
  EXPECT_THAT(usage.err, Not(HasSubstr("restart 1")));
  EXPECT_THAT(last_line(usage.err),
              AllOf(HasSubstr("root failure: rank"), HasSubstr("no_such_flag")));
}

}  // namespace
}  // namespace tandem::testing
