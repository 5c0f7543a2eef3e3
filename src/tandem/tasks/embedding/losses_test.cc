// The losses of embeddings: against sentence-transformers' values and gradients, by differences,
// and the same bits however ranks and threads share the rows.
#include "tandem/tasks/embedding/losses.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <random>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/tasks/embedding/loss_test_support.h"

namespace tandem::tasks::embedding {
namespace {

using nlohmann::json;

struct Data {
  std::size_t rows = 0, columns = 0, width = 0;
  std::vector<float> values, labels;
  EmbeddedRows group() const { return {rows, columns, width, values, labels}; }
};

struct Result {
  double loss = 0;
  std::vector<float> gradient;  // [columns, rows, width]
};

// As ranks that own the ranges do it.
Result compute(const EmbeddingLoss& loss, const Data& data, const Machine& machine,
               const std::vector<RowRange>& ranges) {
  const EmbeddedRows group = data.group();
  const std::size_t per_row = loss.statistics_per_row(group);
  std::vector<float> statistics(per_row * data.rows);
  for (const RowRange& range : ranges)
    loss.row_statistics(
        group, range, std::span(statistics).subspan(range.begin * per_row, range.size() * per_row),
        machine.context);
  Result result{0, std::vector<float>(data.values.size())};
  for (const RowRange& range : ranges) {
    std::vector<float> part(data.columns * range.size() * data.width, 7.0f);
    result.loss = loss.loss_and_gradient(group, statistics, range, part, machine.context);
    for (std::size_t column = 0; column < data.columns; ++column)
      std::copy_n(part.begin() + static_cast<std::ptrdiff_t>(column * range.size() * data.width),
                  range.size() * data.width,
                  result.gradient.begin() +
                      static_cast<std::ptrdiff_t>((column * data.rows + range.begin) * data.width));
  }
  return result;
}

Result compute(const EmbeddingLoss& loss, const Data& data) {
  return compute(loss, data, Machine(1), {{0, data.rows}});
}

Data random_data(std::size_t rows, std::size_t columns, std::size_t width, std::size_t labels) {
  std::mt19937 random(static_cast<unsigned>(rows * 31 + columns * 7 + width));
  std::normal_distribution<float> normal;
  Data data{rows, columns, width, std::vector<float>(rows * columns * width),
            std::vector<float>(rows * labels)};
  for (float& value : data.values) value = normal(random);
  for (float& label : data.labels) label = static_cast<float>(random() % 3) / 2;
  return data;
}

struct Case {
  LossOptions options;
  std::size_t columns = 2;
  std::size_t labels = 0;
};

// Every loss, and every way of MultipleNegativesRankingLoss.
std::vector<Case> cases() {
  const std::vector<std::string> all = {"query_to_doc", "query_to_query", "doc_to_query",
                                        "doc_to_doc"};
  std::vector<Case> cases = {
      {{.name = "MultipleNegativesRankingLoss"}, 2},
      {{.name = "MultipleNegativesRankingLoss"}, 4},
      {{.name = "MultipleNegativesRankingLoss", .scale = 1, .similarity_fct = "dot_score"}, 3},
      {{.name = "MultipleNegativesRankingLoss", .directions = all}, 3},
      {{.name = "MultipleNegativesSymmetricRankingLoss"}, 3},
      {{.name = "GISTEmbedLoss", .scale = 10}, 2, 8},
      {{.name = "GISTEmbedLoss", .scale = 8, .margin = 0.1, .margin_strategy = "relative"}, 3, 12},
      {{.name = "CoSENTLoss"}, 2, 1},
      {{.name = "AnglELoss"}, 2, 1},
      {{.name = "CosineSimilarityLoss"}, 2, 1},
      {{.name = "TripletLoss", .margin = 2}, 3},
      {{.name = "TripletLoss", .margin = 0.5, .distance_metric = "cosine"}, 3},
      {{.name = "TripletLoss", .margin = 3, .distance_metric = "manhattan"}, 3},
      {{.name = "ContrastiveLoss", .margin = 1.5}, 2, 1},
      {{.name = "ContrastiveLoss", .margin = 5, .distance_metric = "euclidean"}, 2, 1},
      {{.name = "OnlineContrastiveLoss", .margin = 1.2}, 2, 1},
      {{.name = "MarginMSELoss"}, 3, 1},
      {{.name = "MarginMSELoss"}, 4, 3},
      {{.name = "MSELoss"}, 2, 10},
      {{.name = "MSELoss"}, 2, 20},
      {{.name = "BatchAllTripletLoss", .margin = 1}, 1, 1},
      {{.name = "BatchHardTripletLoss"}, 1, 1},
      {{.name = "BatchSemiHardTripletLoss", .margin = 0.5, .distance_metric = "cosine"}, 1, 1},
      {{.name = "BatchHardSoftMarginTripletLoss"}, 1, 1},
      {{.name = "MultipleNegativesRankingLoss", .matryoshka_dims = {4, 10}}, 3},
      {{.name = "CoSENTLoss", .matryoshka_dims = {10, 6}, .matryoshka_weights = {1, 0.5}}, 2, 1},
  };
  return cases;
}

std::string text_of(const Case& of) {
  return of.options.name + " " + of.options.distance_metric + " " + std::to_string(of.columns);
}

TEST(EmbeddingLosses, GradientsAreThoseOfDifferences) {
  for (const Case& of : cases()) {
    const auto loss = make_loss(of.options);
    Data data = random_data(7, of.columns, 10, of.labels);
    const Result result = compute(*loss, data);
    for (int seed = 0; seed < 3; ++seed) {
      std::mt19937 random(static_cast<unsigned>(seed));
      std::normal_distribution<float> normal;
      std::vector<float> direction(data.values.size());
      for (float& value : direction) value = normal(random);
      const auto shifted = [&](float step) {
        Data moved = data;
        for (std::size_t i = 0; i < moved.values.size(); ++i)
          moved.values[i] += step * direction[i];
        return compute(*loss, moved).loss;
      };
      constexpr float kStep = 1e-3f;
      const double found = (shifted(kStep) - shifted(-kStep)) / (2 * kStep);
      const double expected =
          std::inner_product(direction.begin(), direction.end(), result.gradient.begin(), 0.0);
      EXPECT_NEAR(found, expected, 4e-3 * (1 + std::abs(expected))) << text_of(of);
    }
  }
}

// sentence-transformers' values and gradients (tests/parity/make_loss_goldens.py).
TEST(EmbeddingLosses, GuidesLeaveOutWhatThePackageLeavesOut) {
  const json golden = json::parse(
      std::ifstream(std::filesystem::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/losses.json"));
  for (const json& one : golden.at("gist")) {
    const json& given = one.at("options");
    LossOptions options{.name = "GISTEmbedLoss"};
    if (given.contains("temperature")) options.scale = 1 / given["temperature"].get<double>();
    if (given.contains("margin")) options.margin = given["margin"].get<double>();
    options.margin_strategy = given.value("margin_strategy", options.margin_strategy);
    options.contrast_anchors = given.value("contrast_anchors", true);
    options.contrast_positives = given.value("contrast_positives", true);
    Data data{6,
              one.at("columns").get<std::size_t>(),
              8,
              one.at("embeddings").get<std::vector<float>>(),
              {}};
    const auto guide = one.at("guide").get<std::vector<float>>();
    for (std::size_t row = 0; row < data.rows; ++row) {
      for (std::size_t column = 0; column < data.columns; ++column) {
        const auto from =
            guide.begin() + static_cast<std::ptrdiff_t>((column * data.rows + row) * data.width);
        data.labels.insert(data.labels.end(), from, from + static_cast<std::ptrdiff_t>(data.width));
      }
    }
    const Result result = compute(*make_loss(options), data);
    const double expected = one.at("loss");
    EXPECT_NEAR(result.loss, expected, 1e-6 * expected) << given;
    const auto gradient = one.at("gradient").get<std::vector<double>>();
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      difference += std::pow(result.gradient[i] - gradient[i], 2);
      size += gradient[i] * gradient[i];
    }
    EXPECT_LE(std::sqrt(difference / size), 1e-5) << given;
  }
}

// A loss with parameters: value and gradients of texts and parameters by differences, for any parts
// of the classifier's features; the parts of ranges add up to the whole.
TEST(EmbeddingLosses, ClassifiersHaveTheGradientsOfDifferences) {
  const std::size_t rows = 7, width = 5, classes = 4;
  for (int parts = 1; parts < 8; ++parts) {
    const auto loss = make_loss({.name = "SoftmaxLoss",
                                 .num_labels = classes,
                                 .concatenation_sent_rep = (parts & 1) != 0,
                                 .concatenation_sent_difference = (parts & 2) != 0,
                                 .concatenation_sent_multiplication = (parts & 4) != 0});
    Data data = random_data(rows, 2, width, 1);
    for (std::size_t i = 0; i < rows; ++i) data.labels[i] = static_cast<float>(i % classes);
    std::size_t size = 0;
    for (const LossParameter& one : loss->parameters(width))
      size +=
          std::accumulate(one.shape.begin(), one.shape.end(), std::size_t{1}, std::multiplies<>());
    std::mt19937 random(static_cast<unsigned>(parts));
    std::normal_distribution<float> normal;
    std::vector<float> values = data.values;
    for (std::size_t i = 0; i < size; ++i) values.push_back(normal(random) / 2);
    const Machine machine(2);
    const std::size_t texts = data.values.size();
    const auto compute_at = [&](const std::vector<float>& at, RowRange range,
                                std::vector<float>& gradient) {
      gradient.assign(2 * range.size() * width + size, 7.0f);
      return loss->loss_and_gradient({.rows = rows,
                                      .columns = 2,
                                      .width = width,
                                      .values = std::span(at).first(texts),
                                      .labels = data.labels,
                                      .parameters = std::span(at).subspan(texts)},
                                     {}, range, gradient, machine.context);
    };
    std::vector<float> gradient, ignored;
    compute_at(values, {0, rows}, gradient);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto shifted = [&](float step) {
        std::vector<float> moved = values;
        moved[i] += step;
        return compute_at(moved, {0, rows}, ignored);
      };
      constexpr float kStep = 1e-3f;
      EXPECT_NEAR((shifted(kStep) - shifted(-kStep)) / (2 * kStep), gradient[i], 2e-3)
          << parts << " " << i;
    }
    std::vector<float> first, second;
    compute_at(values, {0, 3}, first);
    compute_at(values, {3, rows}, second);
    for (std::size_t i = 0; i < size; ++i)
      EXPECT_NEAR(first[2 * 3 * width + i] + second[2 * 4 * width + i], gradient[texts + i], 1e-6);
  }
}

TEST(EmbeddingLosses, BitsDependNeitherOnRangesNorOnThreads) {
  for (const std::size_t rows : {1, 5, 37, 600})
    for (const Case& of : cases()) {
      const auto loss = make_loss(of.options);
      const Data data = random_data(rows, of.columns, 10, of.labels);
      const Result whole = compute(*loss, data, Machine(1), {{0, rows}});
      const std::size_t a = rows / 3, b = rows - rows / 4;
      const Result parts = compute(*loss, data, Machine(3), {{b, rows}, {0, a}, {a, a}, {a, b}});
      EXPECT_EQ(whole.loss, parts.loss) << text_of(of) << " rows " << rows;
      EXPECT_EQ(whole.gradient, parts.gradient) << text_of(of) << " rows " << rows;
      if (rows > 37) continue;
      std::vector<RowRange> single;
      for (std::size_t row = 0; row < rows; ++row) single.push_back({row, row + 1});
      for (const int threads : {2, 4}) {
        const Result rows_alone = compute(*loss, data, Machine(threads), single);
        EXPECT_EQ(whole.loss, rows_alone.loss) << text_of(of) << " threads " << threads;
        EXPECT_EQ(whole.gradient, rows_alone.gradient) << text_of(of) << " threads " << threads;
      }
    }
}

TEST(EmbeddingLosses, BitsOfWideEmbeddingsDoNotDependOnRanges) {
  const std::size_t rows = 530;
  const auto loss = make_loss({.directions = {"query_to_doc", "doc_to_query"}});
  const Data data = random_data(rows, 2, 384, 0);
  const Result whole = compute(*loss, data, Machine(1), {{0, rows}});
  const Result parts =
      compute(*loss, data, Machine(4), {{0, 1}, {1, 8}, {8, 139}, {139, 528}, {528, rows}});
  EXPECT_EQ(whole.loss, parts.loss);
  EXPECT_EQ(whole.gradient, parts.gradient);
}

TEST(EmbeddingLosses, NanEmbeddingsGiveANanLoss) {
  for (const Case& of : cases()) {
    if (loss_needs(of.options.name).guided) continue;  // the guide may leave the text out
    for (const std::size_t row : {0, 3, 5})
      for (std::size_t column = 0; column < of.columns; ++column) {
        Data data = random_data(6, of.columns, 10, of.labels);
        data.values[(column * 6 + row) * 10 + 4] = std::nanf("");
        if (of.labels == 1) data.labels[row] = 1;
        const Result result = compute(*make_loss(of.options), data);
        EXPECT_TRUE(std::isnan(result.loss)) << text_of(of) << " row " << row;
        EXPECT_TRUE(std::any_of(result.gradient.begin(), result.gradient.end(),
                                [](float value) { return std::isnan(value); }))
            << text_of(of) << " row " << row;
      }
  }
}

// A loss and Σ gradient[i] cos(i) of sentence-transformers 5.7.0's class in f64, for values that
// sine makes.
struct Reference {
  Case of;
  std::vector<float> labels;
  double loss = 0;
  double projection = 0;
};

std::vector<Reference> ranking_references() {
  const auto directions = [](std::vector<std::string> more, const char* mode = "joint") {
    more.insert(more.begin(), "query_to_doc");
    return LossOptions{.directions = std::move(more), .partition_mode = mode};
  };
  const auto hardness = [](const char* mode) {
    return LossOptions{.hardness_mode = mode, .hardness_strength = 5};
  };
  LossOptions all = directions({"doc_to_query", "doc_to_doc"});
  all.scale = 7;
  all.hardness_mode = "all_negatives";
  all.hardness_strength = 3;
  return {
      {{directions({"doc_to_query"}, "per_direction"), 3}, {}, 12.39025366, -4.67339867},
      {{directions({"query_to_query"}), 3}, {}, 19.01689322, -2.46279963},
      {{directions({"doc_to_query"}), 3}, {}, 14.56938853, -6.35311434},
      {{directions({"doc_to_doc"}), 4}, {}, 17.53702622, -5.00402136},
      {{hardness("in_batch_negatives"), 4}, {}, 14.60878046, 1.11648429},
      {{hardness("hard_negatives"), 4}, {}, 12.59633630, 0.23195610},
      {{hardness("all_negatives"), 4}, {}, 14.65025162, 0.78291259},
      {{all, 3}, {}, 7.39626792, -2.14293354},
      {{{.name = "MultipleNegativesSymmetricRankingLoss"}, 4}, {}, 12.73816086, -1.09443933},
      {{{.scale = 2, .similarity_fct = "dot_score"}, 3}, {}, 4.80016505, -3.13375958},
  };
}

std::vector<Reference> score_references() {
  const auto of = [](const char* name, std::optional<double> margin, const char* distance = "") {
    return LossOptions{.name = name, .margin = margin, .distance_metric = distance};
  };
  const auto scaled = [](const char* name) { return LossOptions{.name = name, .scale = 3}; };
  const Case online{of("OnlineContrastiveLoss", 1.7)};
  const std::vector<float> labels = {1, 0, 0, 1, 0}, scores = {0.1f, 0.5f, 0.5f, 0, 1};
  return {
      {{of("MarginMSELoss", {}), 3}, {0.1f, 0.5f, -0.3f, 0, 1}, 2.41781346, 0.74835314},
      {{of("MarginMSELoss", {}), 4},
       {0.1f, 0.2f, 0.5f, 0, -0.3f, 1, 0, 0, 1, 2},
       4.62353719,
       0.12112782},
      {{of("MarginMSELoss", {}), 4},
       {0.1f, 0.2f, 0.3f, 0.5f, 0, 0.1f, -0.3f, 1, 2, 0, 0, 1, 1, 2, 0},
       1.99707677,
       2.35628791},
      {{of("ContrastiveLoss", 6, "manhattan")}, labels, 4.63690225, -5.51751298},
      {{of("ContrastiveLoss", 3, "euclidean")}, labels, 1.30204535, -0.84010937},
      {online, labels, 3.70283183, 0.40845510},
      {online, {1, 0, 0, 0, 0}, 1.78116002, -1.69770624},
      {online, {0, 0, 0, 0, 0}, 1.71458640, 2.23302973},
      {{of("OnlineContrastiveLoss", 4, "euclidean")}, {1, 0, 1, 1, 0}, 24.17120710, -11.20547459},
      {{of("TripletLoss", 0.4, "cosine"), 3}, {}, 0.53706945, -0.40253822},
      {{of("TripletLoss", 2, "manhattan"), 3}, {}, 2.34155688, -2.28423250},
      {{scaled("CoSENTLoss")}, scores, 3.36925292, 1.46488316},
      {{scaled("AnglELoss")}, scores, 1.70726774, -0.43255218},
  };
}

// With 12 rows, one column and the classes `a`, one row of another class, one class and twelve.
std::vector<Reference> batch_triplet_references() {
  const std::vector<float> mixed = {0, 1, 0, 2, 1, 0, 2, 1, 0, 2, 1, 0};
  std::vector<float> one(12, 3), all_equal(12, 5), all_different(12);
  one.back() = 4;
  std::iota(all_different.begin(), all_different.end(), 0.0f);
  const auto of = [](const char* kind, std::optional<double> margin, const char* distance = "") {
    return Case{
        {.name = std::string("Batch") + kind, .margin = margin, .distance_metric = distance}, 1};
  };
  return {
      {of("AllTripletLoss", 0.5), mixed, 0.82252713, -0.13870699},
      {of("AllTripletLoss", {}), mixed, 4.96506486, 0.01120851},
      {of("AllTripletLoss", 0.3, "cosine"), one, 0.58948556, 0.11428768},
      {of("AllTripletLoss", 0.5), all_equal, 0, 0},
      {of("AllTripletLoss", {}), all_different, 0, 0},
      {of("HardTripletLoss", 0.5), mixed, 1.89518223, 0.03023658},
      {of("HardTripletLoss", {}), one, 5.53934456, 0.44267729},
      {of("HardTripletLoss", {}), all_equal, 5, 0},
      {of("HardTripletLoss", {}), all_different, 3.72321355, 0.11887282},
      {of("HardTripletLoss", 0.3, "cosine"), all_different, 0.09480481, 0.07586931},
      {of("SemiHardTripletLoss", 0.5), mixed, 0.32759135, -0.14334898},
      {of("SemiHardTripletLoss", {}), one, 4.89050960, 0.65329422},
      {of("SemiHardTripletLoss", 0.5), all_equal, 2.90127830, -0.15965588},
      {of("SemiHardTripletLoss", 0.3, "cosine"), mixed, 0.15842269, -0.00057583},
      {of("SemiHardTripletLoss", {}), all_different, 0, 0},
      {of("HardSoftMarginTripletLoss", {}), mixed, 1.65317709, 0.01815101},
      {of("HardSoftMarginTripletLoss", {}), all_equal, 0.69314718, 0},
      {of("HardSoftMarginTripletLoss", {}, "cosine"), one, 1.07975562, 0.06274996},
      {of("HardSoftMarginTripletLoss", {}), all_different, 0.26236939, 0.02558361},
  };
}

void expect_reference(const Reference& reference, std::size_t rows = 5) {
  Data data{rows, reference.of.columns, 6, {}, reference.labels};
  for (std::size_t i = 0; i < rows * 6 * reference.of.columns; ++i) {
    const auto x = static_cast<double>(i);
    data.values.push_back(static_cast<float>(std::sin(1.3 * x * x + 0.7 * x + 0.1)));
  }
  const Result result = compute(*make_loss(reference.of.options), data);
  double projection = 0;
  for (std::size_t i = 0; i < result.gradient.size(); ++i)
    projection += result.gradient[i] * std::cos(static_cast<double>(i));
  EXPECT_NEAR(result.loss, reference.loss, 1e-6 * reference.loss) << text_of(reference.of);
  EXPECT_NEAR(projection, reference.projection, 1e-5) << text_of(reference.of);
}

TEST(EmbeddingLosses, EveryArgumentGivesTheValuesOfTheClass) {
  for (const Reference& reference : ranking_references()) expect_reference(reference);
  for (const Reference& reference : score_references()) expect_reference(reference);
  for (const Reference& reference : batch_triplet_references()) expect_reference(reference, 12);
}

TEST(EmbeddingLosses, HardnessIsATermWithoutAGradient) {
  const Data data = random_data(6, 3, 10, 0);
  for (const char* mode : {"in_batch_negatives", "hard_negatives", "all_negatives"}) {
    const auto plain = make_loss({});
    const auto none = make_loss({.hardness_mode = mode});
    const auto some = make_loss({.hardness_mode = mode, .hardness_strength = 5});
    EXPECT_EQ(compute(*plain, data).loss, compute(*none, data).loss);
    EXPECT_NE(compute(*plain, data).loss, compute(*some, data).loss) << mode;
  }
}

TEST(EmbeddingLosses, ZeroVectorsAndEqualTextsAreFinite) {
  for (const Case& of : cases()) {
    const auto loss = make_loss(of.options);
    Data data = random_data(4, of.columns, 10, of.labels);
    std::fill(data.values.begin(), data.values.begin() + 10, 0.0f);
    std::copy_n(&data.values[20], 10, &data.values[of.columns > 1 ? 4 * 10 + 20 : 30]);
    const Result result = compute(*loss, data);
    EXPECT_TRUE(std::isfinite(result.loss)) << text_of(of);
    for (const float value : result.gradient) EXPECT_FALSE(std::isnan(value)) << text_of(of);
  }
}

TEST(EmbeddingLosses, LargeScoresDoNotOverflow) {
  const auto loss = make_loss({.name = "AnglELoss", .scale = 5000});
  const Data data = random_data(30, 2, 64, 1);
  const Result result = compute(*loss, data);
  EXPECT_TRUE(std::isfinite(result.loss));
  for (const float value : result.gradient) EXPECT_TRUE(std::isfinite(value));
}

TEST(EmbeddingLosses, NamesWhatIsWrong) {
  EXPECT_THROW(make_loss({.name = "BestLoss"}), ConfigError);
  EXPECT_THROW(make_loss({.scale = 0}), ConfigError);
  EXPECT_THROW(make_loss({.similarity_fct = "cosine"}), ConfigError);
  EXPECT_THROW(make_loss({.directions = {"doc_to_query"}}), ConfigError);
  EXPECT_THROW(
      make_loss({.directions = {"query_to_doc", "doc_to_doc"}, .partition_mode = "per_direction"}),
      ConfigError);
  EXPECT_THROW(make_loss({.matryoshka_dims = {4}, .matryoshka_weights = {1, 2}}), ConfigError);
  EXPECT_THROW(check_data(loss_needs("TripletLoss"), 2, 0), ConfigError);
  EXPECT_THROW(check_data(loss_needs("CoSENTLoss"), 2, 0), ConfigError);
  EXPECT_THROW(check_data(loss_needs("MultipleNegativesRankingLoss"), 1, 0), ConfigError);
  EXPECT_NO_THROW(check_data(loss_needs("MarginMSELoss"), 4, 3));
  EXPECT_NO_THROW(check_data(loss_needs("MarginMSELoss"), 4, 2));
  EXPECT_EQ(default_loss(LabelKind::kScore), "CoSENTLoss");
}

TEST(EmbeddingLosses, NamesTheRowOfALabelOutsideItsRange) {
  const auto found = [](const char* name, std::vector<float> labels, std::size_t per_row = 1) {
    return find_bad_label(loss_needs(name), labels, per_row);
  };
  EXPECT_FALSE(found("CoSENTLoss", {0, 5, -3}));
  EXPECT_FALSE(found("CosineSimilarityLoss", {0, 1, -1}));
  EXPECT_FALSE(found("ContrastiveLoss", {0, 1}));
  EXPECT_FALSE(found("TripletLoss", {7}));
  const auto score = found("CosineSimilarityLoss", {0, 0.5f, 4.25f});
  ASSERT_TRUE(score);
  EXPECT_EQ(score->row, 2u);
  EXPECT_EQ(score->problem,
            "found the label 4.25, expected -1 to 1 for CosineSimilarityLoss; change the labels or "
            "use another loss");
  EXPECT_FALSE(found("BatchAllTripletLoss", {7, -1, 0}));
  EXPECT_EQ(found("BatchAllTripletLoss", {7, 1.5f})->row, 1u);
  EXPECT_EQ(found("ContrastiveLoss", {1, 0.5f})->row, 1u);
  EXPECT_EQ(found("OnlineContrastiveLoss", {2, 0})->row, 0u);
  EXPECT_EQ(found("CoSENTLoss", {1, std::nanf("")})->row, 1u);
  EXPECT_EQ(found("MarginMSELoss", {1, 2, 3, INFINITY}, 2)->row, 1u);
}

TEST(EmbeddingLosses, EachColumnMayHaveATeacher) {
  const Data data{1, 2, 2, {1, 2, 3, 5}, {1, 1, 1, 1}};
  EXPECT_DOUBLE_EQ(compute(*make_loss({.name = "MSELoss"}), data).loss, (0 + 1 + 4 + 16) / 4.0);
  const Data one{1, 2, 2, {1, 2, 3, 5}, {1, 1}};
  EXPECT_DOUBLE_EQ(compute(*make_loss({.name = "MSELoss"}), one).loss, (0 + 1 + 4 + 16) / 4.0);
  const Data own{1, 2, 2, {1, 2, 3, 5}, {1, 2, 3, 4}};
  EXPECT_DOUBLE_EQ(compute(*make_loss({.name = "MSELoss"}), own).loss, 1 / 4.0);
}

TEST(EmbeddingLosses, RefusesAGroupWithAConstantLoss) {
  EXPECT_THROW(check_group(loss_needs("MultipleNegativesRankingLoss"), 1, 2), ConfigError);
  EXPECT_NO_THROW(check_group(loss_needs("MultipleNegativesRankingLoss"), 1, 3));
  EXPECT_NO_THROW(check_group(loss_needs("MultipleNegativesRankingLoss"), 2, 2));
  EXPECT_THROW(check_group(loss_needs("AnglELoss"), 1, 2), ConfigError);
  EXPECT_NO_THROW(check_group(loss_needs("CosineSimilarityLoss"), 1, 2));
}

TEST(EmbeddingLosses, RefusesWidthsThatTheLossCannotCut) {
  EXPECT_NO_THROW(check_width({.matryoshka_dims = {384, 8}}, 384));
  EXPECT_THROW(check_width({.matryoshka_dims = {385}}, 384), ConfigError);
  EXPECT_THROW(check_width({.matryoshka_dims = {0}}, 384), ConfigError);
  EXPECT_NO_THROW(check_width({.name = "AnglELoss"}, 384));
  EXPECT_THROW(check_width({.name = "AnglELoss"}, 383), ConfigError);
  EXPECT_THROW(check_width({.name = "AnglELoss", .matryoshka_dims = {384, 7}}, 384), ConfigError);
  EXPECT_THROW(make_loss({.name = "MSELoss", .matryoshka_dims = {8}}), ConfigError);
  EXPECT_NO_THROW(check_teacher(2, 384, 384));
  EXPECT_NO_THROW(check_teacher(2, 384, 768));
  EXPECT_THROW(check_teacher(1, 384, 768), ConfigError);
}

// sentence-transformers' own values (the README of ../shared/data/golden/next).
class EmbeddingLossGoldens : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto path = testing::shared_data() / "golden/next/embeddings/losses.json";
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "needs " << path;
    goldens_ = json::parse(std::ifstream(path));
  }

  // The embeddings of the case, or of the first one that has the same file.
  Data data_of(const json& golden) const {
    const json* from = &golden;
    for (const char* name : {"mnrl_pairs", "mnrl_triplets", "cosent", "contrastive"})
      if (golden["embeddings_f64"].is_string() && goldens_[name]["file"] == golden["file"])
        from = &goldens_[name];
    Data data;
    data.columns = golden["columns"].size();
    const json& embeddings = (*from)["embeddings_f64"];
    data.rows = embeddings[0].size();
    data.width = embeddings[0][0].size();
    for (std::size_t column = 0; column < data.columns; ++column)
      for (const json& row : embeddings[column])
        for (const json& value : row) data.values.push_back(value.get<float>());
    if (golden["labels"].is_array())
      for (const json& label : golden["labels"]) data.labels.push_back(label.get<float>());
    return data;
  }

  void expect_gradient(const json& golden, const Result& result, const std::string& name) const {
    if (golden["embedding_gradients_f64"].is_null()) return;
    double difference = 0, size = 0;
    std::size_t at = 0;
    for (const json& column : golden["embedding_gradients_f64"])
      for (const json& row : column)
        for (const json& value : row) {
          const double expected = value.get<double>();
          difference += std::pow(result.gradient[at++] - expected, 2);
          size += expected * expected;
        }
    EXPECT_LE(std::sqrt(difference / size), 2e-6) << name;
  }

  json goldens_;
};

TEST_F(EmbeddingLossGoldens, ValuesAndGradients) {
  const std::vector<std::string> all = {"query_to_doc", "query_to_query", "doc_to_query",
                                        "doc_to_doc"};
  const std::vector<std::pair<std::string, LossOptions>> options = {
      {"mnrl_pairs", {}},
      {"mnrl_triplets", {}},
      {"mnrl_scale_5", {.scale = 5}},
      {"mnrl_dot", {.scale = 1, .similarity_fct = "dot_score"}},
      {"mnrl_all_directions_joint", {.directions = all}},
      {"mnrl_hard_negatives_weighted", {.hardness_mode = "hard_negatives", .hardness_strength = 5}},
      {"mnrl_symmetric", {.name = "MultipleNegativesSymmetricRankingLoss"}},
      {"cached_mnrl_mini_4", {.name = "CachedMultipleNegativesRankingLoss"}},
      {"cosent", {.name = "CoSENTLoss"}},
      {"angle", {.name = "AnglELoss"}},
      {"cosine_similarity", {.name = "CosineSimilarityLoss"}},
      {"triplet_euclidean", {.name = "TripletLoss"}},
      {"triplet_cosine_margin_0.5",
       {.name = "TripletLoss", .margin = 0.5, .distance_metric = "cosine"}},
      {"triplet_manhattan", {.name = "TripletLoss", .distance_metric = "manhattan"}},
      {"contrastive", {.name = "ContrastiveLoss"}},
      {"contrastive_euclidean_margin_2",
       {.name = "ContrastiveLoss", .margin = 2, .distance_metric = "euclidean"}},
      {"online_contrastive", {.name = "OnlineContrastiveLoss"}},
      {"matryoshka_mnrl_32_16_8",
       {.matryoshka_dims = {32, 16, 8}, .matryoshka_weights = {3, 2, 1}}},
      {"matryoshka_cosent_32_8", {.name = "CoSENTLoss", .matryoshka_dims = {32, 8}}},
  };
  std::size_t checked = 0;
  for (const auto& [name, option] : options) {
    const json& golden = goldens_.at(name);
    const Result result = compute(*make_loss(option), data_of(golden));
    const double expected = golden["loss_f64"].get<double>();
    EXPECT_NEAR(result.loss, expected, 1e-6 * expected) << name;
    expect_gradient(golden, result, name);
    ++checked;
  }
  for (const auto& [name, golden] : goldens_.items())
    if (golden.is_object() && golden.contains("class")) --checked;
  EXPECT_EQ(checked, 0u) << "a case of the goldens is not checked";
}

}  // namespace
}  // namespace tandem::tasks::embedding
