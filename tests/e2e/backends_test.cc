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
  std::string expected;      // in the start report
};

void PrintTo(const Backend& one, std::ostream* out) { *out << one.name; }

class Backends : public JobTest, public ::testing::WithParamInterface<Backend> {
 protected:
  void SetUp() override {
    const Backend& backend = GetParam();
    if (find_program(backend.program).empty()) GTEST_SKIP() << "needs " << backend.program;
    const auto plugins = std::filesystem::path(TANDEM_BINARY_DIR) / TANDEM_PLUGIN_FOLDER;
    if (!backend.plugin.empty() && !std::filesystem::exists(plugins / backend.plugin))
      GTEST_SKIP() << backend.plugin << " was not built: its library is not installed";
    if (backend.expected.find("MPI") != std::string::npos) expect_leaks_of_mpi();
  }

  static void add_variable(Words& words, const std::string& name, const std::string& value) {
    if (GetParam().equals_form) {
      words.insert(words.end(), {"-x", name + "=" + value});
    } else {
      words.insert(words.end(), {"-env", name, value});
    }
  }

  // The launcher's command for two nodes of `ranks` ranks each.
  Words on_two_nodes(const std::string& output, int ranks,
                     const std::vector<std::pair<std::string, std::string>>& variables = {}) const {
    const Backend& backend = GetParam();
    Words words = {find_program(backend.program)};
    words.insert(words.end(), backend.launcher_flags.begin(), backend.launcher_flags.end());
    for (const std::string node : {"first", "second"}) {
      if (node == "second") words.emplace_back(":");
      words.insert(words.end(), {"-n", std::to_string(ranks)});
      add_variable(words, "TANDEM_NODE_ID", node);
      add_variable(words, "OMP_NUM_THREADS", "1");
      for (const auto& [name, value] : variables) add_variable(words, name, value);
      if (!backend.transport.empty()) add_variable(words, "CCL_ATL_TRANSPORT", backend.transport);
      const Words command = train_command(output, {"--ddp_backend", backend.flag});
      words.insert(words.end(), command.begin(), command.end());
    }
    return words;
  }
  static Variables port() { return {{"MASTER_PORT", std::to_string(free_port())}}; }

  void expect_bits_of_one_rank(int ranks) {
    const std::string shards = std::to_string(2 * ranks);
    run_reference(train_command("one" + shards, {"--logical_shards", shards}), "one" + shards);
    const ProcessResult result = run_ok(on_two_nodes("several" + shards, ranks), port());
    EXPECT_NE(result.out.find("on 2 nodes"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find(GetParam().expected), std::string::npos) << result.out;
    EXPECT_TRUE(weights("one" + shards) == weights("several" + shards)) << "other weights";
  }
};

TEST_P(Backends, TwoNodesOfOneRankHaveTheBitsOfOneRank) { expect_bits_of_one_rank(1); }
TEST_P(Backends, TwoNodesOfTwoRanksHaveTheBitsOfOneRank) { expect_bits_of_one_rank(2); }

// Bits flip below the plugin (tests/support/damaging_plugin.cc): the same weights, or exit code 200
// and the name of the link.
TEST_P(Backends, DamagedMessagesAreNamedOrTheBitsAreTheSame) {
  const Backend& backend = GetParam();
  if (backend.plugin.empty()) return;  // multihost/damaged_link_test.cc
  const auto real =
      std::filesystem::path(TANDEM_BINARY_DIR) / TANDEM_PLUGIN_FOLDER / backend.plugin;
  std::filesystem::create_directories(path("plugins"));
  std::filesystem::create_symlink(std::filesystem::path(TANDEM_BINARY_DIR) / "damaging_plugin.so",
                                  path("plugins") / backend.plugin);
  run_reference(train_command("one", {"--logical_shards", "2"}), "one");
  int named = 0;
  for (const int every : {0, 1, 7, 40, 150, 1000000}) {
    const std::string output = fmt::format("every{}", every);
    const ProcessResult result =
        run(on_two_nodes(output, 1,
                         {{"TANDEM_PLUGIN_PATH", path("plugins").native()},
                          {"TANDEM_TEST_PLUGIN", real.native()},
                          {"TANDEM_TEST_FLIP_EVERY", std::to_string(every)}}),
            port());
    const bool damaged = result.err.find("the link from rank 0") != std::string::npos &&
                         result.err.find("is damaged: ") != std::string::npos;
    named += damaged ? 1 : 0;
    EXPECT_EQ(result.exit_code, damaged ? 200 : 0) << every << result.out << result.err;
    if (result.exit_code == 0) {
      EXPECT_TRUE(weights("one") == weights(output)) << every;
    }
  }
  EXPECT_GE(named, 3);
}

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
