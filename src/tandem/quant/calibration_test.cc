#include "tandem/quant/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <mutex>

#include "tandem/comm/collectives/test_ranks.h"
#include "tandem/core/error.h"
#include "tandem/data/epoch_order.h"
#include "tandem/data/read_questions.h"
#include "tandem/models/test_models.h"
#include "tandem/tasks/question_answering/question_answering_task.h"

namespace tandem::quant {
namespace {

namespace fs = std::filesystem;
using comm::Communicator;
using comm::testing::run_threads;
using question_answering::Padding;
using question_answering::QuestionAnsweringTask;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Lt;

const fs::path kDemo = fs::path(TANDEM_SOURCE_DIR) / "examples" / "demo";

const nn::Linear kLinear = {.weight = 16, .bias = 32, .out_features = 4, .in_features = 3};
const nn::Linear kOther = {.weight = 0, .bias = 12, .out_features = 4, .in_features = 3};
const std::vector<LinearLayer> kOneLayer = {
    {.modules = {{"m", 4}}, .block = "b.0", .linear = kLinear}};

void alone(const std::function<void(Communicator&)>& body) {
  EXPECT_THAT(run_threads(1, body), Each(IsEmpty()));
}

TEST(ExtremesObserver, KeepsTheLayersItWasMadeFor) {
  alone([](Communicator& communicator) {
    ThreadPool threads(2);
    ExtremesObserver observer(threads, kOneLayer);
    const std::vector<float> x = {1, 2, 3, -0.5f, 7, 2};
    observer.saw(kLinear, 2, x.data());
    observer.saw(kOther, 1, std::vector<float>{100, -100, 0}.data());
    EXPECT_EQ(observer.reduce(communicator).front(), (Extremes{-0.5f, 7}));
  });
}

TEST(ExtremesObserver, ZeroIsAlwaysInTheRange) {
  alone([](Communicator& communicator) {
    ThreadPool threads(1);
    ExtremesObserver observer(threads, kOneLayer);
    observer.saw(kLinear, 1, std::vector<float>{3, 4, 5}.data());
    EXPECT_EQ(observer.reduce(communicator).front(), (Extremes{0, 5}));
  });
}

TEST(ExtremesObserver, InputsThatAreNotFiniteNameTheLayerOnEveryRank) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    const auto errors = run_threads(2, [&](Communicator& communicator) {
      ThreadPool threads(1);
      ExtremesObserver observer(threads, kOneLayer);
      std::vector<float> x(300, 1.0f);
      if (communicator.rank() == 1) x[200] = bad;
      observer.saw(kLinear, 100, x.data());
      observer.reduce(communicator);
    });
    EXPECT_THAT(errors, Each(HasSubstr("the input of m is not finite")));
  }
}

TEST(HistogramObserver, CountsEveryValueOnce) {
  alone([](Communicator& communicator) {
    ThreadPool threads(2);
    HistogramObserver observer(threads, kOneLayer, std::vector<Extremes>{{-1, 1}});
    std::vector<float> x(300000);
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<float>(i % 2049) / 1024.0f - 1.0f;  // the edges of all bins
    }
    observer.saw(kLinear, x.size() / 3, x.data());
    const Histogram histogram = observer.reduce(communicator).front();
    std::int64_t total = 0;
    for (const std::int64_t count : histogram.counts) total += count;
    EXPECT_EQ(total, 300000);
    EXPECT_EQ(histogram.counts.front(), 147);     // 300000 = 146 · 2049 + 846
    EXPECT_EQ(histogram.counts.back(), 146 * 2);  // the last edge too
  });
}

// `count` values of a normal distribution between the extremes.
Histogram normal_histogram(double deviation, double count, const Extremes& extremes) {
  Histogram histogram{extremes, std::vector<std::int64_t>(HistogramObserver::kBins)};
  const double width = (static_cast<double>(extremes.max) - extremes.min) / 2048;
  const auto below = [&](double x) { return 0.5 * std::erfc(-x / deviation / std::sqrt(2.0)); };
  for (std::size_t b = 0; b < histogram.counts.size(); ++b) {
    const double begin = extremes.min + static_cast<double>(b) * width;
    histogram.counts[b] =
        static_cast<std::int64_t>(std::llround(count * (below(begin + width) - below(begin))));
  }
  return histogram;
}

// The cost of a range, value by value: the plain reference of the search's sums.
double squared_error(const Histogram& histogram, const kernels::Int8Range& range) {
  const double width =
      (static_cast<double>(histogram.extremes.max) - histogram.extremes.min) / 2048;
  double error = 0;
  for (std::size_t b = 0; b < histogram.counts.size(); ++b) {
    for (const double part : {0.1, 0.3, 0.5, 0.7, 0.9}) {
      const double value = histogram.extremes.min + (static_cast<double>(b) + part) * width;
      const double q =
          std::clamp(std::nearbyint(value / range.scale) + range.zero_point, 0.0, 255.0);
      const double difference = (q - range.zero_point) * range.scale - value;
      error += 0.2 * static_cast<double>(histogram.counts[b]) * difference * difference;
    }
  }
  return error;
}

float low(const kernels::Int8Range& range) {
  return -static_cast<float>(range.zero_point) * range.scale;
}
float high(const kernels::Int8Range& range) {
  return static_cast<float>(255 - range.zero_point) * range.scale;
}

TEST(LeastErrorRange, AnEvenDistributionKeepsAlmostItsWholeRange) {
  const Histogram even{{-1, 3}, std::vector<std::int64_t>(2048, 1000)};
  const kernels::Int8Range range = least_error_range(even);
  EXPECT_THAT(low(range), AllOf(Lt(-0.97f), Gt(-1.01f)));
  EXPECT_THAT(high(range), AllOf(Gt(2.95f), Lt(3.01f)));
}

TEST(LeastErrorRange, FarValuesThatAreFewAreCutOff) {
  Histogram histogram = normal_histogram(1, 1e9, {-8, 40});
  histogram.counts.back() += 20;  // 20 values near 40
  const kernels::Int8Range range = least_error_range(histogram);
  EXPECT_THAT(high(range), AllOf(Gt(3.5f), Lt(8.0f)));
  EXPECT_THAT(low(range), AllOf(Lt(-3.5f), Gt(-6.0f)));
  // Against the whole range, and against the best symmetric one of a fine grid.
  const double found = squared_error(histogram, range);
  EXPECT_LT(found, 0.2 * squared_error(histogram, kernels::int8_range(-8, 40)));
  for (float end = 3; end <= 8; end += 0.01f) {
    EXPECT_LT(found, 1.03 * squared_error(histogram, kernels::int8_range(-end, end))) << end;
  }
}

TEST(LeastErrorRange, EnoughFarValuesAreKept) {
  Histogram histogram = normal_histogram(1, 1e5, {-4, 40});
  histogram.counts.back() += 1000;
  EXPECT_GT(high(least_error_range(histogram)), 38.0f);
}

TEST(LeastErrorRange, OneSidedAndEmptyInputs) {
  EXPECT_EQ(low(least_error_range(normal_histogram(1, 1e6, {0, 5}))), 0.0f);
  EXPECT_EQ(high(least_error_range(normal_histogram(1, 1e6, {-5, 0}))), 0.0f);
  EXPECT_EQ(least_error_range({{0, 0}, std::vector<std::int64_t>(2048, 0)}), kernels::Int8Range{});
}

TEST(CalibrationSet, IsTheBeginningOfTheFirstEpoch) {
  const CalibrationSet set = calibration_set(50, 7, 42, 4);
  const std::vector<std::uint32_t> order = data::epoch_permutation(50, 42, 0);
  EXPECT_EQ(set.features, std::vector<std::uint32_t>(order.begin(), order.begin() + 7));
  EXPECT_EQ(calibration_set(3, 100, 42, 4).features.size(), 3u);
}

// Results of calibrating the demo's model.
struct Found {
  std::vector<Extremes> extremes;
  std::vector<std::vector<std::int64_t>> counts;
  std::vector<kernels::Int8Range> ranges;
  friend bool operator==(const Found&, const Found&) = default;
};

Found calibrate(Communicator& communicator, int num_threads, Padding padding) {
  const text::Tokenizer tokenizer = text::Tokenizer::load(kDemo / "model");
  models::testing::TestContext owner(num_threads);
  const kernels::Context context = owner;
  QuestionAnsweringTask task(models::ModelConfig::load(kDemo / "model"), tokenizer,
                             {.padding = padding});
  const auto questions = data::read_questions(kDemo / "train.json");
  task.set_train_features(question_answering::build_features(tokenizer, questions.examples(),
                                                             {.max_seq_length = 96,
                                                              .doc_stride = 32,
                                                              .labels = true,
                                                              .padding = padding,
                                                              .max_samples = 60},
                                                             context.threads));
  std::vector<float> weights(task.layout().size());
  models::load_pretrained(kDemo / "model", task.model().config(), task.layout(), weights);

  const std::vector<LinearLayer> layers = linear_layers(task.layout());
  const CalibrationSet set = calibration_set(task.num_train_features(), 22, 42, 4);
  ExtremesObserver extremes(context.threads, layers);
  observe(context, communicator, task, {.f32 = weights, .bf16 = {}}, set, extremes);
  Found found{.extremes = extremes.reduce(communicator), .counts = {}, .ranges = {}};
  HistogramObserver histograms(context.threads, layers, found.extremes);
  observe(context, communicator, task, {.f32 = weights, .bf16 = {}}, set, histograms);
  for (const Histogram& histogram : histograms.reduce(communicator)) {
    found.counts.push_back(histogram.counts);
    found.ranges.push_back(least_error_range(histogram));
  }
  return found;
}

TEST(Calibration, RanksAndThreadsFindTheSameBits) {
  for (const Padding padding : {Padding::kNone, Padding::kLongestOfBatch}) {
    Found one;
    alone([&](Communicator& communicator) { one = calibrate(communicator, 1, padding); });
    ASSERT_EQ(one.extremes.size(), 8u);  // two transformer layers of four products
    for (const Extremes& extremes : one.extremes) {
      EXPECT_LT(extremes.min, 0);
      EXPECT_GT(extremes.max, 0);
    }
    // 22 features of up to 96 tokens through layers of 128 and 256 features.
    for (const auto& counts : one.counts) {
      std::int64_t total = 0;
      for (const std::int64_t count : counts) total += count;
      EXPECT_EQ(total % 128, 0);
      EXPECT_GT(total, 22 * 20 * 128);
    }
    for (const int ranks : {2, 3}) {
      std::mutex mutex;
      std::vector<Found> all;
      const auto errors = run_threads(ranks, [&](Communicator& communicator) {
        Found found = calibrate(communicator, communicator.rank() + 1, padding);
        const std::scoped_lock lock(mutex);
        all.push_back(std::move(found));
      });
      EXPECT_THAT(errors, Each(IsEmpty()));
      EXPECT_EQ(all, std::vector<Found>(static_cast<std::size_t>(ranks), one));
    }
  }
}

}  // namespace
}  // namespace tandem::quant
