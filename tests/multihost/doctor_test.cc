// `tandem doctor --hostfile` on two hosts: its output when all is well, and when something is not.
#include <gmock/gmock.h>

#include <cstdlib>

#include "multihost/hosts.h"
#include "support/test_support.h"
#include "tandem/core/file.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

class DoctorOnHosts : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string reason = why_no_hosts(/*with_ssh=*/true);
    if (!reason.empty()) GTEST_SKIP() << "two hosts on one machine: " << reason;
    hosts_ = std::make_unique<TwoHosts>(folder_.path());
    write_file(folder_ / "hostfile", "node0:2\nnode1:2\n");
  }
  ProcessResult doctor(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {(fs::path(TANDEM_BINARY_DIR) / "bin" / "tandem").native(),
                                      "doctor",
                                      "-f",
                                      (folder_ / "hostfile").native(),
                                      "--output_dir",
                                      folder_.path().native()};
    words.insert(words.end(), more.begin(), more.end());
    // Whichever MPI has this machine's `mpirun`.
    fs::create_directories(folder_ / "bin");
    write_file(folder_ / "bin" / "mpirun", "#!/bin/sh\necho HYDRA build details:\n");
    fs::permissions(folder_ / "bin" / "mpirun", fs::perms::owner_all);
    return run(hosts_->node0.inside(words),
               {{"OMP_NUM_THREADS", "1"},
                {"PATH", (folder_ / "bin").native() + ":" + std::getenv("PATH")}});
  }

  TemporaryFolder folder_;
  std::unique_ptr<TwoHosts> hosts_;
};

TEST_F(DoctorOnHosts, AllIsWell) {
  hosts_->node1.start_sshd();
  const ProcessResult result = doctor({"--port", "29500"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("host node0     2 ranks, this host (10.77.0.10)"),
                    HasSubstr("host node1     2 ranks, 10.77.0.11, reached from 10.77.0.10"),
                    HasSubstr("ssh works"), HasSubstr("clock differs by"),
                    HasSubstr("reaches 10.77.0.10 port 29500 here"),
                    EndsWith("tandem doctor: no problems found\n")));
}

TEST_F(DoctorOnHosts, NoSshServer) {
  const ProcessResult result = doctor();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, AllOf(HasSubstr("problem: host node1: ssh does not get in: "),
                                HasSubstr("refused"), HasSubstr("fix: 'ssh node1 true' must work"),
                                EndsWith("tandem doctor: 1 problem\n")));
}

TEST_F(DoctorOnHosts, AHostThatDoesNotAnswer) {
  hosts_->node1.shell("ip link set wire down");
  const ProcessResult result = doctor({"--timeout", "2"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("problem: host node1: ssh does not get in: "));
}

// Packets that leave node0's port are dropped, as a firewall does.
TEST_F(DoctorOnHosts, AFirewallBeforeThePort) {
  hosts_->node1.start_sshd();
  const ProcessResult rule = run(hosts_->node0.inside(
      {"ip", "rule", "add", "priority", "1", "ipproto", "tcp", "sport", "29555", "blackhole"}));
  if (rule.exit_code != 0) GTEST_SKIP() << "this kernel has no rules by port: " << rule.err;
  const ProcessResult result = doctor({"--port", "29555"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("problem: host node1: it cannot connect to 10.77.0.10 port 29555"),
                    HasSubstr("firewall"), EndsWith("tandem doctor: 1 problem\n")));
  EXPECT_EQ(doctor({"--port", "29556"}).exit_code, 0);
}

TEST_F(DoctorOnHosts, AnotherClockAndAnotherTandem) {
  hosts_->node1.start_sshd();
  const fs::path clock = folder_ / "date";
  write_file(clock, "#!/bin/sh\necho 1000000000.5\n");
  fs::permissions(clock, fs::perms::owner_all);
  const fs::path tandem = fs::path(TANDEM_BINARY_DIR) / "bin" / "tandem";
  write_file(folder_ / "old", "#!/bin/sh\necho tandem 0.0.1\n");
  fs::permissions(folder_ / "old", fs::perms::owner_all);
  // Other files under these names, on that host only. sshd started its shells from the host's own
  // view.
  hosts_->node1.shell(fmt::format("mount --bind {} $(command -v date) && mount --bind {} {}",
                                  clock.native(), (folder_ / "old").native(), tandem.native()));
  const ProcessResult result = doctor();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("problem: host node1: its clock differs by -"), HasSubstr("NTP"),
                    HasSubstr("problem: host node1: it has tandem 0.0.1, this host tandem"),
                    EndsWith("tandem doctor: 2 problems\n")));
}

}  // namespace
}  // namespace tandem::testing
