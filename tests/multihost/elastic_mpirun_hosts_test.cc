// Elastic jobs on two hosts under mpirun. One test must kill a rank before it has joined the job,
// which a busy machine may prevent.
#include <csignal>

#include "multihost/elastic_hosts.h"

namespace tandem::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ElasticMpirunHosts : public ElasticHosts {
 protected:
  void SetUp() override {
    const std::string reason = why_no_hosts(/*with_ssh=*/true);
    if (!reason.empty()) GTEST_SKIP() << "two hosts on one machine: " << reason;
    ElasticHosts::SetUp();
  }
  // A rank on each host; mpirun's output is agents_[0]'s.
  void mpirun() {
    hosts_->node0.start_sshd();
    hosts_->node1.start_sshd();
    write_file(path("hostfile"), "node0\nnode1\n");
    const Words line = {kProgram, "mpirun", "-f",    path("hostfile").native(), "-n",     "2",
                        "-ppn",   "1",      "-genv", "OMP_NUM_THREADS=1",       kProgram, "run_qa"};
    agents_[0] = std::make_unique<Process>(host(0).inside(with(line, job_flags("job", kSteps))));
  }
};

// A rank of the other host is started again; then that host is lost.
TEST_F(ElasticMpirunHosts, LostRanksAndHostsDoNotDisturbTheOthers) {
  mpirun();
  ASSERT_TRUE(printed(*agents_[0], "2 of 2 workers continue"));
  ASSERT_TRUE(printed(*agents_[0], fmt::format("/{} [", kSteps)));
  host(1).shell("pkill -KILL -n -f 'tandem run_q[a] '");  // the newest computes
  ASSERT_TRUE(printed(*agents_[0], "worker 0 is back"));
  lose(1);
  ASSERT_TRUE(printed(*agents_[0], "without the node at"));
  EXPECT_THAT(end(0).err, HasSubstr("the job has finished without them"));
  expect_bits_of_calm_job(kSteps);
}

// The job begins with all ranks: one that ends whenever it is started ends it, on all hosts.
TEST_F(ElasticMpirunHosts, ARankThatNeverComesEndsTheJob) {
  mpirun();
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (agents_[0]->running() && std::chrono::steady_clock::now() < limit) {
    // Many scans in one shell: the rank must end before it has joined, within milliseconds.
    host(1).shell(
        "for scan in $(seq 100); do for file in $(grep -lsz ^TANDEM_AGENT= /proc/[0-9]*/environ); "
        "do "
        "file=${file#/proc/}; kill -KILL ${file%/environ} 2> /dev/null; done; done; true");
  }
  const ProcessResult result = end(0, 128 + SIGKILL);
  EXPECT_THAT(unwrapped(result.err), HasSubstr("it is not started again (it has ended 5 times "));
  EXPECT_THAT(result.err, Not(HasSubstr("continue after")));
}

}  // namespace
}  // namespace tandem::testing
