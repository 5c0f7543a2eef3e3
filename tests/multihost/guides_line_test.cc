// The line of the guides, word for word, on two hosts: mpirun of MPICH and of Intel MPI reaches the
// second one through ssh, and the weights are the same bits as from one rank on one host.
#include <csignal>
#include <cstdlib>
#include <thread>

#include "e2e/job.h"
#include "multihost/hosts.h"
#include "support/mpi_program.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

// The words after "tandem run_qa" in the guides' line, for a job of four shards and four steps.
std::string job(const std::string& output_dir, const std::string& more = "") {
  return fmt::format(
      "tandem run_qa --model_name_or_path {0}/model --train_file {0}/train.json --do_train "
      "--max_train_samples 40 --per_device_train_batch_size 2 --learning_rate 1e-3 --max_steps 4 "
      "--max_seq_length 128 --doc_stride 32 --save_strategy no --output_dir {1} --no_cuda "
      "--ddp_backend ccl --use_ipex --bf16 {2}",
      kDemo.native(), output_dir, more);
}

class GuidesLine : public JobTest {
 protected:
  void SetUp() override {
    const std::string reason = why_no_hosts(/*with_ssh=*/true);
    if (!reason.empty()) GTEST_SKIP() << "two hosts on one machine: " << reason;
    fs::create_directories(path("bin"));
    fs::create_symlink(kProgram, path("bin") / "tandem");
  }

  // The names `mpirun` and `tandem` mean these programs. Hydra starts its proxy from the folder in
  // which it was found itself.
  void use_launcher(const fs::path& mpirun) {
    search_path_ = path("bin").native() + ":" + std::getenv("PATH");
    fs::create_symlink(mpirun, path("bin") / "mpirun");
    for (const auto* daemon : {"hydra_pmi_proxy", "mpiexec.hydra", "hydra_bstrap_proxy"}) {
      const fs::path program = mpirun.parent_path() / daemon;
      if (fs::exists(program)) fs::create_symlink(program, path("bin") / daemon);
    }
  }

  ProcessResult run_on(const Host& host, const std::string& line, Variables variables = {}) {
    write_file(path("hostfile"), "node0\nnode1\n");
    variables["PATH"] = search_path_;
    const ProcessResult result =
        testing::run(host.inside({"sh", "-c", "cd " + path("").native() + " && exec " + line}),
                     variables, std::chrono::seconds(60));
    EXPECT_EQ(result.exit_code, 0) << line << "\n" << result.out << result.err;
    return result;
  }

  static constexpr auto kTwoHostsLine =
      "mpirun -f hostfile -n 4 -ppn 2 -genv OMP_NUM_THREADS=1 -genv CCL_WORKER_COUNT=1 ";

  std::string search_path_ = std::getenv("PATH");
};

void expect_two_nodes(const ProcessResult& result) {
  EXPECT_NE(result.out.find("4 ranks on 2 nodes: node0 (0, 1), node1 (2, 3)"), std::string::npos)
      << result.out << result.err;
}

TEST_F(GuidesLine, MpichStartsTheSameBitsOnOneAndTwoHosts) {
  const std::string mpich = find_program("mpiexec.hydra");
  if (mpich.empty()) GTEST_SKIP() << "needs mpiexec.hydra (package mpich)";
  use_launcher(fs::canonical(mpich));
  TwoHosts hosts(path(""));
  hosts.node0.start_sshd();
  hosts.node1.start_sshd();

  run_on(hosts.node0, "env OMP_NUM_THREADS=1 " + job("one", "--logical_shards 4"),
         {{"PATH", search_path_}});
  run_on(hosts.node0, "mpirun -n 2 -genv OMP_NUM_THREADS=1 " + job("two", "--logical_shards 4"));
  run_on(hosts.node0, "mpirun -n 4 -genv OMP_NUM_THREADS=1 " + job("four"));
  expect_two_nodes(run_on(hosts.node0, kTwoHostsLine + job("hosts")));
  expect_two_nodes(run_on(hosts.node0, kTwoHostsLine + job("master"), {{"MASTER_ADDR", "node0"}}));
  const std::string expected = weights("one");
  for (const auto* other : {"two", "four", "hosts", "master"}) {
    EXPECT_TRUE(weights(other) == expected) << "the weights of '" << other << "' are others";
  }
  for (const Host* host : {&hosts.node0, &hosts.node1}) {
    EXPECT_EQ(host->processes(), std::vector<std::string>());
    EXPECT_EQ(host->sockets(), "");
  }
}

TEST_F(GuidesLine, IntelMpiToo) {
  const fs::path root = fs::path(TANDEM_SOURCE_DIR) / "build" / "test-data" / "venv";
  if (!fs::exists(root / "bin" / "mpirun")) {
    GTEST_SKIP() << "needs Intel MPI (package impi-rt from PyPI, fetched by "
                    "scripts/fetch_python_packages.sh)";
  }
  use_launcher(root / "bin" / "mpirun");
  search_path_ = path("bin").native() + ":" + (root / "bin").native() + ":" + std::getenv("PATH");
  TwoHosts hosts(path(""));
  hosts.node0.start_sshd();
  hosts.node1.start_sshd();
  run_on(hosts.node0, "env OMP_NUM_THREADS=1 " + job("one", "--logical_shards 4"));
  const Variables variables = {{"FI_PROVIDER_PATH", (root / "lib").native()}};
  expect_two_nodes(run_on(hosts.node0, kTwoHostsLine + job("hosts"), variables));
  EXPECT_TRUE(weights("hosts") == weights("one"));
}

// tandem's own mpirun, where no MPI is installed.
TEST_F(GuidesLine, TandemsMpirunToo) {
  search_path_ = path("bin").native() + ":" + std::getenv("PATH");
  write_file(path("bin") / "mpirun", "#!/bin/sh\nexec tandem mpirun \"$@\"\n");
  fs::permissions(path("bin") / "mpirun", fs::perms::owner_all);
  TwoHosts hosts(path(""));
  hosts.node0.start_sshd();
  hosts.node1.start_sshd();
  run_on(hosts.node0, "env OMP_NUM_THREADS=1 " + job("one", "--logical_shards 4"));
  expect_two_nodes(run_on(hosts.node0, kTwoHostsLine + job("hosts")));
  EXPECT_TRUE(weights("hosts") == weights("one"));
  for (const Host* host : {&hosts.node0, &hosts.node1}) {
    EXPECT_EQ(host->processes(), std::vector<std::string>());
    EXPECT_EQ(host->sockets(), "");
  }
}

// A program of MPICH that a command of tandem's starts, and a job whose rank or host there is lost.
TEST_F(GuidesLine, TandemsMpirunRunsProgramsOfMpich) {
  const std::string pi = build_mpi_program(path("").native());
  if (pi.empty()) GTEST_SKIP() << "needs mpicc.mpich (packages mpich, libmpich-dev)";
  search_path_ = path("bin").native() + ":" + std::getenv("PATH");
  TwoHosts hosts(path(""));
  // UCX looks in /sys for networks that are up, which appear there a moment late; its shared memory
  // cannot distinguish two hosts of one machine.
  for (const Host* host : {&hosts.node0, &hosts.node1}) {
    host->shell(
        "mount -t sysfs sysfs /sys; for i in $(seq 100); do grep -qx up "
        "/sys/class/net/wire/operstate && exit 0; sleep 0.1; done; exit 1");
  }
  hosts.node0.start_sshd();
  hosts.node1.start_sshd();
  const std::string line =
      "env UCX_TLS=tcp,self UCX_NET_DEVICES=wire tandem mpirun -l -f hostfile -n 4 -ppn 2 "
      "sh -c ': tandem; exec \"$@\"' sh " +
      pi;
  const auto result = run_on(hosts.node0, line);
  ASSERT_NE(result.out.find("[3] rank 3 of 4: pi 3.1416"), std::string::npos) << result.out;

  const auto begin = [&] {
    auto process = std::make_unique<Process>(
        hosts.node0.inside({"sh", "-c", "cd " + path("").native() + " && exec " + line + " wait"}),
        Variables{{"PATH", search_path_}});
    // All of them: a rank may be up while others still connect to it.
    const auto all_up = [&] {
      const std::string out = process->out_so_far();
      return out.find("[0] up") != std::string::npos && out.find("[1] up") != std::string::npos &&
             out.find("[2] up") != std::string::npos && out.find("[3] up") != std::string::npos;
    };
    for (int i = 0; i < 3000 && !all_up(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return process;
  };
  auto killed = begin();
  hosts.node1.shell("kill -9 $(pgrep -n -x pi)");
  const auto dead = killed->wait(std::chrono::seconds(30));
  EXPECT_EQ(dead.exit_code, 137) << dead.err;
  EXPECT_NE(dead.err.find("on node1 was killed by SIGKILL"), std::string::npos) << dead.err;

  auto silent = begin();
  hosts.node1.shell("ip link set wire down");
  const auto lost = silent->wait(std::chrono::seconds(50));
  EXPECT_EQ(lost.exit_code, 200) << lost.err;
  EXPECT_NE(lost.err.find("host node1 with ranks 2, 3 is lost: "), std::string::npos) << lost.err;
  EXPECT_EQ(hosts.node0.processes(), std::vector<std::string>());
}

}  // namespace
}  // namespace tandem::testing
