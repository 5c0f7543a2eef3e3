// The same bits whatever library carries the messages: jobs of two ranks on two nodes and of four
// on two, against one rank that does all the shards. Nodes are made of one machine by
// TANDEM_NODE_ID, so what they exchange goes through the library.
#include "e2e/job.h"
#include "support/sanitizers.h"

namespace tandem::testing {
namespace {

struct Backend {
  std::string name;
  std::string plugin;   // file of the plugin; none for tcp
  std::string program;  // launcher
  std::vector<std::string> launcher_flags;
  bool equals_form = false;  // -x NAME=VALUE instead of -env NAME VALUE
  std::string flag;          // --ddp_backend
  std::string transport;     // CCL_ATL_TRANSPORT
  std::string said;          // in the start report
};

class Backends : public JobTest, public ::testing::WithParamInterface<Backend> {
 protected:
  void SetUp() override {
    const Backend& backend = GetParam();
    if (find_program(backend.program).empty()) GTEST_SKIP() << "needs " << backend.program;
    const auto plugins = std::filesystem::path(TANDEM_BINARY_DIR) / TANDEM_PLUGIN_FOLDER;
    if (!backend.plugin.empty() && !std::filesystem::exists(plugins / backend.plugin))
      GTEST_SKIP() << backend.plugin << " was not built: its library is not installed";
    if (backend.said.find("MPI") != std::string::npos) expect_leaks_of_mpi();
  }

  static void add_variable(Words& words, const std::string& name, const std::string& value) {
    if (GetParam().equals_form) {
      words.insert(words.end(), {"-x", name + "=" + value});
    } else {
      words.insert(words.end(), {"-env", name, value});
    }
  }

  // Two nodes of `ranks` ranks each.
  ProcessResult run_on_two_nodes(const std::string& output, int ranks) const {
    const Backend& backend = GetParam();
    Words words = {find_program(backend.program)};
    words.insert(words.end(), backend.launcher_flags.begin(), backend.launcher_flags.end());
    for (const std::string node : {"first", "second"}) {
      if (node == "second") words.emplace_back(":");
      words.insert(words.end(), {"-n", std::to_string(ranks)});
      add_variable(words, "TANDEM_NODE_ID", node);
      add_variable(words, "OMP_NUM_THREADS", "1");
      if (!backend.transport.empty()) add_variable(words, "CCL_ATL_TRANSPORT", backend.transport);
      const Words command = train_command(output, {"--ddp_backend", backend.flag});
      words.insert(words.end(), command.begin(), command.end());
    }
    return run_ok(words, {{"MASTER_PORT", std::to_string(free_port())}});
  }

  void expect_bits_of_one_rank(int ranks) {
    const std::string shards = std::to_string(2 * ranks);
    run_ok(train_command("one" + shards, {"--logical_shards", shards}));
    const ProcessResult result = run_on_two_nodes("several" + shards, ranks);
    EXPECT_NE(result.out.find("on 2 nodes"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find(GetParam().said), std::string::npos) << result.out;
    EXPECT_TRUE(weights("one" + shards) == weights("several" + shards)) << "other weights";
  }
};

TEST_P(Backends, TwoNodesOfOneRankHaveTheBitsOfOneRank) { expect_bits_of_one_rank(1); }
TEST_P(Backends, TwoNodesOfTwoRanksHaveTheBitsOfOneRank) { expect_bits_of_one_rank(2); }

INSTANTIATE_TEST_SUITE_P(
    All, Backends,
    ::testing::Values(
        Backend{"Tcp", "", "mpiexec.hydra", {}, false, "ccl", "", "tcp between ranks"},
        Backend{"Ofi", "tandem_ofi.so", "mpiexec.hydra", {}, false, "ccl", "ofi", "libfabric 1."},
        Backend{"CclOverMpi", "tandem_mpich.so", "mpiexec.hydra", {}, false, "ccl", "mpi", "MPICH"},
        Backend{"Mpich", "tandem_mpich.so", "mpiexec.hydra", {}, false, "mpi", "", "MPICH"},
        Backend{"OpenMpi",
                "tandem_openmpi.so",
                "mpirun.openmpi",
                {"--allow-run-as-root", "--oversubscribe"},
                true,
                "mpi",
                "",
                "Open MPI v"},
        Backend{"Gloo", "tandem_gloo.so", "mpiexec.hydra", {}, false, "gloo", "", "Gloo, tcp"}),
    [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace tandem::testing
