// The numbers under the evaluators: numpy's mean, ties, empty sides, a search in pieces.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/tasks/ranking/binary_scores.h"
#include "tandem/tasks/ranking/correlation.h"
#include "tandem/tasks/ranking/evaluators.h"
#include "tandem/tasks/ranking/numpy_mean.h"
#include "tandem/tasks/ranking/ranked_list.h"
#include "tandem/tasks/ranking/search.h"

namespace tandem::tasks::ranking {
namespace {

TEST(NumpyMean, HasItsBits) {
  // numpy.mean of 1 / (i + 3) for i in range(n), numpy 2.4.
  const auto mean = [](std::size_t n) {
    std::vector<double> values;
    for (std::size_t i = 0; i < n; ++i) values.push_back(1 / static_cast<double>(i + 3));
    return numpy_mean(values);
  };
  EXPECT_EQ(mean(7), 0.18985260770975057);
  EXPECT_EQ(mean(20), 0.10954066251086374);
  EXPECT_EQ(mean(300), 0.01596432465904621);
  EXPECT_TRUE(std::isnan(mean(0)));
}

TEST(Correlation, SharesRanksBetweenEqualValues) {
  EXPECT_EQ(average_ranks(std::vector<double>{3, 1, 3, 2}), (std::vector<double>{3.5, 1, 3.5, 2}));
  EXPECT_DOUBLE_EQ(spearman(std::vector<double>{1, 2, 3}, std::vector<double>{1, 4, 9}), 1);
  EXPECT_TRUE(std::isnan(pearson(std::vector<double>{1, 1}, std::vector<double>{1, 2})));
}

// Values of scikit-learn 1.9.
TEST(RankedList, TiesAreThoseOfTheirLibraries) {
  const std::vector<int> relevant = {1, 0, 1, 0, 0};
  const std::vector<float> scores = {0.5f, 0.5f, 0.2f, 0.9f, 0.2f};
  EXPECT_DOUBLE_EQ(average_precision(relevant, scores), 0.3666666666666667);
  EXPECT_DOUBLE_EQ(ndcg_at(10, relevant, scores), 0.5973461194795789);
  EXPECT_DOUBLE_EQ(ndcg_at(2, relevant, scores), 0.19342640361727076);
  EXPECT_EQ(reciprocal_rank_at(10, relevant, scores, Ties::kEarlierFirst), 1.0 / 2);
  EXPECT_EQ(reciprocal_rank_at(10, relevant, scores, Ties::kLaterFirst), 1.0 / 3);
  EXPECT_EQ(reciprocal_rank_at(1, relevant, scores, Ties::kEarlierFirst), 0);
  EXPECT_EQ(average_precision(std::vector<int>{0, 0}, std::vector<float>{1, 2}), 0);
}

TEST(BinaryScoresTest, OneClassAndOneRow) {
  const BinaryScores none =
      binary_scores(std::vector<int>{0, 0, 0}, std::vector<float>{1, 2, 3}, false);
  EXPECT_EQ(none.f1, 0);
  EXPECT_EQ(none.mcc, 0);
  const BinaryScores one = binary_scores(std::vector<int>{1}, std::vector<float>{1}, false);
  EXPECT_EQ(one.accuracy, 0);
  EXPECT_EQ(one.accuracy_threshold, -1);
}

TEST(Evaluators, WriteAHeaderOnceAndTheLinesOfPython) {
  EvaluatorResult result =
      cross_encoder_classes(std::vector<int>{0, 1, 2, 2}, std::vector<int>{0, 1, 1, 2}, "");
  EXPECT_EQ(csv_text(result.table, {0.5, 3}, true),
            "epoch,steps,Macro_F1,Micro_F1,Weighted_F1\r\n"
            "0.5,3,0.7777777777777777,0.75,0.7499999999999999\r\n");
  EXPECT_EQ(csv_text(result.table, {1, 6}, false),
            "1.0,6,0.7777777777777777,0.75,0.7499999999999999\r\n");
  EXPECT_EQ(result.table.file, "CrossEncoderClassificationEvaluator_results.csv");
}

TEST(Evaluators, AppendRowsToTheirTable) {
  const tandem::testing::TemporaryFolder folder;
  CsvTable table{.file = "t.csv", .header = {"epoch", "steps", "x"}, .cells = {"1"}};
  const auto text = [&] { return read_file(folder.path() / "eval" / "t.csv"); };
  append_row(folder.path() / "eval", table, {std::nullopt, 0});
  EXPECT_EQ(text(), "epoch,steps,x\r\n0,0,1\r\n");
  append_row(folder.path() / "eval", table, {1.0, 6});
  append_row(folder.path() / "eval", table, {1.0, 6});
  EXPECT_EQ(text(), "epoch,steps,x\r\n0,0,1\r\n1.0,6,1\r\n1.0,6,1\r\n");
  table.cells = {"2"};
  append_row(folder.path() / "eval", table, {1.0, 6}, 2);
  EXPECT_EQ(text(), "epoch,steps,x\r\n0,0,1\r\n1.0,6,1\r\n1.0,6,2\r\n");
  append_row(folder.path() / "eval", table, {1.0, 6}, 1);
  EXPECT_EQ(text(), "epoch,steps,x\r\n0,0,1\r\n1.0,6,2\r\n");
}

TEST(Evaluators, RerankingLeavesOutQueriesWithOneKindOfDocument) {
  const std::vector<RankedQuery> queries = {
      {{1, 0}, {0.9f, 0.1f}}, {{1, 1}, {0.1f, 0.2f}}, {{0, 0}, {0.1f, 0.2f}}};
  EXPECT_EQ(reranking(queries, 10, "").metrics[0].second, 1);
  // A cross-encoder's query without a relevant document counts as 0.
  EXPECT_NEAR(cross_encoder_reranking(queries, {}, 10, "").metrics[0].second, 2.0 / 3, 1e-15);
}

class SearchTest : public ::testing::Test {
 protected:
  std::vector<float> random_texts(std::size_t count, unsigned seed) const {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(count * kWidth);
    for (float& value : values) value = normal(random);
    return values;
  }
  static constexpr std::size_t kWidth = 24;
};

TEST_F(SearchTest, HitsDependNeitherOnPiecesNorOnThreads) {
  const std::vector<float> queries = random_texts(70, 1), corpus = random_texts(1300, 2);
  const kernels::KernelSet set = kernels::select_kernels(kernels::CpuFeatures::detect());
  for (const SimilarityFunction& function : similarity_functions()) {
    std::vector<std::vector<Hit>> first;
    for (const std::size_t piece : {std::size_t{1300}, std::size_t{513}, std::size_t{7}}) {
      const int count = piece == 7 ? 3 : 1;
      ThreadPool threads(count);
      kernels::Scratch scratch(count);
      Search search(function, {queries, kWidth}, 10,
                    [](std::size_t a, std::size_t b) { return a < b; });
      for (std::size_t at = 0; at < 1300; at += piece)
        search.add(
            {std::span(corpus).subspan(at * kWidth, std::min(piece, 1300 - at) * kWidth), kWidth},
            {threads, set, scratch});
      const auto hits = search.take_hits();
      if (first.empty()) first = hits;
      for (std::size_t query = 0; query < 70; ++query)
        for (std::size_t k = 0; k < 10; ++k) {
          EXPECT_EQ(hits[query][k].document, first[query][k].document);
          EXPECT_EQ(hits[query][k].score, first[query][k].score);
        }
    }
  }
}

TEST_F(SearchTest, FindsWhatComparingAllFinds) {
  const std::vector<float> queries = random_texts(3, 4), corpus = random_texts(600, 5);
  const kernels::KernelSet set = kernels::select_kernels(kernels::CpuFeatures::detect());
  ThreadPool threads(2);
  kernels::Scratch scratch(2);
  for (const SimilarityFunction& function : similarity_functions()) {
    Search search(function, {queries, kWidth}, 1000,
                  [](std::size_t a, std::size_t b) { return a < b; });
    search.add({corpus, kWidth}, {threads, set, scratch});
    const auto hits = search.take_hits();
    for (std::size_t query = 0; query < 3; ++query) {
      ASSERT_EQ(hits[query].size(), 600u);
      for (const Hit& hit : hits[query]) {
        const double value =
            function.pair->value(std::span(queries).subspan(query * kWidth, kWidth),
                                 std::span(corpus).subspan(hit.document * kWidth, kWidth));
        EXPECT_NEAR(hit.score, function.is_distance ? -value : value, 2e-5);
      }
      for (std::size_t k = 1; k < 600; ++k)
        EXPECT_GE(hits[query][k - 1].score, hits[query][k].score);
    }
  }
}

TEST(SimilarityFunctions, UnknownNamesAreRefused) {
  EXPECT_EQ(similarity_function("dot").similarity, Similarity::kDot);
  EXPECT_THROW(similarity_function("cos_sim"), ConfigError);
}

}  // namespace
}  // namespace tandem::tasks::ranking
