// `tandem bench comm` from outside. No figure is judged. A backend whose library or launcher is
// missing is skipped, and the test logs that.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "support/process.h"
#include "support/sanitizers.h"
#include "tandem/core/json.h"

namespace tandem::apps::bench {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Words = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

testing::ProcessResult bench_comm(Words words, Variables variables = {}, Words launcher = {}) {
  launcher.insert(
      launcher.end(),
      {(std::filesystem::path(TANDEM_BINARY_DIR) / "bin" / "tandem").string(), "bench", "comm"});
  launcher.insert(launcher.end(), words.begin(), words.end());
  variables.emplace("OMP_NUM_THREADS", "1");
  return testing::run(launcher, variables);
}

const Words kQuick = {"--rounds", "1", "--seconds", "0.001", "--json"};

Words quick(Words words) {
  words.insert(words.end(), kQuick.begin(), kQuick.end());
  return words;
}

json object_of(const testing::ProcessResult& done) {
  EXPECT_EQ(done.exit_code, 0) << done.err;
  const json object = json::parse(done.out, nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(object.is_object()) << done.out;
  return object.is_object() ? object : json{{"results", json::array()}, {"ranks", {}}};
}

void expect_times(const json& object) {
  for (const json& result : object["results"])
    EXPECT_GT(result["microseconds"]["median"].get<double>(), 0) << result;
}

// The backends take turns at every size, in the order of the list.
void expect_turns(const json& object, const std::vector<std::string>& backends) {
  const json& results = object["results"];
  ASSERT_FALSE(results.empty());
  ASSERT_EQ(results.size() % backends.size(), 0u);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const json& first = results[i - i % backends.size()];
    EXPECT_EQ(results[i]["backend"], backends[i % backends.size()]) << results[i];
    EXPECT_EQ(results[i]["name"], first["name"]);
  }
  expect_times(object);
}

// Why a plugin cannot run here; the messages name what to install.
bool is_missing(const testing::ProcessResult& done) {
  return done.exit_code != 0 && (done.err.find("apt install") != std::string::npos ||
                                 done.err.find("install the package") != std::string::npos);
}

TEST(BenchComm, TypesMemoriesAndNodes) {
  for (const char* type : {"f32", "bf16", "i8"}) {
    const json object = object_of(bench_comm(
        quick({"--ranks", "3", "--op", "all_reduce,reduce_scatter,all_to_all,send_receive,barrier",
               "--ranks-per-node", std::string_view(type) == "bf16" ? "2" : "3", "--dtype", type,
               "--memory", "both", "--min", "48", "--max", "60K", "--factor", "1024"})));
    EXPECT_EQ(object["results"].size(), 4u * 2 * 2 + 2);
    expect_turns(object, {"ccl"});
    EXPECT_THAT(object["ranks"]["ccl"].get<std::string>(), HasSubstr("tcp between ranks"));
  }
}

// More pieces than the ring is deep.
TEST(BenchComm, ShowsTheLimitsOfTheMachineNextToResults) {
  const json object = object_of(bench_comm(
      quick({"--op", "all_reduce,broadcast,all_gather,all_to_all", "--min", "2M", "--max", "2M"})));
  if (object["cores"].get<int>() < 2) GTEST_SKIP() << "two ranks need two cores";
  ASSERT_EQ(object["results"].size(), 4u);
  for (const json& result : object["results"]) {
    EXPECT_GT(result.value("limit_direct_microseconds", 0.0), 0) << result;
    EXPECT_GT(result.value("limit_staged_microseconds", 0.0), 0) << result;
  }
}

TEST(BenchComm, MistakesAreNamed) {
  const auto expect_error = [](const Words& words, const Variables& variables,
                               const std::string& message) {
    const auto done = bench_comm(words, variables);
    EXPECT_EQ(done.exit_code, 1) << message;
    EXPECT_THAT(done.err, HasSubstr(message));
    // By the program, not by each rank of it.
    EXPECT_EQ(done.err.find("tandem: error:"), done.err.rfind("tandem: error:")) << done.err;
  };
  expect_error({"--op", "all_reduc"}, {},
               "unknown operation 'all_reduc'; there are all_reduce, reduce");
  expect_error({"--backend", "nccl"}, {}, "no communication backend 'nccl': there are ccl, mpi");
  expect_error({"--backend", "ccl,gloo,ccl"}, {}, "'ccl' is named twice");
  expect_error({"--backend", "ccl,mpi"}, {}, "needs ranks that were started by an MPI launcher");
  expect_error({}, {{"CCL_ATL_TRANSPORT", "carrier"}}, "CCL_ATL_TRANSPORT is 'carrier'");
  expect_error({}, {{"CCL_LOG_LEVEL", "loud"}}, "CCL_LOG_LEVEL is 'loud'");
  expect_error({}, {{"CCL_ALLREDUCE", "rong"}}, "unknown algorithm 'rong' for allreduce");
}

TEST(BenchComm, HelpNamesTheBackends) {
  EXPECT_THAT(bench_comm({"--help"}).out,
              AllOf(HasSubstr("ccl, mpi or gloo"), HasSubstr("alternately")));
}

TEST(BenchComm, ReportsItsProgressAndWhatRuns) {
  const auto done = bench_comm(
      {"--max", "8", "--rounds", "1", "--seconds", "0.001", "--table", "--ranks-per-node", "1"},
      {{"CCL_LOG_LEVEL", "info"}, {"CCL_ALLREDUCE", "double_tree:0-1000;ring"}});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.err, AllOf(HasSubstr("rank 0 of 2"), HasSubstr("rank 1 of 2")));
  EXPECT_THAT(done.out, AllOf(HasSubstr("1-1000 "), HasSubstr("1001-max"),
                              HasSubstr("there is no 'double_tree' here, 'tree' is used instead")));
}

TEST(BenchComm, GlooInTurns) {
  const auto done =
      bench_comm(quick({"--backend", "ccl,gloo", "--ranks", "2", "--ranks-per-node", "1", "--op",
                        "all_reduce,send_receive,broadcast", "--min", "64", "--max", "64K",
                        "--factor", "1024", "--memory", "both"}));
  if (is_missing(done)) GTEST_SKIP() << done.err;
  const json object = object_of(done);
  EXPECT_EQ(object["results"].size(), 3u * 2 * 2 * 2);
  expect_turns(object, {"ccl", "gloo"});
  EXPECT_THAT(object["ranks"]["gloo"].get<std::string>(), HasSubstr("Gloo"));
}

TEST(BenchComm, LibfabricCarriesWhatCclSends) {
  const auto done = bench_comm(quick({"--op", "send_receive,all_reduce", "--min", "64", "--max",
                                      "64K", "--factor", "1024", "--ranks-per-node", "1"}),
                               {{"CCL_ATL_TRANSPORT", "ofi"}, {"FI_PROVIDER", "tcp;ofi_rxm"}});
  if (is_missing(done)) GTEST_SKIP() << done.err;
  const json object = object_of(done);
  expect_turns(object, {"ccl"});
  EXPECT_THAT(object["ranks"]["ccl"].get<std::string>(), HasSubstr("libfabric"));
}

// The ranks meet through MPI, and the other backends through its messages.
TEST(BenchComm, MpiIsComparedWithOthers) {
  if (testing::run({"sh", "-c", "command -v mpiexec.hydra"}).exit_code != 0)
    GTEST_SKIP() << "mpiexec.hydra is not installed (apt install mpich)";
  testing::expect_leaks_of_mpi();
  const Words launcher = {"mpiexec.hydra", "-n", "2"};
  const Words words =
      quick({"--backend", "ccl,mpi", "--op", "all_reduce,send_receive", "--ranks-per-node", "1",
             "--min", "64", "--max", "64K", "--factor", "1024"});
  const auto done = bench_comm(words, {}, launcher);
  if (is_missing(done)) GTEST_SKIP() << done.err;
  const json object = object_of(done);
  expect_turns(object, {"ccl", "mpi"});
  EXPECT_THAT(object["ranks"]["mpi"].get<std::string>(), HasSubstr("MPI"));
  EXPECT_THAT(object["ranks"]["ccl"].get<std::string>(), HasSubstr("tcp between ranks"));

  const auto without =
      bench_comm(words, {{"CCL_MPI_LIBRARY_PATH", "/no/such/libmpi.so"}}, launcher);
  EXPECT_NE(without.exit_code, 0);
  EXPECT_THAT(without.err + without.out, HasSubstr("install the package libmpich12"));
}

}  // namespace
}  // namespace tandem::apps::bench
