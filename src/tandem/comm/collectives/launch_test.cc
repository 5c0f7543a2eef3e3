// Real launchers start a small program that bootstraps through them: Hydra (PMI-1), Open MPI (its
// variables and a fixed port), and no launcher at all. A missing launcher is skipped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "support/ports.h"
#include "support/sanitizers.h"
#include "support/test_support.h"
#include "tandem/core/error.h"

namespace tandem::comm {
namespace {

using tandem::testing::free_port;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

struct Result {
  std::string output;
  int exit_code = 0;
};

Result shell(const std::string& command) {
  Result result;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen((command + " 2>&1").c_str(), "r"),
                                                   [](FILE*) { return 0; });
  std::array<char, 4096> bytes;
  for (std::size_t count = 0;
       (count = std::fread(bytes.data(), 1, bytes.size(), pipe.get())) > 0;) {
    result.output.append(bytes.data(), count);
  }
  const int status = ::pclose(pipe.get());
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

bool installed(const std::string& program) { return shell("command -v " + program).exit_code == 0; }

// The probe sees only the launcher's variables, not those of the environment of the tests.
const std::string kClean =
    "env -u RANK -u WORLD_SIZE -u MASTER_ADDR -u MASTER_PORT -u PMI_RANK -u PMI_SIZE -u PMI_FD ";
const std::string kProbe = TANDEM_LAUNCH_PROBE;

void expect_all_ranks(const Result& result, int size, const std::string& source) {
  EXPECT_EQ(result.exit_code, 0) << result.output;
  for (int rank = 0; rank < size; ++rank) {
    EXPECT_THAT(result.output,
                HasSubstr(fmt::format("rank {} of {} local {} of {} sum {} source {}", rank, size,
                                      rank, size, size * (size - 1) / 2, source)));
  }
}

class Hydra : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!installed("mpiexec.hydra"))
      GTEST_SKIP() << "mpiexec.hydra is not installed (apt install mpich)";
  }
};

TEST_F(Hydra, RanksMeetThroughItsProcessManager) {
  for (const int size : {1, 2, 4}) {
    const Result result = shell(kClean + fmt::format("mpiexec.hydra -n {} {}", size, kProbe));
    expect_all_ranks(result, size, "Hydra");
  }
}

// No port is agreed beforehand, so two jobs on one host do not interfere.
TEST_F(Hydra, TwoJobsAtOnceOnOneHost) {
  std::array<Result, 2> results;
  std::thread other([&] { results[1] = shell(kClean + "mpiexec.hydra -n 2 " + kProbe); });
  results[0] = shell(kClean + "mpiexec.hydra -n 3 " + kProbe);
  other.join();
  expect_all_ranks(results[0], 3, "Hydra");
  expect_all_ranks(results[1], 2, "Hydra");
}

// Hydra kills the other ranks within half a millisecond of a death (with SIGKILL, with or without
// -disable-auto-cleanup), so their last message may be lost. Hydra's own message names the killed
// process.
TEST_F(Hydra, ADeadRankEndsTheJob) {
  const Result result =
      shell(kClean + fmt::format("timeout 20 mpiexec.hydra -n 3 {} die 1", kProbe));
  EXPECT_NE(result.exit_code, 0);
  EXPECT_NE(result.exit_code, 124) << "still running after 20 s";
  EXPECT_THAT(result.output, AnyOf(AllOf(HasSubstr("rank 1 (host "), HasSubstr("died")),
                                   HasSubstr("Killed (signal 9)")));
}

// Hydra would wait for the stopped rank forever: the survivors ask it to end the job.
TEST_F(Hydra, AStoppedRankEndsTheJob) {
  const Result result =
      shell(kClean + fmt::format("timeout 20 mpiexec.hydra -n 3 {} stop 1", kProbe));
  EXPECT_NE(result.exit_code, 0);
  EXPECT_NE(result.exit_code, 124) << "still running after 20 s";
  EXPECT_THAT(result.output, HasSubstr("rank 1 (host "));
}

// Before the bootstrap no rank has a connection that could show the stop, and Hydra does not report
// which rank is missing. A stopped shell has not even become the rank's program.
TEST_F(Hydra, ARankThatIsStoppedBeforeTheMeetingIsNamed) {
  const Result result = shell(
      kClean +
      fmt::format("timeout 30 mpiexec.hydra -n 3 sh -c 'test $PMI_RANK = 1 && kill -STOP $$; {}'",
                  kProbe));
  EXPECT_NE(result.exit_code, 0);
  EXPECT_NE(result.exit_code, 124) << "still running after 30 s";
  EXPECT_THAT(result.output, ContainsRegex("rank 1 \\(process [0-9]+ of host .*stopped"));
}

// The others have connected, rank 1 has completed its handshake, and rank 0 can no longer answer.
// Rank 2 is a program that enters the manager's barrier and then stops rank 0: until it sends its
// data to rank 0, rank 0 answers no rank.
TEST_F(Hydra, RankZeroIsNamedWhenItIsStoppedBeforeItAnswers) {
  const testing::TemporaryFolder folder;
  const std::string process = (folder.path() / "process").native();
  const std::string script = (folder.path() / "rank").native();
  std::ofstream(script) << fmt::format(
      R"(#!/bin/bash
if test $PMI_RANK = 0; then echo $$ > {0}; fi
if test $PMI_RANK != 2; then exec {1}; fi
send() {{ echo "$1" >&$PMI_FD && read -r answer <&$PMI_FD; }}
send 'cmd=init pmi_version=1 pmi_subversion=1'
send cmd=barrier_in
sleep 1
kill -STOP $(cat {0})
exec sleep 60
)",
      process, kProbe);
  const Result result =
      shell(kClean + fmt::format("timeout 50 mpiexec.hydra -n 3 bash {}", script));
  EXPECT_NE(result.exit_code, 0);
  EXPECT_NE(result.exit_code, 124) << "still running after 50 s";
  EXPECT_THAT(result.output,
              ContainsRegex("rank 0 \\(process [0-9]+ of host .*it has been stopped for"));
}

TEST_F(Hydra, ARankThatNeverComesToTheMeetingIsNamed) {
  const Result result = shell(
      kClean +
      fmt::format("timeout 50 mpiexec.hydra -n 3 sh -c 'test $PMI_RANK = 1 && exec sleep 60; {}'",
                  kProbe));
  EXPECT_NE(result.exit_code, 0);
  EXPECT_NE(result.exit_code, 124) << "still running after 50 s";
  EXPECT_THAT(result.output, ContainsRegex("rank 1 \\(process [0-9]+ of host .*has not connected"));
}

// A shell between Hydra and the rank hides the death from Hydra until the shell ends, too: the
// survivors name the rank, and the job ends.
TEST_F(Hydra, ADeathThatHydraDoesNotSeeIsNamedByTheSurvivors) {
  const Result result = shell(
      kClean +
      fmt::format("timeout 20 mpiexec.hydra -n 3 sh -c '{} die 1; echo exit $?; sleep 5'", kProbe));
  EXPECT_NE(result.exit_code, 124) << "still running after 20 s";
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("rank 1 (host "), HasSubstr("died"), HasSubstr("exit 137")));
}

TEST(OpenMpi, RanksMeetAtMasterPort) {
  if (!installed("mpirun.openmpi"))
    GTEST_SKIP() << "mpirun.openmpi is not installed (apt install openmpi-bin)";
  const Result result = shell(
      kClean +
      fmt::format("mpirun.openmpi --allow-run-as-root --oversubscribe -n 3 -x MASTER_PORT={} {}",
                  free_port(), kProbe));
  expect_all_ranks(result, 3, "Open MPI");
}

TEST(ByHand, RanksMeetAtMasterPort) {
  const int port = free_port();
  const auto start = [&](int rank) {
    return shell(kClean +
                 fmt::format("RANK={} WORLD_SIZE=2 MASTER_PORT={} {}", rank, port, kProbe));
  };
  Result other;
  std::thread thread([&] { other = start(1); });
  Result both = start(0);
  thread.join();
  both.output += other.output;
  expect_all_ranks(both, 2, "RANK and WORLD_SIZE");
  EXPECT_EQ(other.exit_code, 0);
}

TEST(ByHand, ADeadRankEndsTheOtherWithItsName) {
  const int port = free_port();
  const auto start = [&](int rank) {
    return shell(kClean +
                 fmt::format("RANK={} WORLD_SIZE=2 MASTER_PORT={} {} die 0", rank, port, kProbe));
  };
  Result killed;
  std::thread thread([&] { killed = start(0); });
  const Result survivor = start(1);
  thread.join();
  EXPECT_EQ(survivor.exit_code, 200);
  EXPECT_THAT(survivor.output, AllOf(HasSubstr("rank 0 (host "), HasSubstr("died")));
}

// How a launcher, or a user, assigns ranks to three processes of one script.
struct Starter {
  const char* name;
  const char* rank;       // the variable with the rank
  const char* variables;  // the other variables; {} is a port
  int stopped;            // the rank that stops before it executes the program
};

void PrintTo(const Starter& one, std::ostream* out) { *out << one.name; }

class StoppedBeforeTheMeeting : public ::testing::TestWithParam<Starter> {};

TEST_P(StoppedBeforeTheMeeting, IsNamedByTheOthers) {
  const Starter& starter = GetParam();
  const testing::TemporaryFolder folder;
  const std::string script = (folder.path() / "ranks").native();
  std::ofstream(script) << fmt::format(
      R"(for r in 0 1 2; do
  env {0}=$r bash -c 'test $0 = {1} && kill -STOP $$; exec {2}' $r & process[r]=$!
done
for r in 0 1 2; do
  test $r = {1} || wait ${{process[r]}} || echo rank $r: exit code $?
done
kill -KILL ${{process[{1}]}}
)",
      starter.rank, starter.stopped, kProbe);
  const std::string variables = fmt::format(fmt::runtime(starter.variables), free_port());
  const Result result = shell(kClean + variables + " timeout 60 bash " + script);
  EXPECT_THAT(result.output,
              AllOf(ContainsRegex(fmt::format("rank {} \\(process [0-9]+ of host .*stopped for",
                                              starter.stopped)),
                    HasSubstr("rank 2: exit code 200")));
}

INSTANTIATE_TEST_SUITE_P(
    All, StoppedBeforeTheMeeting,
    ::testing::Values(
        Starter{"ByHandRank0", "RANK", "WORLD_SIZE=3 MASTER_PORT={}", 0},
        Starter{"ByHandRank1", "RANK", "WORLD_SIZE=3 MASTER_PORT={}", 1},
        Starter{"Slurm", "SLURM_PROCID", "SLURM_NTASKS=3 SLURM_STEP_NODELIST=n1 MASTER_PORT={}", 0},
        Starter{"OpenMpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE=3 MASTER_PORT={}", 0}),
    [](const auto& instance) { return instance.param.name; });

// One of two jobs of one shell is stopped. Rank 1 of the other job arrives later than the allowed
// silence of a process.
TEST(ByHand, AStoppedRankOfAnotherJobIsNoneOfThis) {
  const testing::TemporaryFolder folder;
  const std::string script = (folder.path() / "jobs").native();
  std::ofstream(script) << fmt::format(R"(export WORLD_SIZE=2
RANK=1 MASTER_PORT={0} bash -c 'kill -STOP $$' & stopped=$!
export MASTER_PORT={1}
RANK=0 {2} & first=$!
sleep 4
RANK=1 {2}
wait $first; code=$?
kill -KILL $stopped
exit $code
)",
                                       free_port(), free_port(), kProbe);
  expect_all_ranks(shell(kClean + "timeout 60 bash " + script), 2, "RANK and WORLD_SIZE");
}

// ---- the library that carries the messages ----

bool built(std::string_view plugin) {
  return std::string_view(TANDEM_BUILT_PLUGINS).find(plugin) != std::string_view::npos;
}

struct Backend {
  std::string name;
  std::string plugin;
  std::string program;   // program of the launcher
  std::string launch;    // command line before the probe of one group of ranks; {} is their number
  std::string variable;  // how a variable is set for a group
  std::string argument;  // argument of the probe
  std::string expected;  // expected in the description of the ranks
};

void PrintTo(const Backend& one, std::ostream* out) { *out << one.name; }

class Backends : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    const Backend& backend = GetParam();
    if (!built(backend.plugin)) GTEST_SKIP() << "the plugin " << backend.plugin << " is not built";
    if (!installed(backend.program)) GTEST_SKIP() << backend.program << " is not installed";
    if (backend.argument == "mpi") tandem::testing::expect_leaks_of_mpi();
  }
  // `size` ranks on each of the nodes, which exist only by name.
  static std::string command(const std::vector<std::string>& nodes, int size,
                             const std::string& deed = "") {
    const Backend& backend = GetParam();
    std::string text = kClean + "timeout 30 " + backend.program;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const std::string node =
          fmt::format(fmt::runtime(backend.variable), "TANDEM_NODE_ID", nodes[i]);
      text += fmt::format("{} {} {} {} {} {}", i == 0 ? "" : " :",
                          fmt::format(fmt::runtime(backend.launch), size), node, kProbe,
                          backend.argument, deed);
    }
    return text;
  }
};

TEST_P(Backends, CarryCollectivesOnOneNodeAndOnTwo) {
  const Result one = shell(command({"a"}, 2));
  EXPECT_EQ(one.exit_code, 0) << one.output;
  EXPECT_THAT(one.output, AllOf(HasSubstr("rank 1 of 2 local 1 of 2 sum 1"),
                                HasSubstr("2 ranks on 1 node"), HasSubstr(GetParam().expected)));
  const Result two = shell(command({"a", "b"}, 2));
  EXPECT_EQ(two.exit_code, 0) << two.output;
  EXPECT_THAT(two.output, AllOf(HasSubstr("rank 3 of 4 local 1 of 2 sum 6"),
                                HasSubstr("4 ranks on 2 nodes"), HasSubstr(GetParam().expected)));
}

TEST_P(Backends, NameBothSidesOfADisagreement) {
  const Result result = shell(command({"a", "b"}, 1, "differ 1"));
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.output, AllOf(HasSubstr("the ranks disagree"), HasSubstr("of 100001 float32"),
                                   HasSubstr("of 100000 float32")));
}

INSTANTIATE_TEST_SUITE_P(
    All, Backends,
    ::testing::Values(
        Backend{"Mpich", "mpich", "mpiexec.hydra", "-n {}", "-env {} {}", "mpi", "MPICH Version"},
        Backend{"OpenMpi", "openmpi", "mpirun.openmpi --allow-run-as-root --oversubscribe", "-n {}",
                "-x {}={}", "mpi", "Open MPI v"},
        Backend{"Gloo", "gloo", "mpiexec.hydra", "-n {}", "-env {} {}", "gloo", "Gloo, tcp"},
        Backend{"Ofi", "ofi", "mpiexec.hydra", "-n {} -env CCL_ATL_TRANSPORT ofi", "-env {} {}",
                "ccl", "libfabric 1."},
        Backend{"OfiShm", "ofi", "mpiexec.hydra",
                "-n {} -env CCL_ATL_TRANSPORT ofi -env FI_PROVIDER shm", "-env {} {}", "ccl",
                "provider shm"}),
    [](const auto& instance) { return instance.param.name; });

// Intel MPI has MPICH's binary interface; its own mpirun and library, from PyPI.
TEST(Backend, IntelMpi) {
  const std::string root = std::string(TANDEM_SOURCE_DIR) + "/build/test-data/venv";
  if (!built("mpich") || !installed(root + "/bin/mpirun"))
    GTEST_SKIP() << "needs impi-rt (scripts/fetch_python_packages.sh) and the plugin mpich";
  tandem::testing::expect_leaks_of_mpi();
  const Result result = shell(
      kClean + fmt::format("timeout 60 env PATH={0}/bin:$PATH FI_PROVIDER_PATH={0}/lib "
                           "CCL_MPI_LIBRARY_PATH={0}/lib/libmpi.so.12 {0}/bin/mpirun -n 2 {1} mpi",
                           root, kProbe));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("rank 1 of 2"), HasSubstr("Intel(R) MPI Library")));
}

TEST(Backend, MpiWithoutItsLauncherIsAnError) {
  const Result by_hand = shell(kClean + "RANK=0 WORLD_SIZE=2 " + kProbe + " mpi");
  EXPECT_EQ(by_hand.exit_code, 1);
  EXPECT_THAT(by_hand.output,
              HasSubstr("the communication backend mpi needs ranks that were started by an MPI"));
  if (!built("openmpi")) return;
  const Result other =
      shell(kClean + "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 timeout 30 " + kProbe + " mpi");
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.output, AllOf(HasSubstr("rank 0 of 2"), HasSubstr("MPI reports rank 0 of 1"),
                                  HasSubstr("mpirun of the MPI library")));
}

TEST(Backend, AMissingPluginOrLibraryNamesThePackage) {
  // A copy of the program without plugins next to it.
  const std::string alone = ::testing::TempDir() + "launch_probe_alone";
  ASSERT_EQ(shell("cp " + kProbe + " " + alone).exit_code, 0);
  const Result plugin = shell(kClean + "PMI_RANK=0 PMI_SIZE=2 " + alone + " mpi");
  EXPECT_EQ(plugin.exit_code, 1);
  EXPECT_THAT(plugin.output,
              AllOf(HasSubstr("tandem_mpich.so"), HasSubstr("apt install libmpich-dev"),
                    HasSubstr("TANDEM_PLUGIN_PATH")));
  shell("rm " + alone);
  if (!built("mpich")) return;
  const Result library =
      shell(kClean + "PMI_RANK=0 PMI_SIZE=2 CCL_MPI_LIBRARY_PATH=/nowhere/libmpi.so.12 " + kProbe +
            " mpi");
  EXPECT_EQ(library.exit_code, 1);
  EXPECT_THAT(library.output, AllOf(HasSubstr("/nowhere/libmpi.so.12"), HasSubstr("libmpich12"),
                                    HasSubstr("impi-rt")));
}

}  // namespace
}  // namespace tandem::comm
