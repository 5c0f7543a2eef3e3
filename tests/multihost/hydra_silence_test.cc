// mpirun of MPICH over a link that falls silent while its job trains.
#include <gmock/gmock.h>

#include "e2e/job.h"
#include "multihost/hosts.h"
#include "multihost/slow_cable.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class HydraOverASilentLink : public JobTest {
 protected:
  void SetUp() override {
    for (const std::string& reason : {why_no_hosts(/*with_ssh=*/true), SlowCable::why_not()})
      if (!reason.empty()) GTEST_SKIP() << "two hosts on one machine: " << reason;
    if (find_program("mpiexec.hydra").empty())
      GTEST_SKIP() << "needs mpiexec.hydra (package mpich)";
  }
  static const Host& unplugged(const Host& host) {
    host.shell("ip link del wire");
    return host;
  }
  // Two ranks on each host, and more steps than there will be time for.
  Words line() const {
    return with(with({"mpiexec.hydra", "-hosts", "node0,node1", "-n", "4", "-ppn", "2", "-genv",
                      "OMP_NUM_THREADS", "1"},
                     train_command("job")),
                {"--max_steps", "100000", "--save_strategy", "no", "--report_to", "none"});
  }
};

// mpirun waits for all ranks. Those on the other side cannot report its end, and TCP gives up after
// a quarter of an hour, so the ranks on its host must ask it to end the job.
TEST_F(HydraOverASilentLink, MpirunEndsWithTheFailure) {
  TwoHosts hosts(path(""));
  SlowCable cable({unplugged(hosts.node0), "wire", "10.77.0.10/24"},
                  {hosts.node1, "wire", "10.77.0.11/24"}, 1e9);
  hosts.node0.start_sshd();
  hosts.node1.start_sshd();
  Process mpirun(hosts.node0.inside(line()));
  ASSERT_TRUE(prints(mpirun, "/100000 ["));
  cable.lose(SlowCable::Loses::kEverything);
  const auto silent = std::chrono::steady_clock::now();
  const ProcessResult ended = mpirun.wait(std::chrono::seconds(60));
  const std::chrono::duration<double> delay = std::chrono::steady_clock::now() - silent;
  RecordProperty("seconds", fmt::format("{:.2f}", delay.count()));
  EXPECT_LT(delay.count(), 3 + 10) << "the promise is 3 s, on a machine with nothing else to do";
  EXPECT_EQ(ended.exit_code, 200) << ended.out << ended.err;
  EXPECT_THAT(unwrapped(ended.out + ended.err),
              AllOf(HasSubstr("(host node1, pid"),
                    HasSubstr("died: its host has answered nothing for 2.")));
  // mpirun leaves its ssh, and what that has started on the other host, which both wait for TCP.
  for (const Host* host : {&hosts.node0, &hosts.node1}) {
    for (const std::string& left : host->processes())
      EXPECT_EQ(left.find("run_qa"), std::string::npos) << left;
  }
}

}  // namespace
}  // namespace tandem::testing
