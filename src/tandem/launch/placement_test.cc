// Placement on machines that hwloc makes from a description.
#include "tandem/launch/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::launch {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kTwoSockets = "pack:2 [numa] l3:1 core:4 pu:2";
constexpr const char* kSubNuma = "pack:2 numa:2 l3:1 core:6 pu:2";  // SNC2
constexpr const char* kNps4 = "pack:1 numa:4 l3:2 core:3 pu:1";     // NPS4, two CCX each
constexpr const char* kFlat = "pack:1 core:8 pu:1";                 // a virtual machine

Placement place(const Machine& machine, const std::string& nproc, bool own_job = true) {
  PlacementRequest request;
  request.nproc = nproc;
  request.own_job = own_job;
  return place_workers(machine, request);
}

std::vector<std::string> lists(const Placement& placement) {
  std::vector<std::string> lists;
  for (const auto& worker : placement.workers) lists.push_back(cpu_list(worker.cpus));
  return lists;
}

TEST(Placement, AutoIsOneWorkerForEachMemoryDomain) {
  for (const auto& [description, domains, threads] :
       {std::tuple{kTwoSockets, 2, 4}, {kSubNuma, 4, 6}, {kNps4, 4, 6}, {kFlat, 1, 8}}) {
    const Placement placement = place(described_machine(description), "auto");
    EXPECT_EQ(placement.workers.size(), static_cast<std::size_t>(domains)) << description;
    EXPECT_EQ(placement.workers.front().threads, threads) << description;
    EXPECT_THAT(placement.summary, HasSubstr("one for each memory domain"));
  }
}

TEST(Placement, WorkersGetWholeDomainsOrEqualShares) {
  const Machine machine = described_machine(kTwoSockets);
  EXPECT_THAT(lists(place(machine, "2")), ::testing::ElementsAre("0-7", "8-15"));
  EXPECT_THAT(lists(place(machine, "4")), ::testing::ElementsAre("0-3", "4-7", "8-11", "12-15"));
  EXPECT_THAT(lists(place(machine, "1")), ::testing::ElementsAre("0-15"));
  EXPECT_THAT(lists(place(described_machine(kFlat), "1")), ::testing::ElementsAre(""));
}

// Every core belongs to exactly one worker, whatever the numbers.
TEST(Placement, SharesDoNotOverlap) {
  for (const char* description : {kTwoSockets, kSubNuma, kNps4, kFlat}) {
    const Machine machine = described_machine(description);
    for (int count = 2; count <= machine.num_cores(); ++count) {
      std::vector<int> cpus;
      for (const auto& worker : place(machine, std::to_string(count)).workers) {
        EXPECT_THAT(worker.cpus, ::testing::Not(IsEmpty())) << description << ' ' << count;
        cpus.insert(cpus.end(), worker.cpus.begin(), worker.cpus.end());
      }
      std::sort(cpus.begin(), cpus.end());
      EXPECT_EQ(static_cast<int>(cpus.size()), machine.num_cpus()) << description << ' ' << count;
      EXPECT_EQ(std::unique(cpus.begin(), cpus.end()), cpus.end()) << description << ' ' << count;
    }
  }
}

TEST(Placement, OnlyWhatMayBeUsedCounts) {
  const Machine masked = described_machine(kTwoSockets, {0, 1, 2, 3, 8});
  EXPECT_EQ(masked.num_cores(), 3);
  EXPECT_THAT(lists(place(masked, "auto")), ::testing::ElementsAre("0-3", "8"));
  Machine one_socket = described_machine(kTwoSockets, {8, 9, 10, 11});
  EXPECT_EQ(place(one_socket, "auto").workers.size(), 1U);
  Machine quota = described_machine(kTwoSockets);
  quota.quota = 1.5;
  EXPECT_EQ(place(quota, "cpu").workers.size(), 2U);
  const Placement placement = place(quota, "auto");
  EXPECT_EQ(placement.workers.front().threads, 1);
  EXPECT_THAT(placement.workers.front().cpus, IsEmpty()) << "a quota is time, not cores";
  EXPECT_THAT(placement.summary, HasSubstr("quota 1.5 CPUs"));
}

TEST(Placement, TooManyThreadsAreCorrectedWithBothNumbers) {
  PlacementRequest request;
  request.nproc = "2";
  request.own_job = true;
  request.omp_threads = 240;
  const Placement placement = place_workers(described_machine(kTwoSockets), request);
  EXPECT_EQ(placement.workers.front().threads, 4);
  ASSERT_EQ(placement.warnings.size(), 1U);
  EXPECT_THAT(placement.warnings.front(),
              ::testing::AllOf(HasSubstr("OMP_NUM_THREADS is 240"), HasSubstr("4 cores")));
  request.omp_threads = 3;
  EXPECT_EQ(place_workers(described_machine(kTwoSockets), request).workers.front().threads, 3);
  request.omp_threads.reset();
  request.communication_threads = 1;
  EXPECT_EQ(place_workers(described_machine(kTwoSockets), request).workers.front().threads, 3);
}

TEST(Placement, OtherProgramsGetWhatTorchrunGives) {
  const Machine machine = described_machine(kTwoSockets);
  const Placement two = place(machine, "2", false);
  EXPECT_EQ(two.workers.front().threads, 1);
  EXPECT_THAT(two.workers.front().cpus, IsEmpty());
  EXPECT_EQ(place(machine, "1", false).workers.front().threads, std::nullopt);
  PlacementRequest request;
  request.nproc = "2";
  for (const auto& [binding, first] : {std::pair{Binding::kNode, "0-7"},
                                       {Binding::kSocket, "0-7"},
                                       {Binding::kExclusive, "0-7"}}) {
    request.binding = binding;
    EXPECT_EQ(cpu_list(place_workers(machine, request).workers.front().cpus), first);
  }
  request.binding = Binding::kCoreComplex;
  EXPECT_EQ(cpu_list(place_workers(described_machine(kNps4), request).workers[1].cpus), "3-5");
}

TEST(Placement, KnowsThisMachine) {
  const Machine machine = this_machine();
  EXPECT_GE(machine.num_cores(), 1);
  EXPECT_FALSE(place(machine, "auto").workers.empty());
}

}  // namespace
}  // namespace tandem::launch
