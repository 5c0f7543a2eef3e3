// Selection of the algorithm: requests in oneCCL's syntax and names, and the printed table.
#include "tandem/comm/algorithms/selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/core/error.h"

namespace tandem::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Environment environment_of(const std::string& variable, const std::string& text) {
  return Environment(std::map<std::string, std::string, std::less<>>{{variable, text}});
}

TEST(Selection, ReadsOneCclSyntax) {
  const Environment environment(
      {{"CCL_ALLREDUCE", "recursive_doubling:0-8192;ring:8193-max"}, {"CCL_REDUCE", "tree"}});
  const Selection selection = Selection::from_environment(environment);
  EXPECT_EQ(selection.find(Operation::kAllReduce, 8192), "recursive_doubling");
  EXPECT_EQ(selection.find(Operation::kAllReduce, 8193), "ring");
  EXPECT_EQ(selection.find(Operation::kReduce, 1), "tree");
  EXPECT_EQ(selection.find(Operation::kBroadcast, 1), std::nullopt);
  EXPECT_EQ(selection.describe(),
            "allreduce:recursive_doubling:0-8192;ring:8193-max reduce:tree:0-max");
  EXPECT_EQ(
      select_between_nodes(selection, Limits::fixed(1, 3), Operation::kAllReduce, 1 << 20, 3, true),
      Algorithm::kRing);
}

TEST(Selection, TheDefaultIsCanonicalEverywhere) {
  const auto select = [](std::size_t short_bytes, std::size_t bytes, int nodes, bool aligned) {
    return select_between_nodes(Selection(), {0, short_bytes}, Operation::kAllReduce, bytes, nodes,
                                aligned);
  };
  for (int nodes = 1; nodes <= 64; ++nodes) {
    for (std::size_t bytes = 1; bytes <= std::size_t{1} << 32; bytes *= 2) {
      // For any measurement.
      for (const std::size_t short_bytes :
           {std::size_t{0}, Limits::fixed(1, nodes).short_bytes, std::size_t{1} << 20, SIZE_MAX}) {
        EXPECT_TRUE(is_canonical(select(short_bytes, bytes, nodes, true), nodes));
        EXPECT_EQ(select(short_bytes, bytes, nodes, false), Algorithm::kExchange);
      }
    }
  }
}

TEST(Selection, MistakesAreNamed) {
  const auto message = [](const char* text) {
    Selection selection;
    try {
      selection.set(Operation::kAllReduce, text, "CCL_ALLREDUCE");
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_NE(message("rong").find(
                "unknown algorithm 'rong' for allreduce; there are topo, exchange, tree"),
            std::string::npos);
  EXPECT_NE(message("ring:8").find("lacks the range"), std::string::npos);
  EXPECT_NE(message("ring:8-x").find("the size 'x'"), std::string::npos);
  EXPECT_NE(message("ring:9-8").find("begins at 9"), std::string::npos);
  EXPECT_EQ(message("allreduce:ring:0-max;"), "accepted");
}

// All names on oneCCL's page of environment variables, including those of older versions.
TEST(Selection, KnowsTheNamesOfOneCcl) {
  struct Case {
    const char* variable;
    Operation operation;
    std::vector<std::string> names;
  };
  const std::vector<Case> cases = {
      {"CCL_ALLREDUCE",
       Operation::kAllReduce,
       {"direct", "rabenseifner", "nreduce", "ring", "double_tree", "recursive_doubling", "2d",
        "topo", "starlike", "ring_rma"}},
      {"CCL_REDUCE",
       Operation::kReduce,
       {"direct", "rabenseifner", "ring", "tree", "double_tree", "topo"}},
      {"CCL_REDUCE_SCATTER", Operation::kReduceScatter, {"direct", "naive", "ring", "topo"}},
      {"CCL_ALLGATHER",
       Operation::kAllGather,
       {"direct", "naive", "ring", "flat", "multi_bcast", "topo"}},
      {"CCL_ALLGATHERV",
       Operation::kAllGather,
       {"direct", "naive", "ring", "flat", "multi_bcast", "topo"}},
      {"CCL_ALLTOALL", Operation::kAllToAll, {"direct", "naive", "scatter", "topo"}},
      {"CCL_BCAST", Operation::kBroadcast, {"direct", "ring", "double_tree", "naive", "topo"}},
      {"CCL_BARRIER", Operation::kBarrier, {"direct", "ring", "topo"}}};
  for (const Case& one : cases) {
    for (const std::string& name : one.names) {
      const Selection selection =
          Selection::from_environment(environment_of(one.variable, name + ":0-100"));
      EXPECT_TRUE(selection.find(one.operation, 100).has_value()) << one.variable << " " << name;
      EXPECT_EQ(selection.find(one.operation, 101), std::nullopt);
      // Either the requested algorithm runs, or a note names the one that runs.
      if (selection.find(one.operation, 1) == name) {
        EXPECT_THAT(selection.notes, IsEmpty()) << one.variable << " " << name;
      } else {
        EXPECT_THAT(selection.notes, ElementsAre(HasSubstr("'" + name + "'")));
      }
    }
    EXPECT_THROW(Selection::from_environment(environment_of(one.variable, "nonsense")),
                 ConfigError);
  }
}

TEST(Selection, NamesWhatRunsInstead) {
  const auto notes = [](const char* variable, const char* text) {
    return Selection::from_environment(environment_of(variable, text)).notes;
  };
  EXPECT_THAT(
      notes("CCL_ALLREDUCE", "double_tree:0-8192;2d:8193-1000000;double_tree:1000001-max"),
      ElementsAre("CCL_ALLREDUCE: there is no 'double_tree' here, 'tree' is used instead",
                  "CCL_ALLREDUCE: there is no '2d' here, the table's choice is used instead"));
  EXPECT_THAT(notes("CCL_ALLGATHERV", "allgatherv:ring"),
              ElementsAre("CCL_ALLGATHERV: allgather has one algorithm here, 'ring' changes "
                          "nothing"));
  Selection selection;
  selection.set(Operation::kAllReduce, "nreduce", "CCL_ALLREDUCE");
  EXPECT_EQ(select_between_nodes(selection, {0, SIZE_MAX}, Operation::kAllReduce, 8, 4, true),
            Algorithm::kExchange);
}

TEST(Selection, TheTableIsPrinted) {
  const std::string text = describe_selection(Selection(), {12345, 8192}, 2, 4, true);
  EXPECT_EQ(text,
            "within a node of 2 ranks, all operations, by bytes that a rank gives:\n"
            "    0-56                 flag line\n"
            "    57-12345             slots\n"
            "    12346-max            staging ring, or in place in communicator memory\n"
            "between 4 nodes, by bytes of one rank's numbers:\n"
            "  all_reduce\n"
            "    1-8192               recursive_doubling\n"
            "    8193-max             exchange\n"
            "  reduce\n"
            "    1-8192               recursive_doubling\n"
            "    8193-max             exchange\n"
            "  reduce_scatter, where nodes differ in their number of ranks; else exchange\n"
            "    1-8192               recursive_doubling\n"
            "    8193-max             exchange\n"
            "  the others have one algorithm each\n");
  EXPECT_THAT(describe_selection(Selection(), {16384, 0}, 1, 1, true), IsEmpty());
}

// The printed sizes are the requested ones, not powers of two near them.
TEST(Selection, TheTableHasTheSizesThatWereAskedFor) {
  Selection selection;
  selection.set(Operation::kAllReduce, "recursive_doubling:0-1000;ring:1001-99999", "a test");
  selection.set(Operation::kReduce, "tree", "a test");
  EXPECT_THAT(describe_selection(selection, {16384, 8192}, 1, 4, true),
              HasSubstr("  all_reduce\n"
                        "    1-1000               recursive_doubling\n"
                        "    1001-99999           ring (asked for; sums not canonical)\n"
                        "    100000-max           exchange\n"
                        "  reduce\n"
                        "    1-max                tree\n"));
  // On nodes that are not subtrees only the exchange keeps the tree, and the table shows it.
  EXPECT_THAT(
      describe_selection(selection, {16384, 8192}, 1, 4, false),
      HasSubstr("    1-99999              exchange (what was asked for needs nodes whose ranks are "
                "one subtree)\n"
                "    100000-max           exchange\n"));
  EXPECT_THAT(describe_selection(selection, {16384, 8192}, 1, 4, true),
              HasSubstr("asked for: allreduce:recursive_doubling:0-1000;ring:1001-99999 "
                        "reduce:tree:0-max\n"));
}

}  // namespace
}  // namespace tandem::comm
