#include "tandem/core/memory_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "support/test_support.h"
#include "tandem/core/file.h"
#include "tandem/core/memory_usage.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;

// /proc and the mount points of a machine that there is not.
class FakeTree : public ::testing::Test {
 protected:
  void write(const fs::path& path, const std::string& text) {
    const fs::path file = root() / path.relative_path();
    fs::create_directories(file.parent_path());
    write_file(file, text);
  }
  void with_v2(const std::string& group) {
    write("/proc/self/cgroup", "0::" + group + "\n");
    write("/proc/self/mountinfo",
          "31 23 0:28 / /sys rw - sysfs sysfs rw\n"
          "32 31 0:29 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
  }
  void with_v1(const std::string& group, const std::string& part = "/") {
    write("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:" + group + "\n0::/\n");
    write("/proc/self/mountinfo",
          "35 31 0:32 " + part +
              " /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,cpu,memory\n");
  }
  fs::path root() const { return folder_.path(); }

 private:
  testing::TemporaryFolder folder_;
};

auto limit(const std::string& name, std::size_t bytes) {
  return AllOf(Field(&MemoryLimit::name, name), Field(&MemoryLimit::bytes, bytes));
}

TEST_F(FakeTree, EveryParentOfAGroupOfVersion2Counts) {
  with_v2("/kube.slice/pod7/app");
  write("/sys/fs/cgroup/kube.slice/memory.max", "9000000000\n");
  write("/sys/fs/cgroup/kube.slice/pod7/memory.max", "400000000\n");
  write("/sys/fs/cgroup/kube.slice/pod7/memory.swap.max", "0\n");
  write("/sys/fs/cgroup/kube.slice/pod7/app/memory.max", "max\n");
  write("/proc/meminfo", "MemTotal:  8000000 kB\nSwapTotal:  1000 kB\n");
  const auto limits = memory_limits(root());
  EXPECT_THAT(limits, ElementsAre(limit("memory.max of the cgroup /kube.slice/pod7", 400000000),
                                  limit("the memory of this machine", 8000000ul << 10),
                                  limit("memory.max of the cgroup /kube.slice", 9000000000)));
  EXPECT_EQ(limits[0].swap, 0u);
  EXPECT_EQ(limits[2].swap, 1000u << 10) << "without a limit the machine's swap is there for it";
}

TEST_F(FakeTree, AContainerSeesItsOwnGroupAsTheRoot) {
  with_v2("/");
  write("/sys/fs/cgroup/memory.max", "500000000\n");
  EXPECT_THAT(memory_limits(root()), ElementsAre(limit("memory.max of the cgroup /", 500000000)));
}

TEST_F(FakeTree, Version1) {
  with_v1("/slurm/job_3/step_0");
  write("/sys/fs/cgroup/memory/slurm/job_3/memory.limit_in_bytes", "700000000\n");
  write("/sys/fs/cgroup/memory/slurm/job_3/memory.memsw.limit_in_bytes", "900000000\n");
  write("/sys/fs/cgroup/memory/slurm/job_3/step_0/memory.limit_in_bytes", "9223372036854771712\n");
  const auto limits = memory_limits(root());
  EXPECT_THAT(limits,
              ElementsAre(limit("memory.limit_in_bytes of the cgroup /slurm/job_3", 700000000)));
  EXPECT_EQ(limits[0].swap, 200000000u);
}

// A container without a cgroup namespace: the path is the host's, the mount its own part of it.
TEST_F(FakeTree, Version1InAContainerThatSeesAPart) {
  with_v1("/docker/abc/inner", "/docker/abc");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "600000000\n");
  write("/sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "300000000\n");
  EXPECT_THAT(memory_limits(root()),
              ElementsAre(limit("memory.limit_in_bytes of the cgroup /inner", 300000000),
                          limit("memory.limit_in_bytes of the cgroup /", 600000000)));
}

TEST_F(FakeTree, NothingIsKnownOfAnEmptyTree) { EXPECT_TRUE(memory_limits(root()).empty()); }

TEST_F(FakeTree, BrokenFilesAreNoLimit) {
  with_v2("/a/../../..");
  write("/sys/fs/cgroup/memory.max", "");
  write("/proc/meminfo", "MemTotal: lots\n");
  EXPECT_TRUE(memory_limits(root()).empty());
}

TEST_F(FakeTree, KillsOfTheOwnGroupCount) {
  with_v2("/kube.slice/pod7");
  EXPECT_EQ(out_of_memory_kills(root()), 0u);
  write("/sys/fs/cgroup/kube.slice/memory.events", "oom 9\noom_kill 9\n");
  write("/sys/fs/cgroup/kube.slice/pod7/memory.events",
        "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n");
  EXPECT_EQ(out_of_memory_kills(root()), 2u);
  with_v1("/slurm/job_3");
  write("/sys/fs/cgroup/memory/slurm/job_3/memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
  EXPECT_EQ(out_of_memory_kills(root()), 1u);
}

TEST(MemoryLimits, ThisMachineHasMemory) {
  const auto limits = memory_limits();
  ASSERT_FALSE(limits.empty());
  EXPECT_GT(limits[0].bytes, 1u << 20);
}

TEST(MemoryLimits, OfTheAddressSpace) {
  EXPECT_GT(address_space(), 1u << 20);
  EXPECT_EXIT(
      {
        rlimit bound;
        bound.rlim_cur = bound.rlim_max = std::size_t{1} << 40;
        ::setrlimit(RLIMIT_AS, &bound);
        ::_exit(address_space_limit() == std::size_t{1} << 40 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

// Pages that one process alone has touched so far will be shared by all.
TEST(MemoryUsage, SharesOfLaterProcessesCountInAdvance) {
  MemoryUsage usage;
  usage.peak = 700;
  usage.shared = usage.shared_share = 400;
  EXPECT_EQ(usage.peak_share(), 700);
  EXPECT_EQ(usage.peak_share_of(4), 400);
  usage.shared_share = 100;
  EXPECT_EQ(usage.peak_share(), 400);
}

}  // namespace
}  // namespace tandem
