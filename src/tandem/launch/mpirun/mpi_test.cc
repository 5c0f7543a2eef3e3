// The parts of `tandem mpirun` that need no process: command line, plan of ranks, PMI, binding,
// frames.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/launch/mpirun/daemon_stream.h"
#include "tandem/launch/mpirun/host_link.h"
#include "tandem/launch/mpirun/mpi_line.h"
#include "tandem/launch/mpirun/pmi_server.h"
#include "tandem/launch/mpirun/rank_binding.h"
#include "tandem/launch/mpirun/rank_output.h"
#include "tandem/launch/mpirun/rank_plan.h"
#include "tandem/launch/mpirun/rank_start.h"
#include "tandem/launch/run/proxies.h"

namespace tandem::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Words = std::vector<std::string>;

MpiLine parse_mpi(const Words& words, std::map<std::string, std::string, std::less<>> set = {}) {
  return parse_mpi_line(words, Environment(std::move(set)));
}

TEST(MpiLine, ReadsTheGuidesLine) {
  const MpiLine line =
      parse_mpi({"-f", "hostfile", "-n", "4", "-ppn", "2", "-genv", "OMP_NUM_THREADS=23", "-genv",
                 "CCL_WORKER_COUNT", "1", "tandem", "run_qa", "-n", "x"});
  EXPECT_EQ(line.host_file, "hostfile");
  EXPECT_EQ(line.ranks_per_host, 2);
  ASSERT_EQ(line.blocks.size(), 1u);
  EXPECT_EQ(line.blocks[0].count, 4);
  EXPECT_THAT(line.blocks[0].command, ElementsAre("tandem", "run_qa", "-n", "x"));
  const auto environment = line.environment.of({{"HOME", "/root"}});
  EXPECT_EQ(environment.at("OMP_NUM_THREADS"), "23");
  EXPECT_EQ(environment.at("CCL_WORKER_COUNT"), "1");
  EXPECT_EQ(environment.at("HOME"), "/root");
}

TEST(MpiLine, ProgramsAreSeparatedByColons) {
  const MpiLine line = parse_mpi({"-genvnone", "-n", "1", "-env", "A", "1", "./a", "x", ":",
                                  "--np=2", "-host", "node1", "-wdir", "/tmp", "./b"});
  ASSERT_EQ(line.blocks.size(), 2u);
  EXPECT_EQ(line.blocks[0].environment->set.front().second, "1");
  EXPECT_THAT(line.blocks[0].command, ElementsAre("./a", "x"));
  EXPECT_EQ(line.blocks[1].count, 2);
  EXPECT_EQ(line.blocks[1].host, "node1");
  EXPECT_EQ(line.blocks[1].directory, "/tmp");
  EXPECT_THAT(line.environment.of({{"HOME", "/root"}}), IsEmpty());
}

TEST(MpiLine, AFileHoldsOneProgramALine) {
  const testing::TemporaryFolder folder;
  write_file(folder / "config", "# two programs\n-n 1 ./a  # the first\n\n-n 2 ./b x\n");
  const MpiLine line = parse_mpi({"-l", "-configfile", (folder / "config").native()});
  ASSERT_EQ(line.blocks.size(), 2u);
  EXPECT_TRUE(line.prefix_ranks);
  EXPECT_THAT(line.blocks[1].command, ElementsAre("./b", "x"));
  write_file(folder / "loop", "-configfile " + (folder / "loop").native() + "\n");
  EXPECT_THROW(parse_mpi({"-configfile", (folder / "loop").native()}), ConfigError);
}

TEST(MpiLine, VariablesCountWhereNoFlagIsGiven) {
  const MpiLine line = parse_mpi({"prog"}, {{"HYDRA_HOST_FILE", "hosts"},
                                            {"HYDRA_LAUNCH_EXTRA_ARGS", "-o ConnectionAttempts=10"},
                                            {"I_MPI_PERHOST", "3"}});
  EXPECT_EQ(line.host_file, "hosts");
  EXPECT_THAT(line.launcher_words, ElementsAre("-o", "ConnectionAttempts=10"));
  EXPECT_EQ(line.ranks_per_host, 3);
  EXPECT_EQ(parse_mpi({"-hosts", "a,b:2", "prog"}, {{"HYDRA_HOST_FILE", "hosts"}}).host_file, "");
}

TEST(MpiLine, RefusesWithTheReason) {
  for (const auto& [words, expected] : std::vector<std::pair<Words, std::string>>{
           {{}, "no program"},
           {{"-n", "2"}, "no program"},
           {{"-n", "2", "a", ":"}, "no program"},
           {{"-n", "0", "a"}, "-n: '0'"},
           {{"-nn", "2", "a"}, "did you mean -n?"},
           {{"-n"}, "-n expects N"},
           {{"-launcher", "lsf", "a"}, "-launcher: 'lsf' is not one of ssh, fork"},
           {{"-hosts", "-oProxyCommand=x", "a"}, "is not a list of hosts"},
           {{"-genv", "=x", "a"}, "NAME=VALUE"}}) {
    try {
      parse_mpi(words);
      ADD_FAILURE() << expected;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr(expected));
      EXPECT_EQ(error.exit_code(), 2);
    }
  }
}

// After "--" a host's name is never an option, for any first character.
TEST(DaemonCommand, OptionsEndBeforeTheHost) {
  const MpiLine line = parse_mpi({"-hosts", "a", "prog"}, {{"HYDRA_LAUNCH_EXTRA_ARGS", "-p 2222"}});
  EXPECT_THAT(daemon_command(line, "/opt/it's/tandem", "word", "-oProxyCommand=x", /*remote=*/true),
              ElementsAre("ssh", "-p", "2222", "-x", "-T", "-oBatchMode=yes", "-oConnectTimeout=10",
                          "--", "-oProxyCommand=x", "'/opt/it'\\''s/tandem' mpirun word"));
  EXPECT_THAT(daemon_command(line, "/opt/tandem", "word", "here", /*remote=*/false),
              ElementsAre("/opt/tandem", "mpirun", "word"));
}

std::vector<int> hosts_of(const Words& words, const std::string& hosts) {
  Words all = words;
  all.emplace_back("prog");
  return plan_ranks(parse_mpi(all), read_host_list(hosts)).host_of;
}

// host_of and the number of slots of each line, of a file with this text.
std::vector<HostfileEntry> entries_of(const std::string& text) {
  const testing::TemporaryFolder folder;
  write_file(folder / "hosts", text);
  return read_hostfile(folder / "hosts");
}
std::vector<std::string> hosts_of_file(const Words& words, const std::string& text) {
  Words all = words;
  all.emplace_back("prog");
  const RankPlan plan = plan_ranks(parse_mpi(all), entries_of(text));
  std::vector<std::string> hosts;
  for (const int host : plan.host_of) hosts.push_back(plan.hosts[static_cast<std::size_t>(host)]);
  return hosts;
}

// The results of `mpiexec.hydra -launcher fork -f FILE` of MPICH 4.0.2 for the same files.
TEST(HostFile, OneHostOnSeveralLinesIsReadAsHydraReadsIt) {
  EXPECT_THAT(hosts_of_file({"-n", "4"}, "a\na\nb\nb\n"), ElementsAre("a", "a", "b", "b"));
  EXPECT_THAT(hosts_of_file({"-n", "4"}, "a\nb\na\nb\n"), ElementsAre("a", "b", "a", "b"));
  EXPECT_THAT(hosts_of_file({"-n", "6"}, "a\nb\na\n"), ElementsAre("a", "b", "a", "a", "b", "a"));
  EXPECT_THAT(hosts_of_file({"-n", "6"}, "a:2\nb\na:1\n"),
              ElementsAre("a", "a", "b", "a", "a", "a"));
  EXPECT_THAT(hosts_of_file({"-n", "6", "-ppn", "1"}, "a:2\nb\na:1\n"),
              ElementsAre("a", "b", "a", "a", "b", "a"));
  EXPECT_THAT(hosts_of_file({"-n", "4", "-ppn", "1"}, "a\na\nb\nb\n"),
              ElementsAre("a", "b", "a", "b"));
  EXPECT_THAT(hosts_of_file({"-n", "3"}, "a\r\nb:2\r\n"), ElementsAre("a", "b", "b"));
  EXPECT_THAT(hosts_of_file({}, "a:2 # c\n#x\n  \n\t b"), ElementsAre("a", "a", "b"));
}

// Files of other writers: Open MPI's slots, SGE's PE_HOSTFILE, Windows' editors.
TEST(HostFile, ReadsOtherWritersFiles) {
  EXPECT_THAT(hosts_of_file({},
                            "\xef\xbb\xbf"
                            "a\nb\n"),
              ElementsAre("a", "b"));
  EXPECT_THAT(hosts_of_file({}, "a slots=1 // c\nb count=2\na slots=1\n"),
              ElementsAre("a", "b", "b", "a"));
  EXPECT_THAT(hosts_of_file({}, "a 1 all.q@a UNDEFINED\nb 2 all.q@b <NULL>\n"),
              ElementsAre("a", "b", "b"));
  EXPECT_THAT(hosts_of_file({}, "a max-slots=2\n"), ElementsAre("a", "a"));
  EXPECT_THROW(hosts_of_file({"-n", "3"}, "a slots=1 max_slots=2\n"), ConfigError);
}

TEST(HostFile, AttributesAreHonoured) {
  const auto hosts =
      entries_of("me@a:2\nb user=you port=2222 binding=core map=numa ifname=ib0\nb\n");
  ASSERT_EQ(hosts.size(), 2u);
  EXPECT_EQ(hosts[0].settings.user, "me");
  EXPECT_EQ(hosts[1].ranks, 2);
  EXPECT_EQ(hosts[1].settings.bind_to, "core");
  EXPECT_EQ(hosts[1].settings.map_by, "numa");
  EXPECT_EQ(hosts[1].settings.interface, "ib0");
  const auto plan = plan_ranks(parse_mpi({"-n", "3", "prog"}), hosts);
  EXPECT_EQ(plan.settings[1].port, 2222);
  EXPECT_THAT(daemon_command(parse_mpi({"prog"}), "/opt/tandem", "word", "b", /*remote=*/true,
                             plan.settings[1]),
              ElementsAre("ssh", "-l", "you", "-p", "2222", "-x", "-T", "-oBatchMode=yes",
                          "-oConnectTimeout=10", "--", "b", "'/opt/tandem' mpirun word"));
}

TEST(RankPlan, FillsHostsInHydrasOrder) {
  EXPECT_THAT(hosts_of({"-n", "4"}, "a,b"), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(hosts_of({"-n", "4", "-ppn", "2"}, "a,b"), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(hosts_of({"-n", "5"}, "a:1,b:2"), ElementsAre(0, 1, 1, 0, 1));
  EXPECT_THAT(hosts_of({}, "a:1,b:2"), ElementsAre(0, 1, 1));
  EXPECT_THAT(hosts_of({"-n", "2", "-ppn", "2"}, "a,b"), ElementsAre(0, 0));
  const auto line = parse_mpi({"-n", "1", "-host", "c", "p", ":", "-n", "2", "p"});
  const RankPlan plan = plan_ranks(line, read_host_list("a,b"));
  EXPECT_THAT(plan.hosts, ElementsAre("c", "a", "b"));
  EXPECT_THAT(plan.block_of, ElementsAre(0, 1, 1));
}

// As MPICH reads it (MPIR_NODEMAP_parse_mapping): the blocks in order, repeatedly.
TEST(RankPlan, TheMappingIsMpichs) {
  EXPECT_EQ(process_mapping({0, 0, 1, 1}), "(vector,(0,2,2))");
  EXPECT_EQ(process_mapping({0, 1, 0, 1}), "(vector,(0,2,1))");
  EXPECT_EQ(process_mapping({0, 0, 0}), "(vector,(0,1,1))");
  EXPECT_EQ(process_mapping({0, 1, 1, 0, 1}), "(vector,(0,1,1),(1,1,2))");
  std::vector<int> ragged;
  for (int host = 0; host < 2000; ++host) ragged.insert(ragged.end(), 1u + host % 3u, host);
  EXPECT_EQ(process_mapping(ragged), "");
}

TEST(RankPlan, AMappingIsReadAsItIsWritten) {
  for (const std::vector<int>& hosts :
       {std::vector<int>{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0}, {0, 1, 1, 0, 1}, {0, 1, 1, 2}})
    EXPECT_EQ(hosts_of_mapping(process_mapping(hosts), static_cast<int>(hosts.size())), hosts);
  for (const char* const bad :
       {"", "(vector", "(vector)", "(vector,(0,2))", "(vector,(0,1,1)", "(vector,(0,1,0))",
        "(vector,(-1,1,1))", "(vector,(0,1,99999999))", "(vector,(0,65536,65536))", "(vector,(0,"})
    EXPECT_THAT(hosts_of_mapping(bad, 4), IsEmpty()) << bad;
}

// Messages of other processes of this user to an agent.
TEST(Proxies, AnInfoIsReadAsItIsWritten) {
  const ProxyInfo info{1, {.cpus = {0, 3}, .threads = 2}};
  const ProxyInfo read = proxy_info_from(to_line(info), 2);
  EXPECT_EQ(read.worker, 1);
  EXPECT_THAT(read.placement.cpus, ElementsAre(0, 3));
  EXPECT_EQ(read.placement.threads, 2);
  for (const char* const bad : {"", "[]", "{}", R"({"worker":2,"cpus":[]})",
                                R"({"worker":-1,"cpus":[]})", R"({"worker":0,"cpus":[-1]})",
                                R"({"worker":0,"cpus":[99999]})", R"({"worker":"0","cpus":[]})"})
    EXPECT_THROW(proxy_info_from(bad, 2), DataError) << bad;
}

PmiRules two_ranks() {
  PmiRules rules;
  rules.size = 2;
  rules.program_of = {0, 1};
  rules.mapping = "(vector,(0,1,2))";
  return rules;
}

std::string answer(PmiServer& server, int rank, const std::string& line) {
  const auto replies = server.take(rank, line);
  return replies.size() == 1 && replies[0].rank == rank ? replies[0].line : "";
}

TEST(PmiServer, AnswersAsHydraDoes) {
  PmiServer server(two_ranks());
  EXPECT_EQ(answer(server, 0, "cmd=init pmi_version=1 pmi_subversion=1"),
            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0");
  EXPECT_EQ(answer(server, 0, "cmd=get_maxes"),
            "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024");
  EXPECT_EQ(answer(server, 1, "cmd=get_appnum"), "cmd=appnum appnum=1");
  EXPECT_EQ(answer(server, 1, "cmd=get_my_kvsname"), "cmd=my_kvsname kvsname=kvs_0");
  EXPECT_EQ(answer(server, 0, "cmd=put kvsname=kvs_0 key=a value=x=y#"),
            "cmd=put_result rc=0 msg=success");
  EXPECT_THAT(answer(server, 1, "cmd=put kvsname=kvs_0 key=a value=z"), HasSubstr("duplicate"));
  EXPECT_EQ(answer(server, 1, "cmd=get kvsname=kvs_0 key=a"),
            "cmd=get_result rc=0 msg=success value=x=y#");
  EXPECT_THAT(answer(server, 1, "cmd=get kvsname=kvs_0 key=b"), HasSubstr("rc=-1"));
  EXPECT_THAT(answer(server, 1, "cmd=get kvsname=kvs_0 key=PMI_process_mapping"),
              HasSubstr("value=(vector,(0,1,2))"));
  EXPECT_THAT(server.take(0, "cmd=barrier_in"), IsEmpty());
  EXPECT_EQ(server.take(1, "cmd=barrier_in").size(), 2u);
  EXPECT_EQ(answer(server, 0, "cmd=finalize"), "cmd=finalize_ack");
  EXPECT_TRUE(server.finalized(0) && !server.finalized(1));
}

TEST(PmiServer, NamesRanksThatWaitBreakTheProtocolOrAbort) {
  PmiServer server(two_ranks());
  (void)server.take(0, "cmd=barrier_in");
  EXPECT_FALSE(server.stuck());
  server.left(1);
  ASSERT_TRUE(server.stuck());
  EXPECT_EQ(server.stuck()->ended, 1);
  (void)server.take(1, "mcmd=spawn");
  EXPECT_THAT(server.broken(1), HasSubstr("mcmd=spawn"));
  (void)server.take(0, "cmd=abort exitcode=300");
  EXPECT_EQ(server.aborted()->exit_code, 44);
}

std::vector<std::string> bound(const std::string& to, const std::string& by, int count) {
  std::vector<std::string> lists;
  const Machine machine = described_machine("pack:2 [numa] l3:2 core:2 pu:2");
  for (const auto& cpus : bind_ranks(machine, to, by, count)) lists.push_back(cpu_list(cpus));
  return lists;
}

TEST(RankBinding, UnitsAndTheirOrder) {
  EXPECT_THAT(bound("none", "", 2), ElementsAre("", ""));
  EXPECT_THAT(bound("core", "core", 3), ElementsAre("0-1", "2-3", "4-5"));
  EXPECT_THAT(bound("core:2", "core:2", 2), ElementsAre("0-3", "4-7"));
  EXPECT_THAT(bound("core", "socket", 4), ElementsAre("0-1", "8-9", "2-3", "10-11"));
  EXPECT_THAT(bound("l3cache", "numa", 3), ElementsAre("0-3", "8-11", "4-7"));
  EXPECT_THAT(bound("socket", "", 3), ElementsAre("0-7", "8-15", "0-7"));
  EXPECT_THAT(bound("numa", "core", 2), ElementsAre("0-7", "0-7"));
  EXPECT_THAT(bound("user:3+4,9", "", 3), ElementsAre("3-4", "9", "3-4"));
  EXPECT_THROW(bound("user:16", "", 1), ConfigError);
  EXPECT_THROW(bound("core:9", "", 1), ConfigError);
  EXPECT_THROW(bound("gpu", "", 1), ConfigError);
}

TEST(RankOutput, PatternsAreHydras) {
  const PrintingRank rank{7, 1, "node1"};
  EXPECT_EQ(fill_pattern("out.%r.%g.%p.%h.100%%", rank), "out.7.0.1.node1.100%");
}

TEST(RankStart, BytesSurvive) {
  RankStart start;
  start.size = 3;
  start.programs.push_back({{"prog", "\xff\x80 \xc3\xa9\n"}, {{"A", "\xfe"}}, "/tmp"});
  start.ranks = {{2, 0}};
  const RankStart back = rank_start_from(to_text(start));
  EXPECT_EQ(back.programs[0].command, start.programs[0].command);
  EXPECT_EQ(back.programs[0].environment, start.programs[0].environment);
  EXPECT_EQ(back.ranks[0].rank, 2);
  EXPECT_THROW(rank_start_from("{}"), DataError);
  start.ranks = {{3, 0}};
  EXPECT_THROW(rank_start_from(to_text(start)), DataError);
}

struct TwoStreams {
  TwoStreams() {
    int there[2], back[2];
    EXPECT_EQ(::pipe(there), 0);
    EXPECT_EQ(::pipe(back), 0);
    noise = ::dup(there[1]);
    using net::FileDescriptor;
    mpirun.emplace(FileDescriptor(there[0]), FileDescriptor(back[1]), false);
    to_mpirun = FileDescriptor(there[1]);
    from_mpirun = FileDescriptor(back[0]);
  }
  ~TwoStreams() { ::close(noise); }
  void send_bytes(const std::string& bytes) const {
    EXPECT_EQ(::write(noise, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  int noise = -1;
  net::FileDescriptor to_mpirun, from_mpirun;
  std::optional<DaemonStream> mpirun;
};

std::string handshake(std::string_view version) {
  return net::encode_frame(DaemonStream::kProtocol,
                           static_cast<std::uint32_t>(DaemonMessage::Kind::kHandshake),
                           {std::string_view("\xff\xff\xff\xff"), version});
}

// Output of a login shell is skipped, and a frame in several parts is one frame.
TEST(DaemonStream, BeginsAtTheHandshake) {
  TwoStreams pair;
  pair.send_bytes("Welcome!\ntandem mpirun dae");
  pair.mpirun->serve();
  EXPECT_FALSE(pair.mpirun->greeted());
  DaemonStream daemon(std::move(pair.from_mpirun), std::move(pair.to_mpirun), true);
  daemon.send({DaemonMessage::Kind::kOut, 5, std::string(200000, 'x')});
  std::optional<DaemonMessage> frame;
  for (int i = 0; i < 20 && !frame; ++i) {
    daemon.serve();
    pair.mpirun->serve();
    frame = pair.mpirun->take();
  }
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->rank, 5);
  EXPECT_EQ(frame->payload.size(), 200000u);
}

TEST(DaemonStream, WhatIsNoFrameEndsIt) {
  TwoStreams pair;
  pair.send_bytes(handshake(DaemonStream::kVersion) + std::string(100, '\xff'));
  pair.mpirun->serve();
  EXPECT_FALSE(pair.mpirun->take());
  EXPECT_EQ(pair.mpirun->ended(), "it sent something that is not a frame");
  TwoStreams other;
  other.send_bytes(handshake("tandem mpirun daemon 4"));
  other.mpirun->serve();
  EXPECT_FALSE(other.mpirun->greeted());
  EXPECT_EQ(other.mpirun->ended(), "it is not tandem of this version");
  TwoStreams chatter;
  for (int i = 0; i < 3; ++i) {
    chatter.send_bytes(std::string(30000, 'x'));
    chatter.mpirun->serve();
  }
  EXPECT_EQ(chatter.mpirun->ended(), "it is not tandem of this version");
}

}  // namespace
}  // namespace tandem::launch
