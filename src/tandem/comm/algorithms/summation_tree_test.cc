// The sums do not depend on the ranks that compute them: checked symbolically for every number of
// leaves and ranks.
#include "tandem/comm/algorithms/summation_tree.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

namespace tandem::comm {
namespace {

// The definition, written out: "((0+1)+2)".
std::string whole_tree(int begin, int end) {
  if (end - begin == 1) return std::to_string(begin);
  int left = 1;
  while (left * 2 < end - begin) left *= 2;
  return fmt::format("({}+{})", whole_tree(begin, begin + left), whole_tree(begin + left, end));
}

std::string run(const SumProgram& program, const std::vector<std::string>& operands) {
  std::vector<std::string> stack;
  for (const int entry : program) {
    if (entry != kAdd) {
      stack.push_back(operands[static_cast<std::size_t>(entry)]);
      continue;
    }
    const std::string right = stack.back();
    stack.pop_back();
    stack.back() = fmt::format("({}+{})", stack.back(), right);
  }
  EXPECT_EQ(stack.size(), 1u);
  return stack.back();
}

TEST(SummationTree, KnownShapes) {
  EXPECT_EQ(whole_tree(0, 4), "((0+1)+(2+3))");
  EXPECT_EQ(whole_tree(0, 6), "(((0+1)+(2+3))+(4+5))");
  EXPECT_EQ(left_leaves(2), 1);
  EXPECT_EQ(left_leaves(3), 2);
  EXPECT_EQ(left_leaves(8), 4);
  EXPECT_EQ(left_leaves(9), 8);
}

TEST(SummationTree, OwnedSubtreesAreMaximalAndTileTheLeaves) {
  // 6 leaves on 2 ranks, 3 each: rank 0 can add 0+1 but 2 belongs with 3; rank 1 has 3 and (4+5).
  const auto found = owned_subtrees(6, [](int leaf) { return leaf / 3; });
  EXPECT_EQ(found, (std::vector<Subtree>{{0, 2, 0}, {2, 3, 0}, {3, 4, 1}, {4, 6, 1}}));
  EXPECT_EQ(owned_subtrees(7, [](int) { return 5; }), (std::vector<Subtree>{{0, 7, 5}}));
  EXPECT_TRUE(owned_subtrees(0, [](int) { return 0; }).empty());
}

// Contiguous runs of any number of ranks, and ranks spread over two nodes in blocks or alternately,
// give the same expression.
TEST(SummationTree, TheAdditionsAreTheSameForAnyNumberOfRanksAndNodes) {
  for (int leaves = 1; leaves <= 64; ++leaves) {
    const std::string expected = whole_tree(0, leaves);
    for (int ranks = 1; ranks <= std::min(8, leaves); ++ranks) {
      const auto rank_of = [&](int leaf) {
        int rank = 0;
        for (int begin = 0;; ++rank) {
          begin += leaves / ranks + (rank < leaves % ranks ? 1 : 0);
          if (leaf < begin) return rank;
        }
      };
      const auto partials = owned_subtrees(leaves, rank_of);
      std::vector<std::string> values;
      int next = 0;
      for (const Subtree& partial : partials) {
        EXPECT_EQ(partial.begin, next);
        next = partial.end;
        for (int leaf = partial.begin; leaf < partial.end; ++leaf)
          EXPECT_EQ(rank_of(leaf), partial.owner);
        values.push_back(whole_tree(partial.begin, partial.end));
      }
      EXPECT_EQ(next, leaves);
      ASSERT_EQ(run(sum_program(0, leaves, partials), values), expected)
          << leaves << " on " << ranks;

      for (const bool in_turn : {false, true}) {
        const auto node_of = [&](int leaf) {
          return in_turn ? rank_of(leaf) % 2 : rank_of(leaf) * 2 / ranks;
        };
        const auto node_partials = owned_subtrees(leaves, node_of);
        std::vector<std::string> node_values;
        for (const Subtree& node_partial : node_partials) {
          // A node adds its own ranks' partials, which tile each of its subtrees.
          node_values.push_back(
              run(sum_program(node_partial.begin, node_partial.end, partials), values));
        }
        ASSERT_EQ(run(sum_program(0, leaves, node_partials), node_values), expected);
      }
    }
  }
}

}  // namespace
}  // namespace tandem::comm
