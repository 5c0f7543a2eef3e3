// Real launchers start a small program that meets through them: Hydra (PMI-1), Open MPI (its variables and a fixed port),
// and no launcher at all. A launcher that is not installed is skipped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "tandem/core/error.h"
#include "tandem/rendezvous/socket.h"

namespace tandem::comm {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
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

// The probe sees only the launcher's variables, not those of whatever runs the tests.
const std::string kClean =
    "env -u RANK -u WORLD_SIZE -u MASTER_ADDR -u MASTER_PORT -u PMI_RANK -u PMI_SIZE -u PMI_FD ";
const std::string kProbe = TANDEM_LAUNCH_PROBE;

int free_port() { return rendezvous::local_port(rendezvous::listen_tcp(true, 0)); }

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

// Nobody agrees on a port beforehand, so two jobs on one host do not meet each other.
TEST_F(Hydra, TwoJobsAtOnceOnOneHost) {
  std::array<Result, 2> results;
  std::thread other([&] { results[1] = shell(kClean + "mpiexec.hydra -n 2 " + kProbe); });
  results[0] = shell(kClean + "mpiexec.hydra -n 3 " + kProbe);
  other.join();
  expect_all_ranks(results[0], 3, "Hydra");
  expect_all_ranks(results[1], 2, "Hydra");
}

// Hydra kills the other ranks within half a millisecond of a death (with SIGKILL, -disable-auto-cleanup or not), so their last
// word is a matter of luck; its own message says which process was killed.
TEST_F(Hydra, ADeadRankEndsTheJob) {
  const Result result =
      shell(kClean + fmt::format("timeout 20 mpiexec.hydra -n 3 {} die 1", kProbe));
  EXPECT_NE(result.exit_code, 0);
  EXPECT_NE(result.exit_code, 124) << "still running after 20 s";
  EXPECT_THAT(result.output, AnyOf(AllOf(HasSubstr("rank 1 (host "), HasSubstr("died")),
                                   HasSubstr("Killed (signal 9)")));
}

// A shell between Hydra and the rank hides the death from Hydra: the survivors end by themselves, and name it.
TEST_F(Hydra, ADeathThatHydraDoesNotSeeIsNamedByTheSurvivors) {
  const Result result = shell(
      kClean + fmt::format("timeout 20 mpiexec.hydra -n 3 sh -c '{} die 1; echo exit $?'", kProbe));
  EXPECT_EQ(result.exit_code, 0) << "124: still running after 20 s";
  EXPECT_THAT(result.output, AllOf(HasSubstr("rank 1 (host "), HasSubstr("died"),
                                   HasSubstr("exit 200"), HasSubstr("exit 137")));
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

}  // namespace
}  // namespace tandem::comm
