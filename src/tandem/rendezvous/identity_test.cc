// The rank from every launcher's variables; incomplete and contradictory variables.
#include "tandem/rendezvous/identity.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/net/socket.h"

namespace tandem::rendezvous {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string, std::less<>>;

Identity identify(Variables variables) {
  return rendezvous::identify(Environment(std::move(variables)));
}

std::string config_error(Variables variables) {
  try {
    const Identity identity = identify(std::move(variables));
    ADD_FAILURE() << "accepted: " << describe(identity);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Identity, NoVariablesIsASingleProcess) {
  const Identity identity = identify({});
  EXPECT_EQ(identity.world_size, 1);
  EXPECT_EQ(identity.rank, 0);
  EXPECT_FALSE(identity.distributed());
  EXPECT_EQ(describe(identity), "single process");
}

struct LauncherCase {
  const char* name;
  Variables variables;  // rank 3 of 4, local 1 of 2
  const char* source;
};

void PrintTo(const LauncherCase& one, std::ostream* out) { *out << one.name; }

class Launchers : public ::testing::TestWithParam<LauncherCase> {};

TEST_P(Launchers, RankAndSizeAreRead) {
  Variables variables = GetParam().variables;
  variables["MASTER_ADDR"] = "node0";
  variables["MASTER_PORT"] = "1234";
  const Identity identity = identify(variables);
  EXPECT_EQ(identity.rank, 3);
  EXPECT_EQ(identity.world_size, 4);
  EXPECT_EQ(identity.local_rank, 1);
  EXPECT_EQ(identity.local_size, 2);
  EXPECT_EQ(identity.source, GetParam().source);
  EXPECT_EQ(GetParam().variables.at(identity.variables.rank), "3");
  EXPECT_EQ(identity.master_addr, "node0");
  EXPECT_EQ(identity.master_port, 1234);
  EXPECT_FALSE(identity.loopback());
}

INSTANTIATE_TEST_SUITE_P(All, Launchers,
                         ::testing::Values(LauncherCase{"ByHand",
                                                        {{"RANK", "3"},
                                                         {"WORLD_SIZE", "4"},
                                                         {"LOCAL_RANK", "1"},
                                                         {"LOCAL_WORLD_SIZE", "2"}},
                                                        "RANK and WORLD_SIZE"},
                                           LauncherCase{"Torchrun",
                                                        {{"RANK", "3"},
                                                         {"WORLD_SIZE", "4"},
                                                         {"LOCAL_RANK", "1"},
                                                         {"LOCAL_WORLD_SIZE", "2"},
                                                         {"TORCHELASTIC_RESTART_COUNT", "0"}},
                                                        "torchrun"},
                                           LauncherCase{"Hydra",
                                                        {{"PMI_RANK", "3"},
                                                         {"PMI_SIZE", "4"},
                                                         {"MPI_LOCALRANKID", "1"},
                                                         {"MPI_LOCALNRANKS", "2"}},
                                                        "Hydra"},
                                           LauncherCase{"OpenMpi",
                                                        {{"OMPI_COMM_WORLD_RANK", "3"},
                                                         {"OMPI_COMM_WORLD_SIZE", "4"},
                                                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}},
                                                        "Open MPI"},
                                           LauncherCase{"Mvapich",
                                                        {{"MV2_COMM_WORLD_RANK", "3"},
                                                         {"MV2_COMM_WORLD_SIZE", "4"},
                                                         {"MV2_COMM_WORLD_LOCAL_RANK", "1"},
                                                         {"MV2_COMM_WORLD_LOCAL_SIZE", "2"}},
                                                        "MVAPICH2"},
                                           LauncherCase{"Slurm",
                                                        {{"SLURM_PROCID", "3"},
                                                         {"SLURM_NTASKS", "4"},
                                                         {"SLURM_LOCALID", "1"},
                                                         {"SLURM_NTASKS_PER_NODE", "2"},
                                                         {"SLURM_STEP_NODELIST", "n[1-2]"}},
                                                        "Slurm"}),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST(Identity, OneNodeNeedsNoMasterAddress) {
  const Identity identity = identify({{"RANK", "1"}, {"WORLD_SIZE", "2"}});
  EXPECT_EQ(identity.master_addr, "127.0.0.1");
  EXPECT_EQ(identity.master_port, 29500);
  EXPECT_EQ(identity.local_rank, 1);
  EXPECT_EQ(identity.local_size, 2);
  EXPECT_TRUE(identity.loopback());
}

TEST(Identity, TheFirstLauncherWins) {
  // srun's variables stay visible below mpirun and torchrun, and never contradict them.
  const Identity identity = identify({{"PMI_RANK", "1"},
                                      {"PMI_SIZE", "2"},
                                      {"SLURM_PROCID", "0"},
                                      {"SLURM_NTASKS", "1"},
                                      {"SLURM_STEP_NODELIST", "n1"}});
  EXPECT_EQ(identity.rank, 1);
  EXPECT_EQ(identity.source, "Hydra");
}

TEST(Identity, TorchrunUnderMpirunCountsItsOwnRanks) {
  const Identity identity = identify({{"PMI_RANK", "1"},
                                      {"PMI_SIZE", "2"},
                                      {"RANK", "3"},
                                      {"WORLD_SIZE", "4"},
                                      {"LOCAL_RANK", "1"},
                                      {"LOCAL_WORLD_SIZE", "2"},
                                      {"MASTER_ADDR", "node0"},
                                      {"TORCHELASTIC_RESTART_COUNT", "0"}});
  EXPECT_EQ(identity.rank, 3);
  EXPECT_EQ(identity.source, "torchrun");
}

TEST(Identity, IncompleteSettingsNameWhatIsThereAndWhatIsNot) {
  EXPECT_THAT(config_error({{"RANK", "1"}}),
              AllOf(HasSubstr("RANK=1"), HasSubstr("WORLD_SIZE is not set")));
  EXPECT_THAT(config_error({{"WORLD_SIZE", "2"}}),
              AllOf(HasSubstr("WORLD_SIZE=2"), HasSubstr("RANK is not set")));
  EXPECT_THAT(config_error({{"PMI_RANK", "0"}}), HasSubstr("PMI_SIZE is not set"));
  EXPECT_THAT(config_error({{"OMPI_COMM_WORLD_SIZE", "2"}}),
              HasSubstr("OMPI_COMM_WORLD_RANK is not set"));
  EXPECT_THAT(config_error({{"SLURM_STEP_NODELIST", "n1"}, {"SLURM_NTASKS", "2"}}),
              AllOf(HasSubstr("SLURM_PROCID"), HasSubstr("SLURM_NTASKS=2")));
}

TEST(Identity, ImpossibleSettingsNameTheValues) {
  EXPECT_THAT(config_error({{"RANK", "2"}, {"WORLD_SIZE", "2"}}),
              AllOf(HasSubstr("RANK=2"), HasSubstr("WORLD_SIZE=2")));
  EXPECT_THAT(config_error({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}), HasSubstr("'-1'"));
  EXPECT_THAT(config_error({{"RANK", "0"}, {"WORLD_SIZE", "two"}}),
              AllOf(HasSubstr("WORLD_SIZE"), HasSubstr("'two'")));
  EXPECT_THAT(config_error({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "4"}}),
              HasSubstr("LOCAL_WORLD_SIZE=4"));
  EXPECT_THAT(config_error({{"PMI_RANK", "0"},
                            {"PMI_SIZE", "4"},
                            {"MPI_LOCALRANKID", "2"},
                            {"MPI_LOCALNRANKS", "2"}}),
              AllOf(HasSubstr("MPI_LOCALRANKID=2"), HasSubstr("MPI_LOCALNRANKS=2")));
  EXPECT_THAT(config_error({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "70000"}}),
              AllOf(HasSubstr("MASTER_PORT"), HasSubstr("70000")));
}

TEST(Identity, ContradictionsNameBothSides) {
  // The classic: a shell with RANK=0 WORLD_SIZE=1 exported, then mpirun -n 2: two jobs of one rank
  // each.
  EXPECT_THAT(
      config_error({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}),
      AllOf(HasSubstr("RANK=0, WORLD_SIZE=1"), HasSubstr("PMI_RANK=1, PMI_SIZE=2")));
  EXPECT_THAT(config_error({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}}),
              AllOf(HasSubstr("PMI_SIZE=2"), HasSubstr("OMPI_COMM_WORLD_SIZE=4")));
}

TEST(Identity, SeveralNodesNeedAMeetingPoint) {
  EXPECT_THAT(config_error({{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "2"}}),
              HasSubstr("`MASTER_ADDR` env was not set"));
}

TEST(Identity, HydraPublishesTheAddressOfRankZero) {
  const net::FileDescriptor open(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const std::string number = std::to_string(open.get());
  const Identity identity = identify({{"PMI_RANK", "1"},
                                      {"PMI_SIZE", "4"},
                                      {"MPI_LOCALNRANKS", "2"},
                                      {"MPI_LOCALRANKID", "1"},
                                      {"PMI_FD", number}});
  EXPECT_EQ(identity.pmi_fd, open.get());
  EXPECT_FALSE(identity.loopback());
  EXPECT_THAT(describe(identity), HasSubstr("through the process manager"));
  // A wrapper (ssh, sudo) may have closed it.
  EXPECT_EQ(identify({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_FD", "987"}}).pmi_fd,
            std::nullopt);
}

// srun --mpi=pmi2 sets the ranks and the descriptor of PMI, and which ranks share a node as ever.
TEST(Identity, SlurmsProcessManagerReportsSeveralNodes) {
  const net::FileDescriptor open(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Identity identity = identify({{"PMI_RANK", "3"},
                                      {"PMI_SIZE", "4"},
                                      {"PMI_FD", std::to_string(open.get())},
                                      {"SLURM_PROCID", "3"},
                                      {"SLURM_STEP_NUM_TASKS", "4"},
                                      {"SLURM_LOCALID", "1"},
                                      {"SLURM_STEP_NODELIST", "n[1-2]"}});
  EXPECT_EQ(identity.rank, 3);
  EXPECT_EQ(identity.local_rank, 1);
  EXPECT_EQ(identity.local_size, 2);
  EXPECT_EQ(identity.pmi_fd, open.get());
  EXPECT_FALSE(identity.loopback()) << "rank 0 would listen where the other node cannot reach it";
}

// Ranks of an elastic agent use the address that the agent assigns.
TEST(Identity, AnElasticAgentsPortIsIgnored) {
  const Identity identity = identify({{"RANK", "0"},
                                      {"WORLD_SIZE", "2"},
                                      {"MASTER_PORT", "29500"},
                                      {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                      {"TANDEM_AGENT", "3:4:0:2:2:1"}});
  EXPECT_EQ(identity.note, "");
}

TEST(Identity, TheTokenIsInTheEnvironmentOrInAFile) {
  const auto token = [](const Variables& variables) {
    return job_token_of(Environment(variables));
  };
  const std::string path = ::testing::TempDir() + "token_of_job";
  write_file(path, "  of a file \n");
  EXPECT_EQ(token({}), "");
  EXPECT_EQ(token({{"TANDEM_JOB_TOKEN_FILE", path}}), "of a file");
  EXPECT_EQ(token({{"TANDEM_JOB_TOKEN_FILE", path}, {"TANDEM_JOB_TOKEN", "first"}}), "first");
  for (const char* text : {"", "\n", "two\nlines\n"}) {
    write_file(path, text);
    EXPECT_THROW(token({{"TANDEM_JOB_TOKEN_FILE", path}}), ConfigError) << text;
  }
  EXPECT_THROW(token({{"TANDEM_JOB_TOKEN_FILE", path + ".none"}}), ConfigError);
}

TEST(Identity, TorchrunsAgentKeepsItsPort) {
  const Variables base = {{"RANK", "0"},
                          {"WORLD_SIZE", "2"},
                          {"MASTER_PORT", "29500"},
                          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                          {"TORCHELASTIC_RESTART_COUNT", "2"}};
  const Identity derived = identify(base);
  EXPECT_EQ(derived.master_port, 29503);
  EXPECT_THAT(derived.note, AllOf(HasSubstr("29500"), HasSubstr("29503")));
  Variables chosen = base;
  chosen["TANDEM_PORT"] = "4000";
  EXPECT_EQ(identify(chosen).master_port, 4000);
  Variables last = base;
  last["MASTER_PORT"] = "65535";
  EXPECT_GE(identify(last).master_port, 1024);
}

TEST(Identity, ABatchScriptIsOneProcess) {
  const Identity identity =
      identify({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "0"}});
  EXPECT_FALSE(identity.distributed());
  EXPECT_THAT(identity.note, HasSubstr("srun"));
}

TEST(Identity, AnAddressOfIPv6MayHaveBrackets) {
  for (const char* address : {"::1", "[::1]"}) {
    const Identity identity = identify(
        {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", address}, {"MASTER_PORT", "1234"}});
    EXPECT_EQ(identity.master_addr, "::1");
    EXPECT_TRUE(identity.loopback());
    EXPECT_THAT(describe(identity), HasSubstr("at [::1]:1234"));
  }
}

TEST(Identity, LaunchersThatEndAllRanksAreKnown) {
  const Variables by_hand = {{"RANK", "0"}, {"WORLD_SIZE", "2"}};
  EXPECT_FALSE(identify(by_hand).ended_by_launcher);
  Variables torchrun = by_hand;
  torchrun["TORCHELASTIC_RESTART_COUNT"] = "0";
  EXPECT_TRUE(identify(torchrun).ended_by_launcher);
  EXPECT_TRUE(identify({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}).ended_by_launcher);
  EXPECT_FALSE(
      identify({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_STEP_NODELIST", "n1"}})
          .ended_by_launcher);
}

TEST(Identity, SlurmMeetsAtTheFirstHost) {
  const Identity identity = identify({{"SLURM_PROCID", "5"},
                                      {"SLURM_NTASKS", "6"},
                                      {"SLURM_LOCALID", "1"},
                                      {"SLURM_STEP_NODELIST", "cpu[07-09]"}});
  EXPECT_EQ(identity.master_addr, "cpu07");
  EXPECT_EQ(identity.local_size, 2);
  EXPECT_FALSE(identity.loopback());
}

TEST(Identity, SlurmNodeLists) {
  EXPECT_EQ(parse_slurm_nodelist("n1").first, "n1");
  EXPECT_EQ(parse_slurm_nodelist("n1").count, 1);
  const SlurmHosts hosts = parse_slurm_nodelist("n[07-09,12],m1");
  EXPECT_EQ(hosts.first, "n07");
  EXPECT_EQ(hosts.count, 5);
  EXPECT_EQ(parse_slurm_nodelist("a,b,c[1-2]").count, 4);
  for (const char* bad : {"", "n[", "n[1-", "n[2-1]", "n[x]", "n[1]m[2]", "[", "n[]"}) {
    EXPECT_THROW(parse_slurm_nodelist(bad), ConfigError) << bad;
  }
}

}  // namespace
}  // namespace tandem::rendezvous
