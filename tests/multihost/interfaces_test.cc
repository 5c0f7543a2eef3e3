// Ranks find each other on hosts with one interface, with many, with a name that comes late; and
// name the interface that they use.
#include <gmock/gmock.h>

#include <iterator>
#include <sstream>

#include "multihost/probe_job.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Interfaces = MultiHost;

void expect_sum(const std::vector<std::string>& output, const std::string& way0,
                const std::string& way1) {
  for (std::size_t rank = 0; rank < output.size(); ++rank) {
    EXPECT_THAT(
        output[rank],
        AllOf(HasSubstr("sum 6"), HasSubstr("4 ranks on 2 nodes: node0 (0, 1), node1 (2, 3)"),
              HasSubstr("between hosts through " + (rank < 2 ? way0 : way1))));
  }
}

TEST_F(Interfaces, TheWayToTheOtherHostIsPrinted) {
  const TwoHosts hosts(folder());
  ProbeJob job(hosts.node0, hosts.node1, {"meet"});
  expect_sum(job.wait_for_success(), "wire (10.77.0.10)", "wire (10.77.0.11)");
  expect_nothing_left(hosts);
}

// Twenty interfaces on each host, up and with addresses, that lead nowhere: bridges of containers,
// management networks. Ten of them have the same addresses on both hosts, as docker0 has
// everywhere.
TEST_F(Interfaces, TwentyOthersThatLeadNowhere) {
  const TwoHosts hosts(folder());
  for (const Host* host : {&hosts.node0, &hosts.node1}) {
    std::string script;
    for (int i = 0; i < 20; ++i) {
      const int net = i < 10 ? 100 + i : host == &hosts.node0 ? 120 + i : 160 + i;
      script += fmt::format(
          "ip link add a{0} type veth peer name b{0} && ip addr add 10.{1}.0.1/24 dev a{0} && "
          "ip link set a{0} up && ip link set b{0} up && ",
          i, net);
    }
    host->shell(script + "true");
  }
  const auto start = std::chrono::steady_clock::now();
  ProbeJob job(hosts.node0, hosts.node1, {"meet"});
  expect_sum(job.wait_for_success(), "wire (10.77.0.10)", "wire (10.77.0.11)");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
}

TEST_F(Interfaces, TheUserChooses) {
  const TwoHosts hosts(folder());
  connect({hosts.node0, "fast", "10.78.0.10/24"}, {hosts.node1, "fast", "10.78.0.11/24"});
  for (const auto& [name, value] :
       {std::pair{"GLOO_SOCKET_IFNAME", "fast"}, std::pair{"CCL_KVS_IFACE", "fast,wire"},
        std::pair{"TANDEM_IFNAME", "^wire"}}) {
    SCOPED_TRACE(name);
    ProbeJob job(hosts.node0, hosts.node1, {"meet"}, {{name, value}});
    expect_sum(job.wait_for_success(), "fast (10.78.0.10)", "fast (10.78.0.11)");
  }
  ProbeJob wrong(hosts.node0, hosts.node1, {"meet"}, {{"TANDEM_IFNAME", "ib0"}});
  for (int rank = 0; rank < 4; ++rank) {
    const ProcessResult result = wrong[rank].wait(std::chrono::seconds(40));
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.out, AllOf(HasSubstr("no interface 'ib0'"), HasSubstr("wire (10.77.0.1"),
                                  HasSubstr("fast (10.78.0.1")));
  }
}

TEST_F(Interfaces, ANameThatResolvesLate) {
  const TwoHosts hosts(folder());
  ProbeJob job(hosts.node0, hosts.node1, {"meet"}, {{"MASTER_ADDR", "worker-0"}});
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  EXPECT_FALSE(job.any_rank_printed("sum"));
  for (const Host* host : {&hosts.node0, &hosts.node1}) {
    host->set_names("127.0.0.1 localhost\n10.77.0.10 worker-0\n");
  }
  expect_sum(job.wait_for_success(), "wire (10.77.0.10)", "wire (10.77.0.11)");
}

// While the last rank is awaited, a client connects twenty times to every port that the others
// listen at; half of the connections send something, all stay. The connections of the ranks to each
// other then come in between.
TEST_F(Interfaces, PortScannersDuringTheStart) {
  const TwoHosts hosts(folder());
  ProbeJob job(hosts.node0, hosts.node1, {"meet"}, {}, /*ranks_at_once=*/3);
  const auto ports = [](const Host& host) {
    return host.shell("ss -Htln | sed 's/.*:\\([0-9]*\\) .*/\\1/' | sort -u | tr '\\n' ' '");
  };
  const auto count = [](const std::string& words) {
    std::istringstream stream(words);
    return std::distance(std::istream_iterator<std::string>(stream), {});
  };
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  // Rank 0 listens at two ports, the others at one each.
  while (count(ports(hosts.node0)) < 3 || count(ports(hosts.node1)) < 1) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const auto scan = [&](const Host& from, const std::string& address, const std::string& at) {
    return std::make_unique<Process>(from.inside(
        {"bash", "-c",
         fmt::format("for i in $(seq 20); do for p in {}; do exec {{fd}}<>/dev/tcp/{}/$p && "
                     "if [ $((i % 2)) = 0 ]; then echo GET / HTTP/1.1 >&$fd; fi; done; done; "
                     "echo stays; sleep 60",
                     at, address)}));
  };
  const auto one = scan(hosts.node1, "10.77.0.10", ports(hosts.node0));
  const auto two = scan(hosts.node0, "10.77.0.11", ports(hosts.node1));
  for (const auto* scanner : {one.get(), two.get()}) {
    while (scanner->out_so_far().find("stays") == std::string::npos) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << scanner->err_so_far();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_EQ(scanner->err_so_far(), "");
  }
  const auto start = std::chrono::steady_clock::now();
  job.start_next();
  expect_sum(job.wait_for_success(), "wire (10.77.0.10)", "wire (10.77.0.11)");
  // Two seconds for each of forty unauthenticated peers, one after the other, were too long.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(8));
}

// A container without a network: only loopback, and a name that leads nowhere.
TEST_F(Interfaces, OnlyLoopback) {
  const Host host(folder(), "alone");
  host.set_names("127.0.0.1 localhost\n");
  for (const auto& [address, local_size] : {std::pair{"", "4"}, std::pair{"localhost", "2"}}) {
    ProbeJob job(host, host, {"meet"},
                 {{"MASTER_ADDR", address}, {"LOCAL_WORLD_SIZE", local_size}});
    for (const std::string& output : job.wait_for_success()) {
      EXPECT_THAT(output, AllOf(HasSubstr("sum 6"), HasSubstr("4 ranks on 1 node: alone")));
    }
  }
}

}  // namespace
}  // namespace tandem::testing
