// Placement on machines that hwloc creates from a description.
#include "tandem/launch/process/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/core/error.h"
#include "tandem/launch/process/pinning.h"

namespace tandem::launch {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kTwoSockets = "pack:2 [numa] l3:1 core:4 pu:2";
constexpr const char* kSubNuma = "pack:2 numa:2 l3:1 core:6 pu:2";  // SNC2
constexpr const char* kNps4 = "pack:1 numa:4 l3:2 core:3 pu:1";     // NPS4, two CCX each
constexpr const char* kFlat = "pack:1 core:8 pu:1";                 // a virtual machine

Placement choose_placement(const Machine& machine, const std::string& nproc, bool own_job = true) {
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
    const Placement placement = choose_placement(described_machine(description), "auto");
    EXPECT_EQ(placement.workers.size(), static_cast<std::size_t>(domains)) << description;
    EXPECT_EQ(placement.workers.front().threads, threads) << description;
    EXPECT_THAT(placement.summary, HasSubstr("one for each memory domain"));
  }
}

TEST(Placement, WorkersGetWholeDomainsOrEqualShares) {
  const Machine machine = described_machine(kTwoSockets);
  EXPECT_THAT(lists(choose_placement(machine, "2")), ::testing::ElementsAre("0-7", "8-15"));
  EXPECT_THAT(lists(choose_placement(machine, "4")),
              ::testing::ElementsAre("0-3", "4-7", "8-11", "12-15"));
  EXPECT_THAT(lists(choose_placement(machine, "1")), ::testing::ElementsAre("0-15"));
  EXPECT_THAT(lists(choose_placement(described_machine(kFlat), "1")), ::testing::ElementsAre(""));
}

// Every core belongs to exactly one worker, for any numbers.
TEST(Placement, SharesDoNotOverlap) {
  for (const char* description : {kTwoSockets, kSubNuma, kNps4, kFlat}) {
    const Machine machine = described_machine(description);
    for (int count = 2; count <= machine.num_cores(); ++count) {
      std::vector<int> cpus;
      for (const auto& worker : choose_placement(machine, std::to_string(count)).workers) {
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
  EXPECT_THAT(lists(choose_placement(masked, "auto")), ::testing::ElementsAre("0-3", "8"));
  Machine one_socket = described_machine(kTwoSockets, {8, 9, 10, 11});
  EXPECT_EQ(choose_placement(one_socket, "auto").workers.size(), 1U);
  Machine quota = described_machine(kTwoSockets);
  quota.quota = 1.5;
  EXPECT_EQ(choose_placement(quota, "cpu").workers.size(), 2U);
  const Placement placement = choose_placement(quota, "auto");
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

TEST(Placement, OtherRanksKeepTheirCoresAndThreads) {
  const Machine machine = described_machine(kTwoSockets);
  const Placement two = choose_placement(machine, "2", false);
  EXPECT_EQ(two.workers.front().threads, std::nullopt);
  EXPECT_THAT(two.workers.front().cpus, IsEmpty());
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
  EXPECT_FALSE(choose_placement(machine, "auto").workers.empty());
}

Machine machine_of(const std::string& file) {
  return machine_from_xml(std::string(TANDEM_SOURCE_DIR) +
                          "/src/tandem/launch/process/topologies/" + file);
}

// CPU numbers of a real machine: SMT siblings far apart, sockets alternate.
TEST(Placement, MachinesAsLinuxNumbersThem) {
  const Machine clusters = machine_of("two_sockets_snc.xml");
  EXPECT_EQ(clusters.numa.size(), 4U);
  EXPECT_EQ(clusters.sockets.size(), 2U);
  EXPECT_EQ(clusters.num_cores(), 16);
  const Placement four = choose_placement(clusters, "auto");
  EXPECT_THAT(lists(four),
              ::testing::ElementsAre("0,4,8,12,16,20,24,28", "1,5,9,13,17,21,25,29",
                                     "2,6,10,14,18,22,26,30", "3,7,11,15,19,23,27,31"));
  EXPECT_EQ(four.workers.front().threads, 4);
  const Machine container = machine_of("four_sockets_cpuset.xml");
  EXPECT_EQ(container.numa.size(), 3U);
  EXPECT_EQ(choose_placement(container, "auto").workers.size(), 3U);
  EXPECT_THAT(draw(container, choose_placement(container, "3")).front(),
              HasSubstr("memory domain 0, 6 cores, CPUs 0-5,24-29: worker 0 [0-5,24-29]"));
  EXPECT_THAT(draw(container, choose_placement(container, "3")).back(),
              HasSubstr("worker 0 from domain 0, worker 1 from domain 1, worker 2 from domain 2"));
  EXPECT_THAT(draw(container, choose_placement(container, "1")).back(),
              HasSubstr("worker 0 from where it is touched first"));
}

using Variables = std::map<std::string, std::string, std::less<>>;

struct Pinned {
  std::vector<std::string> lists;
  std::vector<std::string> notes, warnings;
  std::optional<int> threads;
};

Pinned pinned(const Machine& machine, const std::string& nproc, const Variables& set,
              bool own_job = true) {
  PlacementRequest request;
  request.nproc = nproc;
  request.own_job = own_job;
  const auto get = [&](std::string_view name) -> std::optional<std::string> {
    const auto found = set.find(name);
    return found == set.end() ? std::nullopt : std::optional(found->second);
  };
  Pinned result;
  result.notes = apply_pin_variables(get, machine, request);
  const Placement placement = place_workers(machine, request);
  result.lists = lists(placement);
  result.warnings = placement.warnings;
  result.threads = placement.workers.front().threads;
  return result;
}

TEST(Pinning, DomainsOfIntelMpi) {
  const Machine machine = described_machine(kTwoSockets);  // 2 sockets, 4 cores, 2 threads each
  for (const auto& [value, expected] :
       std::map<std::string, std::vector<std::string>>{{"socket", {"0-7", "8-15"}},
                                                       {"numa", {"0-7", "8-15"}},
                                                       {"core", {"0-1", "8-9"}},
                                                       {"node", {"0-15", "0-15"}},
                                                       {"auto", {"0-7", "8-15"}},
                                                       {"4", {"0-3", "8-11"}},
                                                       {"omp", {"0-3", "8-11"}},
                                                       {"8:scatter", {"0-3,8-11", "4-7,12-15"}},
                                                       {"4:platform", {"0-3", "8-11"}},
                                                       {"[f0,0xF00]", {"4-7", "8-11"}}}) {
    const Pinned result =
        pinned(machine, "2", {{"I_MPI_PIN_DOMAIN", value}, {"OMP_NUM_THREADS", "4"}});
    EXPECT_EQ(result.lists, expected) << value;
    EXPECT_THAT(result.notes.front(), HasSubstr("I_MPI_PIN_DOMAIN=" + value));
  }
  for (const char* bad : {"gpu", "0", "4:far", "[xyz]", "[0]", "[f0000]"})
    EXPECT_THROW(pinned(machine, "2", {{"I_MPI_PIN_DOMAIN", bad}}), ConfigError) << bad;
}

TEST(Pinning, OffIsHonouredAndOpenMpsPlacesAreExplained) {
  const Machine machine = described_machine(kTwoSockets);
  for (const auto& [name, value] :
       Variables{{"I_MPI_PIN", "off"}, {"OMP_PROC_BIND", "false"}, {"KMP_AFFINITY", "disabled"}}) {
    const Pinned result = pinned(machine, "2", {{name, value}, {"I_MPI_PIN_DOMAIN", "core"}});
    EXPECT_THAT(result.lists, ::testing::ElementsAre("", "")) << name;
    EXPECT_THAT(result.notes.front(), HasSubstr("tied to no cores"));
  }
  const Pinned pins = pinned(machine, "2", {{"OMP_PLACES", "cores"}, {"OMP_PROC_BIND", "close"}});
  EXPECT_THAT(pins.notes, ::testing::ElementsAre(HasSubstr("OMP_PLACES has no effect here")));
  EXPECT_THAT(pins.lists, ::testing::ElementsAre("0-7", "8-15"));
}

TEST(Pinning, CommunicationHasCoresOfItsOwn) {
  const Machine machine = described_machine(kTwoSockets);
  const Pinned automatic = pinned(machine, "2", {{"CCL_WORKER_COUNT", "1"}});
  EXPECT_EQ(automatic.threads, 3);
  const Pinned given =
      pinned(machine, "2", {{"CCL_WORKER_COUNT", "1"}, {"CCL_WORKER_AFFINITY", "0-1,8,9"}});
  EXPECT_THAT(given.lists, ::testing::ElementsAre("2-7", "10-15"));
  EXPECT_EQ(given.threads, 3);
  EXPECT_THROW(pinned(machine, "2", {{"CCL_WORKER_COUNT", "1"}, {"CCL_WORKER_AFFINITY", "0-15"}}),
               ConfigError);
  EXPECT_THROW(pinned(machine, "2", {{"CCL_WORKER_COUNT", "1"}, {"CCL_WORKER_AFFINITY", "a"}}),
               ConfigError);
}

// The guide's pod: 240 threads on two cores.
TEST(Pinning, MoreThreadsThanCoresAreCorrectedWithBothNumbers) {
  const Pinned result =
      pinned(described_machine("pack:1 core:2 pu:1"), "1", {{"OMP_NUM_THREADS", "240"}});
  EXPECT_EQ(result.threads, 2);
  ASSERT_EQ(result.warnings.size(), 1U);
  EXPECT_THAT(result.warnings.front(),
              HasSubstr("OMP_NUM_THREADS is 240 and a worker here has 2 cores"));
}

}  // namespace
}  // namespace tandem::launch
