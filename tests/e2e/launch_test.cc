// Jobs of several ranks under the launchers people use, and what happens when a rank is missing,
// wrong or dies.
#include <signal.h>
#include <sys/socket.h>

#include <cstdlib>
#include <thread>

#include "e2e/job.h"
#include "tandem/core/error.h"
#include "tandem/net/socket.h"

namespace tandem::testing {
namespace {

class Launch : public JobTest {
 protected:
  void expect_same_as_two_shards(const std::string& output) {
    run_reference(train_command("reference", {"--logical_shards", "2"}), "reference");
    EXPECT_TRUE(weights("reference") == weights(output));
  }
  static Words join(Words launcher, const Words& command) {
    launcher.insert(launcher.end(), command.begin(), command.end());
    return launcher;
  }
};

TEST_F(Launch, HydraWithTheGuidesForm) {
  const std::string mpiexec = find_program("mpiexec.hydra");
  if (mpiexec.empty()) GTEST_SKIP() << "needs mpiexec.hydra (package mpich)";
  const ProcessResult result = run_ok(
      join({mpiexec, "-n", "2", "-genv", "OMP_NUM_THREADS=1", "-genv", "CCL_WORKER_COUNT", "1"},
           train_command("hydra", {"--no_cuda", "--ddp_backend", "ccl", "--use_ipex"})),
      {});
  EXPECT_NE(result.out.find("2 ranks on 1 node"), std::string::npos) << result.out;
  expect_same_as_two_shards("hydra");
}

std::size_t times_logged(const std::string& words) {
  std::size_t times = 0;
  for (std::size_t at = 0; (at = words.find("tandem: error:", at)) != std::string::npos; ++at)
    ++times;
  return times;
}

// Four ranks have the same wrong command line: one of them logs it.
TEST_F(Launch, AWrongFlagIsReportedOncePerJob) {
  const std::string mpiexec = find_program("mpiexec.hydra");
  if (mpiexec.empty()) GTEST_SKIP() << "needs mpiexec.hydra (package mpich)";
  const ProcessResult result =
      run(join({mpiexec, "-n", "4"}, train_command("wrong", {"--no_such_flag"})));
  EXPECT_EQ(result.exit_code, 2) << result.out << result.err;
  const std::string words = result.out + result.err;
  EXPECT_EQ(times_logged(words), 1u) << words;
  EXPECT_EQ(words.find("usage:"), words.rfind("usage:")) << words;
}

// A fault of the input is the same for every rank, and rank 0 reports it.
TEST_F(Launch, AFileThatAllRanksMissIsReportedOncePerJob) {
  const std::string mpiexec = find_program("mpiexec.hydra");
  if (mpiexec.empty()) GTEST_SKIP() << "needs mpiexec.hydra (package mpich)";
  write_file(path("broken.json"), "{\"data\": [");
  for (const std::string flag : {"--train_file", "--model_name_or_path"}) {
    for (const std::string& value : {path("missing.json").native(), path("broken.json").native()}) {
      const ProcessResult result =
          run(join({mpiexec, "-n", "3"}, train_command("missing", {flag, value})));
      const std::string words = result.out + result.err;
      EXPECT_EQ(result.exit_code, 1) << words;
      EXPECT_EQ(times_logged(words), 1u) << words;
      EXPECT_NE(words.find(value), std::string::npos) << words;
    }
  }
}

// A rank reports its own fault, and the others receive it.
TEST_F(Launch, WhatOneRankMissesEndsTheJob) {
  const std::string mpiexec = find_program("mpiexec.hydra");
  if (mpiexec.empty()) GTEST_SKIP() << "needs mpiexec.hydra (package mpich)";
  for (const char* rank : {"rank0", "rank1"}) std::filesystem::create_directory(path(rank));
  std::filesystem::copy_file(kDemo / "train.json", path("rank0") / "here.json");
  const Words command = train_command("one", {"--train_file", "here.json"});
  const Words second = join({":", "-n", "1", "-wdir", path("rank1").native()}, command);
  const ProcessResult result =
      run(join(join({mpiexec, "-n", "1", "-wdir", path("rank0").native()}, command), second));
  EXPECT_NE(result.exit_code, 0);
  EXPECT_NE(result.err.find("cannot open 'here.json'"), std::string::npos)
      << result.out << result.err;
}

TEST_F(Launch, IntelMpi) {
  const auto root = std::filesystem::path(TANDEM_SOURCE_DIR) / "build" / "test-data" / "venv";
  if (!std::filesystem::exists(root / "bin" / "mpirun")) {
    GTEST_SKIP() << "needs Intel MPI (package impi-rt from PyPI, fetched by "
                    "scripts/fetch_python_packages.sh)";
  }
  const std::string path = (root / "bin").native() + ":" + std::getenv("PATH");
  run_ok(join({(root / "bin" / "mpirun").native(), "-n", "2", "-genv", "OMP_NUM_THREADS=1"},
              train_command("intel")),
         {{"PATH", path}, {"FI_PROVIDER_PATH", (root / "lib").native()}});
  expect_same_as_two_shards("intel");
}

TEST_F(Launch, OpenMpi) {
  const std::string mpirun = find_program("mpirun.openmpi");
  if (mpirun.empty()) GTEST_SKIP() << "needs mpirun.openmpi (package openmpi-bin)";
  run_ok(
      join({mpirun, "--allow-run-as-root", "--oversubscribe", "-n", "2", "-x", "OMP_NUM_THREADS=1"},
           train_command("openmpi")),
      {{"MASTER_PORT", std::to_string(free_port())}});
  expect_same_as_two_shards("openmpi");
}

TEST_F(Launch, SlurmVariables) {
  const int port = free_port();
  std::vector<std::unique_ptr<Process>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(std::make_unique<Process>(train_command("slurm"),
                                              Variables{{"SLURM_PROCID", std::to_string(rank)},
                                                        {"SLURM_NTASKS", "2"},
                                                        {"SLURM_STEP_NUM_TASKS", "2"},
                                                        {"SLURM_LOCALID", std::to_string(rank)},
                                                        {"SLURM_NTASKS_PER_NODE", "2"},
                                                        {"SLURM_JOB_ID", "1"},
                                                        {"SLURM_STEP_NODELIST", "localhost"},
                                                        {"MASTER_PORT", std::to_string(port)},
                                                        {"OMP_NUM_THREADS", "1"}}));
  }
  for (auto& rank : ranks) {
    const ProcessResult result = rank->wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
  }
  expect_same_as_two_shards("slurm");
}

TEST_F(Launch, AKilledRankIsNamedWithinTwoSeconds) {
  const int port = free_port();
  const Words command = train_command("job", {"--max_steps", "100000", "--save_strategy", "no"});
  std::vector<std::unique_ptr<Process>> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    Variables variables = rank_variables(rank, 3, port);
    variables["TANDEM_FLIGHT_RECORD"] = path("").native();
    ranks.push_back(std::make_unique<Process>(command, variables));
  }
  while (ranks[0]->running() && ranks[0]->err_so_far().find("| 1/100000 ") == std::string::npos) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ranks[1]->signal(SIGKILL);
  const auto start = std::chrono::steady_clock::now();
  for (const int survivor : {0, 2}) {
    const ProcessResult result =
        ranks[static_cast<std::size_t>(survivor)]->wait(std::chrono::seconds(60));
    EXPECT_EQ(result.exit_code, 200) << result.err;
    EXPECT_NE(result.err.find("rank 1"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("the last operations are in " + path("").native()), std::string::npos)
        << result.err;
  }
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 2.0);
}

TEST_F(Launch, ARankThatFailsEndsTheOthers) {
  const int port = free_port();
  Process zero(train_command("job", {"--max_steps", "100000"}), rank_variables(0, 2, port));
  Process one(train_command("job", {"--max_steps", "99999"}), rank_variables(1, 2, port));
  const ProcessResult first = zero.wait(std::chrono::seconds(60));
  const ProcessResult second = one.wait(std::chrono::seconds(60));
  EXPECT_NE(first.exit_code, 0);
  EXPECT_NE(second.exit_code, 0);
  EXPECT_NE((first.err + second.err).find("command line"), std::string::npos)
      << first.err << second.err;
}

// Ranks that no launcher ends: a rank that fails before the bootstrap reports it there, to ranks
// that come later too.
TEST_F(Launch, ARankThatFailsInItsFlagsEndsTheOthers) {
  for (const int wrong : {0, 1}) {
    const int port = free_port();
    std::vector<std::unique_ptr<Process>> ranks(3);
    for (const int rank : {wrong, 1 - wrong, 2}) {
      Words command = train_command("job");
      if (rank == wrong) command.insert(command.end(), {"--learning_rate", "fast"});
      ranks[static_cast<std::size_t>(rank)] =
          std::make_unique<Process>(command, rank_variables(rank, 3, port));
    }
    for (int rank = 0; rank < 3; ++rank) {
      const ProcessResult result =
          ranks[static_cast<std::size_t>(rank)]->wait(std::chrono::seconds(60));
      const std::string words = unwrapped(result.err);
      EXPECT_EQ(result.exit_code, rank == wrong ? 2 : 200) << words;
      EXPECT_NE(words.find("learning_rate"), std::string::npos) << words;
      if (rank == wrong) continue;
      EXPECT_NE(words.find(fmt::format("rank {} (", wrong)), std::string::npos) << words;
      EXPECT_NE(words.find("failed before all ranks were connected"), std::string::npos) << words;
    }
  }
}

// People start ranks one after another: rank 0 may come long after another one has failed.
TEST_F(Launch, ALateRankZeroReceivesTheFailedRanks) {
  const int port = free_port();
  Process one(train_command("job", {"--learning_rate", "fast"}), rank_variables(1, 2, port));
  ASSERT_TRUE(prints(one, "rank 1 tries for 30 s to report its failure to rank 0"));
  EXPECT_NE(one.err_so_far().find("learning_rate"), std::string::npos) << one.err_so_far();
  std::this_thread::sleep_for(std::chrono::seconds(7));
  Process zero(train_command("job", {"--ddp_timeout", "60"}), rank_variables(0, 2, port));
  const ProcessResult of_rank_0 = zero.wait(std::chrono::seconds(50));
  EXPECT_EQ(of_rank_0.exit_code, 200) << of_rank_0.err;
  EXPECT_NE(unwrapped(of_rank_0.err).find("failed before all ranks were connected"),
            std::string::npos)
      << of_rank_0.err;
  EXPECT_EQ(one.wait(std::chrono::seconds(50)).exit_code, 2);
}

TEST_F(Launch, ARankThatTriesToReportItsFailureEndsAtASignal) {
  Process one(train_command("job", {"--learning_rate", "fast"}), rank_variables(1, 2, free_port()));
  ASSERT_TRUE(prints(one, "rank 1 tries for 30 s to report its failure to rank 0"));
  one.signal(SIGINT);
  EXPECT_EQ(one.wait(std::chrono::seconds(20)).exit_code, 128 + SIGINT);
}

TEST_F(Launch, AWrongFlagOfOneProcessEndsItAtOnce) {
  const ProcessResult result = run(train_command("alone", {"--learning_rate", "fast"}));
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_EQ(result.err.find("stays"), std::string::npos) << result.err;
}

TEST_F(Launch, RanksMeetAtAnAddressOfIPv6) {
  try {
    net::listen_tcp(true, 0, AF_INET6);
  } catch (const Error& error) {
    GTEST_SKIP() << "needs IPv6: " << error.what();
  }
  const int port = free_port();
  std::vector<std::unique_ptr<Process>> ranks;
  for (const int rank : {0, 1}) {
    Variables variables = rank_variables(rank, 2, port);
    variables["MASTER_ADDR"] = rank == 0 ? "::1" : "[::1]";
    ranks.push_back(
        std::make_unique<Process>(train_command("ipv6", {"--ddp_timeout", "60"}), variables));
  }
  for (auto& rank : ranks) {
    const ProcessResult result = rank->wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
  }
}

TEST_F(Launch, WorldSizesThatDisagree) {
  const int port = free_port();
  auto other = rank_variables(1, 3, port);
  Process zero(train_command("job", {"--ddp_timeout", "20"}), rank_variables(0, 2, port));
  Process one(train_command("job", {"--ddp_timeout", "20"}), other);
  const ProcessResult first = zero.wait(std::chrono::seconds(60));
  const ProcessResult second = one.wait(std::chrono::seconds(60));
  EXPECT_NE(first.exit_code, 0) << first.err;
  EXPECT_NE(second.exit_code, 0) << second.err;
  EXPECT_NE(first.err.find("world size"), std::string::npos) << first.err;
}

TEST_F(Launch, AMissingRankIsNamed) {
  Process zero(train_command("job", {"--ddp_timeout", "2"}), rank_variables(0, 3, free_port()));
  const ProcessResult result = zero.wait(std::chrono::seconds(60));
  EXPECT_EQ(result.exit_code, 200) << result.err;
  EXPECT_NE(result.err.find("1, 2"), std::string::npos) << result.err;
}

TEST_F(Launch, APortThatIsTaken) {
  const auto holder = net::listen_tcp(true, 0);
  const int port = net::local_port(holder);
  Process zero(train_command("job", {"--ddp_timeout", "5"}), rank_variables(0, 2, port));
  const ProcessResult result = zero.wait(std::chrono::seconds(60));
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_NE(result.err.find(std::to_string(port)), std::string::npos) << result.err;
}

}  // namespace
}  // namespace tandem::testing
