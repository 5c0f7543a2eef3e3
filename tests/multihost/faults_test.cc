// Errors that all survivors on two hosts see when a rank or a host fails, and their delay.
#include <gmock/gmock.h>
#include <signal.h>

#include "multihost/probe_job.h"
#include "multihost/slow_cable.h"
#include "multihost/stalls.h"

namespace tandem::testing {
namespace {

using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// The time after `word` in a rank's output; -1 without one.
double time_after(const std::string& output, const std::string& word) {
  const std::size_t at = output.find(word);
  return at == std::string::npos ? -1 : std::stod(output.substr(at + word.size()));
}

struct Case {
  const char* kind;
  const char* phase;
  int victim;
  double same_node_ms;
  double other_node_ms;
  std::vector<std::string> words;  // in the message of every survivor
};

void PrintTo(const Case& one, std::ostream* out) {
  *out << one.kind << " in " << one.phase << ", rank " << one.victim;
}

// A process that ends is known at once on its node and elsewhere; one that is stopped when the
// second that the probe sets as the limit has passed (heartbeats: four a second).
constexpr double kDeathHere = 100;
constexpr double kDeathElsewhere = 2000;
constexpr double kStall = 1000 + 2 * 250 + 500;
constexpr double kSilence = 2500;
// One that stops while the ranks connect to each other is given up when the time for that is over
// (4 s in the probe).
constexpr double kStart = 4000 + 1000;

class Faults : public MultiHost, public ::testing::WithParamInterface<Case> {};

TEST_P(Faults, AreNamedByAllSurvivorsInTime) {
  const Case& fault = GetParam();
  const TwoHosts hosts(folder());
  const Stalls stalls;
  ProbeJob job(hosts.node0, hosts.node1,
               {"fault", fault.kind, fault.phase, std::to_string(fault.victim)});
  std::vector<std::string> output(4);
  for (int rank = 0; rank < 4; ++rank) {
    if (rank == fault.victim) continue;
    const ProcessResult result = job[rank].wait(std::chrono::seconds(40));
    EXPECT_EQ(result.exit_code, 200) << result.out << result.err;
    output[static_cast<std::size_t>(rank)] = result.out;
  }
  const double start = time_after(job[fault.victim].out_so_far(), "fault at ");
  ASSERT_GT(start, 0) << job[fault.victim].out_so_far();
  const double stalled = stalls.ms_since(start);
  RecordProperty("machine_stalled_ms", fmt::format("{:.1f}", stalled));
  for (int rank = 0; rank < 4; ++rank) {
    if (rank == fault.victim) continue;
    const std::string& words = output[static_cast<std::size_t>(rank)];
    const double delay = time_after(words, "failed at ") - start;
    const bool same_node = rank / 2 == fault.victim / 2;
    RecordProperty(fmt::format("rank_{}_ms", rank), fmt::format("{:.1f}", delay));
    EXPECT_LT(delay - stalled, same_node ? fault.same_node_ms : fault.other_node_ms) << words;
    EXPECT_THAT(words, HasSubstr(fmt::format("rank {} (", fault.victim)));
    for (const std::string& word : fault.words) EXPECT_THAT(words, HasSubstr(word));
  }
  // A stopped process is still there, with its connections: it ends with this, and so does its
  // parent, which has stopped with it.
  for (const Host* host : {&hosts.node0, &hosts.node1}) {
    host->shell("pkill -KILL -x host_probe || true");
  }
  job[fault.victim].signal(SIGCONT);
  job[fault.victim].wait(std::chrono::seconds(20));
  expect_nothing_left(hosts);
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  // A victim on either host; rank 0 is special at the start, for it is where the others met.
  for (const int victim : {0, 3}) {
    for (const auto* phase : {"init", "middle", "end"}) {
      for (const auto* kind : {"kill", "exit"}) {
        cases.push_back({kind, phase, victim, kDeathHere, kDeathElsewhere, {"died"}});
      }
    }
    cases.push_back({"stop", "init", victim, kStart, kStart, {"connect"}});
    for (const auto* phase : {"middle", "end"}) {
      cases.push_back({"stop", phase, victim, kStall, kStall, {"stalled", "TANDEM_STALL_TIMEOUT"}});
    }
  }
  const std::pair<const char*, const char*> mismatches[] = {{"count", "of 9999 float32 (sum)"},
                                                            {"type", "of 10000 int32 (sum)"},
                                                            {"op", "of 10000 float32 (max)"},
                                                            {"order", "broadcast"}};
  for (const auto* phase : {"init", "middle", "end"}) {
    for (const auto& [kind, called] : mismatches) {
      cases.push_back({kind,
                       phase,
                       3,
                       kDeathHere,
                       kDeathElsewhere,
                       {"disagree", "of 10000 float32 (sum)", called}});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, Faults, ::testing::ValuesIn(all_cases()), [](const auto& instance) {
  return fmt::format("{}_{}_rank{}", instance.param.kind, instance.param.phase,
                     instance.param.victim);
});

// The host of ranks 2 and 3 answers nothing any more, while rank 3 does nothing (at the start and
// at the end the others wait for it) or in the middle of operations. Either side names a rank of
// the other.
class SilentHost : public MultiHost, public ::testing::WithParamInterface<const char*> {};

TEST_P(SilentHost, IsNamedByAllInTime) {
  const std::string phase = GetParam();
  const TwoHosts hosts(folder());
  ProbeJob job(hosts.node0, hosts.node1,
               {"fault", phase == "middle" ? "none" : "pause", phase, "3"});
  if (phase == "middle") {
    job.wait_for_all_to_send("is in the middle");
  } else {
    job.wait_until_printed(3, "fault at");
  }
  hosts.node1.shell("ip link set wire down");
  const double start = now_ms();
  const Stalls stalls;
  for (int rank = 0; rank < 4; ++rank) {
    const ProcessResult result = job[rank].wait(std::chrono::seconds(40));
    EXPECT_EQ(result.exit_code, 200) << result.out;
    const double delay = time_after(result.out, "failed at ") - start;
    RecordProperty(fmt::format("rank_{}_ms", rank), fmt::format("{:.1f}", delay));
    EXPECT_LT(delay - stalls.ms_since(start), kSilence) << result.out;
    if (phase == "init") {
      EXPECT_THAT(result.out, HasSubstr("died while the ranks were connecting"));
      EXPECT_THAT(result.out, HasSubstr("its host is silent"));
      continue;
    }
    EXPECT_THAT(result.out, HasSubstr(rank < 2 ? "(host node1, pid" : "(host node0, pid"));
    EXPECT_THAT(result.out, HasSubstr("died: its host has answered nothing for 2."));
  }
  expect_nothing_left(hosts);
}

INSTANTIATE_TEST_SUITE_P(All, SilentHost, ::testing::Values("init", "middle", "end"),
                         [](const auto& instance) { return std::string(instance.param); });

// The hosts' path suddenly carries small packets only: heartbeats pass, data does not. Without
// offloading every packet of a message is as large as the MTU when the connections were made, and
// the other end takes none that is larger than its own.
TEST_F(Faults, AWayThatDropsLargePacketsIsNamed) {
  const TwoHosts hosts(folder());
  for (const Host* host : {&hosts.node0, &hosts.node1}) {
    host->shell("ip link set wire gso_max_segs 1");
  }
  ProbeJob job(hosts.node0, hosts.node1, {"fault", "none", "middle", "3"});
  job.wait_for_all_to_send("is in the middle");
  hosts.node1.shell("ip link set wire mtu 700");
  for (int rank = 0; rank < 4; ++rank) {
    const ProcessResult result = job[rank].wait(std::chrono::seconds(40));
    EXPECT_EQ(result.exit_code, 200) << result.out;
    EXPECT_THAT(result.out, HasSubstr("cannot get its data to rank"));
    EXPECT_THAT(result.out, HasSubstr("though that host answers"));
    EXPECT_THAT(result.out, ContainsRegex("of up to (1500|700) bytes"));
    EXPECT_THAT(result.out, HasSubstr("TANDEM_STALL_TIMEOUT"));
  }
  // Sockets stay until the kernel gives up on what cannot get through.
  EXPECT_EQ(hosts.node0.processes(), std::vector<std::string>());
  EXPECT_EQ(hosts.node1.processes(), std::vector<std::string>());
}

// If the user states how long interruptions of the network are, the job continues after one.
TEST_F(Faults, AnInterruptionWithinTheLimitIsNoFailure) {
  const TwoHosts hosts(folder());
  ProbeJob job(hosts.node0, hosts.node1, {"fault", "none", "middle", "3"},
               {{"TANDEM_HOST_TIMEOUT", "8"}, {"TANDEM_STALL_TIMEOUT", "15"}});
  job.wait_for_all_to_send("is in the middle");
  hosts.node1.shell("ip link set wire down");
  std::this_thread::sleep_for(std::chrono::milliseconds(3500));  // more than the default limit
  hosts.node1.shell("ip link set wire up");
  // The longest pause between two tries of the kernel, and then some.
  std::this_thread::sleep_for(std::chrono::milliseconds(5000));
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_TRUE(job[rank].running()) << job[rank].out_so_far();
    EXPECT_THAT(job[rank].out_so_far(), Not(HasSubstr("failed at")));
    job[rank].signal(SIGTERM);
  }
  for (const Host* host : {&hosts.node0, &hosts.node1}) {
    host->shell("pkill -KILL -x host_probe || true");
  }
}

// Two hosts on a cable that loses packets on request.
class SlowLink : public MultiHost {
 protected:
  struct Cabled {
    Cabled(const TwoHosts& hosts, double bits_per_second)
        : cable({unplugged(hosts.node0), "wire", "10.77.0.10/24"},
                {hosts.node1, "wire", "10.77.0.11/24"}, bits_per_second) {}
    static const Host& unplugged(const Host& host) {
      host.shell("ip link del wire");
      return host;
    }
    SlowCable cable;
  };
  static void end(const TwoHosts& hosts, ProbeJob& job) {
    for (int rank = 0; rank < 4; ++rank) job[rank].signal(SIGTERM);
    for (const Host* host : {&hosts.node0, &hosts.node1}) {
      host->shell("pkill -KILL -x host_probe || true");
    }
  }
};

// 800 KB wait seconds in the queue of a link of 1 Mbit/s, and heartbeats behind them: several times
// the limit for a silent host. Nothing is lost, so nothing has failed.
TEST_F(SlowLink, WithADeepQueueIsNoFailure) {
  if (const std::string reason = SlowCable::why_not(); !reason.empty()) GTEST_SKIP() << reason;
  const TwoHosts hosts(folder());
  const Cabled line(hosts, 1e6);
  // The queue is there at once, without a word between: senders do not wait for the first answers.
  for (const Host* host : {&hosts.node0, &hosts.node1}) {
    host->shell(
        "for of in r w; do echo 4096 4000000 6000000 > /proc/sys/net/ipv4/tcp_${of}mem; done\n"
        "ip route replace 10.77.0.0/24 dev wire initcwnd 1000 initrwnd 1000");
  }
  ProbeJob job(hosts.node0, hosts.node1, {"sum", "200000"}, {{"TANDEM_STALL_TIMEOUT", "10"}});
  for (const std::string& output : job.wait_for_success())
    EXPECT_THAT(output, HasSubstr("summed in "));
  EXPECT_GT(line.cable.longest_wait().count(), 3) << "the queue was not deep";
  expect_nothing_left(hosts);
}

// By default, a job survives an interruption of 1.8 s, whether the ranks send all the time or wait
// for one that computes, and wherever between two heartbeats it begins. TCP's own tries come too
// late to show it.
class Interruption : public SlowLink, public ::testing::WithParamInterface<const char*> {};

TEST_P(Interruption, OfNearlyTwoSecondsIsNoFailure) {
  if (const std::string reason = SlowCable::why_not(); !reason.empty()) GTEST_SKIP() << reason;
  const TwoHosts hosts(folder());
  Cabled line(hosts, 1e9);
  ProbeJob job(hosts.node0, hosts.node1, {"fault", GetParam(), "middle", "3"},
               {{"TANDEM_STALL_TIMEOUT", "10"}});
  job.wait_for_all_to_send("is in the middle");
  for (const int between : {1000, 2500, 2600, 2700, 2800}) {
    std::this_thread::sleep_for(std::chrono::milliseconds(between));
    line.cable.lose(SlowCable::Loses::kEverything);
    std::this_thread::sleep_for(std::chrono::milliseconds(1800));
    line.cable.lose(SlowCable::Loses::kNothing);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(3000));
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_TRUE(job[rank].running());
    EXPECT_THAT(job[rank].out_so_far(), Not(HasSubstr("failed at")));
  }
  end(hosts, job);
}

INSTANTIATE_TEST_SUITE_P(All, Interruption, ::testing::Values("none", "compute"),
                         [](const auto& instance) { return std::string(instance.param); });

// A device on the path answers instead of a dead host, or forgets connections. Answered new
// connections delay the end by the limit, but do not prevent it.
TEST_F(SlowLink, AnAnswerToNewConnectionsAloneIsNoLife) {
  if (const std::string reason = SlowCable::why_not(); !reason.empty()) GTEST_SKIP() << reason;
  const TwoHosts hosts(folder());
  Cabled line(hosts, 1e9);
  ProbeJob job(hosts.node0, hosts.node1, {"fault", "none", "middle", "3"},
               {{"TANDEM_STALL_TIMEOUT", "20"}});
  job.wait_for_all_to_send("is in the middle");
  line.cable.lose(SlowCable::Loses::kOldConnections);
  const double start = now_ms();
  for (int rank = 0; rank < 4; ++rank) {
    const ProcessResult result = job[rank].wait(std::chrono::seconds(40));
    EXPECT_EQ(result.exit_code, 200) << result.out;
    EXPECT_LT(time_after(result.out, "failed at ") - start, 2 * kSilence) << result.out;
    EXPECT_THAT(result.out, ContainsRegex("died: its host has answered nothing for 4\\.[0-9] s, "
                                          "though new connections to it are answered"));
  }
  EXPECT_EQ(hosts.node0.processes(), std::vector<std::string>());
  EXPECT_EQ(hosts.node1.processes(), std::vector<std::string>());
}

// A switch that wakes up after the job has started does no harm.
TEST_F(Faults, ACableThatComesLate) {
  const TwoHosts hosts(folder());
  hosts.node1.shell("ip link set wire down");
  ProbeJob job(hosts.node0, hosts.node1, {"fault", "none", "middle", "3"});
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  hosts.node1.shell("ip link set wire up");
  job.wait_for_all_to_send("is in the middle");
  for (int rank = 0; rank < 4; ++rank) job[rank].signal(SIGTERM);
  for (const Host* host : {&hosts.node0, &hosts.node1}) {
    host->shell("pkill -KILL -x host_probe || true");
  }
}

}  // namespace
}  // namespace tandem::testing
