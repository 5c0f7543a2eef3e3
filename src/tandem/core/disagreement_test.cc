#include "tandem/core/disagreement.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string describe(const std::vector<std::string>& texts) {
  return describe_disagreement(texts, [](int rank) { return fmt::format("rank {}", rank); });
}

TEST(Disagreement, NamesOnlyTheLinesThatDifferRankByRank) {
  const std::string common = "a=1\nb=2\nlong=" + std::string(5000, 'x') + "\n";
  EXPECT_EQ(describe({common + "seed=42\n", common + "seed=43\n", common + "seed=42\n"}),
            "seed: 42 on rank 0 and rank 2, 43 on rank 1");
  EXPECT_EQ(describe({"a=1\n", "a=1\nb=2\n"}), "b: nothing on rank 0, 2 on rank 1");
}

TEST(Disagreement, OrderIsIgnoredAndEqualTextsDoNotDiffer) {
  EXPECT_EQ(describe({"a=1\nb=2\n", "b=2\na=1\n"}), "");
  EXPECT_EQ(describe({"", ""}), "");
}

TEST(Disagreement, AListBecomesLines) {
  EXPECT_EQ(lines_of_list("gemm=vector,layer_norm=avx2,processor=EPYC with AVX2, AVX-512"),
            "gemm=vector\nlayer_norm=avx2\nprocessor=EPYC with AVX2, AVX-512");
}

TEST(Disagreement, ATextWithoutNamesIsOneValue) {
  EXPECT_EQ(describe({"0123", "0124"}), "0123 on rank 0, 0124 on rank 1");
}

TEST(Disagreement, AnEmptyValueIsNamedEmpty) {
  EXPECT_EQ(describe({"algorithms=\n", "algorithms=ring\n"}),
            "algorithms: (empty) on rank 0, ring on rank 1");
}

TEST(Disagreement, LongValuesAreShownWhole) {
  const std::string one = std::string(900, 'x') + "a" + std::string(900, 'y');
  const std::string other = std::string(900, 'x') + "b" + std::string(900, 'y');
  EXPECT_EQ(describe({"file=" + one + "\n", "file=" + other + "\n"}),
            "file: " + one + " on rank 0, " + other + " on rank 1");
}

TEST(Disagreement, ManyLinesAndManyRanksAreCounted) {
  std::string left, right;
  for (int i = 0; i < 20; ++i) {
    left += fmt::format("k{}=l\n", i);
    right += fmt::format("k{}=r\n", i);
  }
  const std::string text = describe({left, left, left, left, left, left, right});
  EXPECT_THAT(text, AllOf(HasSubstr("and 8 more"), HasSubstr("rank 3 and 2 more"),
                          Not(HasSubstr("rank 4"))));
}

}  // namespace
}  // namespace tandem
