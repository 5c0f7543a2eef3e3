// The losses of rerankers: against sentence-transformers' values and gradients, by differences, and
// at the ends of their domains.
#include "tandem/tasks/reranking/losses.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <random>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/json.h"

namespace tandem::tasks::reranking {
namespace {

using nlohmann::json;

struct Data {
  std::vector<float> logits, labels;
  std::vector<std::size_t> begin = {0};
  std::size_t outputs = 1;
  ScoredQueries scored() const { return {logits, outputs, begin, labels}; }
};

struct Result {
  double loss = 0;
  std::vector<float> gradient;
};

Result compute(const LossOptions& options, const Data& data) {
  Result result{0, std::vector<float>(data.logits.size(), 7.0f)};
  result.loss = make_loss(options)->loss_and_gradient(data.scored(), result.gradient);
  return result;
}

// Three queries with 4, 2 and 5 documents and labels of 0, 1 and 2.
Data lists() {
  Data data{{0.3f, -1.2f, 0.9f, 0.1f, 2.0f, -0.5f, 0.4f, 0.6f, -2.0f, 1.5f, 0.7f},
            {2, 0, 1, 0, 0, 1, 1, 0, 0, 2, 1},
            {0, 4, 6, 11}};
  return data;
}

void expect_finite(const LossNeeds& needs, const Data& data) {
  const Result result = compute({.name = std::string(needs.name)}, data);
  EXPECT_TRUE(std::isfinite(result.loss)) << needs.name;
  for (const float slope : result.gradient) EXPECT_TRUE(std::isfinite(slope)) << needs.name;
}

void expect_gradient(const LossOptions& options, const Data& data) {
  const Result result = compute(options, data);
  for (std::size_t i = 0; i < data.logits.size(); ++i) {
    constexpr float kStep = 1e-2f;
    Data up = data, down = data;
    up.logits[i] += kStep;
    down.logits[i] -= kStep;
    const double found = (compute(options, up).loss - compute(options, down).loss) / (2 * kStep);
    EXPECT_NEAR(result.gradient[i], found, 2e-3) << options.name << " document " << i;
  }
}

TEST(RerankingLosses, GradientsAreThoseOfDifferences) {
  for (const char* name : {"ListNetLoss", "ListMLELoss", "PListMLELoss", "LambdaLoss",
                           "RankNetLoss", "ADRMSELoss", "MultipleNegativesRankingLoss"})
    expect_gradient({.name = name}, lists());
  for (const char* scheme : {"NDCGLoss1Scheme", "NDCGLoss2Scheme", "LambdaRankScheme"})
    expect_gradient({.name = "LambdaLoss", .weighting_scheme = scheme, .k = 3}, lists());
  Data pairs = lists();
  for (float& label : pairs.labels) label /= 2;
  expect_gradient({.name = "BinaryCrossEntropyLoss", .pos_weight = 3}, pairs);
  expect_gradient({.name = "MSELoss", .activation_fn = "sigmoid"}, pairs);
  Data classes{{0.1f, 1.0f, -0.4f, 2.0f, 0.3f, 0.2f}, {1, 2}, {0, 1, 2}, 3};
  expect_gradient({.name = "CrossEntropyLoss"}, classes);
  Data tuples{{0.1f, 1.0f, -0.4f, 2.0f, 0.3f, 0.2f}, {0.5f, 1, 0, 0.2f}, {0, 3, 6}};
  expect_gradient({.name = "MarginMSELoss"}, tuples);
  tuples.labels = {1, 0.5f, 0, 0.9f, 0.1f, 0.3f};
  expect_gradient({.name = "MarginMSELoss"}, tuples);
}

// Values and gradients of sentence-transformers 5.7.0's classes for lists(), in f32. The second
// label of the first query and the first one of the second are negative.
TEST(RerankingLosses, EveryArgumentGivesTheValuesOfTheClass) {
  struct Reference {
    LossOptions options;
    double loss;
    std::vector<double> gradient;  // gradient of the first query
  };
  const auto lambda = [](const char* scheme, std::optional<std::size_t> k = {}) {
    return LossOptions{.name = "LambdaLoss", .weighting_scheme = scheme, .k = k};
  };
  const std::vector<Reference> references = {
      {lambda("NDCGLoss1Scheme"), 0.1929105, {-0.0162991, 0.0041661, 0.0049411, 0.0071918}},
      {lambda("NDCGLoss1Scheme", 3), 0.3378292, {-0.0274393, 0, 0.0119709, 0.0154684}},
      {lambda("NDCGLoss2Scheme"), 0.1526215, {-0.0245045, 0.0028056, 0.0111576, 0.0105413}},
      {lambda("LambdaRankScheme"), 0.1542809, {-0.0185087, 0.004457, 0.008111, 0.0059407}},
      {lambda("NDCGLoss2PPScheme"), 1.6804960, {-0.2635539, 0.0325132, 0.1196874, 0.1113533}},
      {{.name = "RankNetLoss", .k = 3}, 1.2246974, {-0.2258482, 0, 0.0691733, 0.156675}},
      {{.name = "ListNetLoss"}, 1.7308006, {-0.1168865, 0.0091343, 0.0824525, 0.0252997}},
      {{.name = "ListMLELoss", .respect_input_order = false},
       2.4898560,
       {-0.2470665, 0.1166068, 0.0359282, 0.0945316}},
      {{.name = "PListMLELoss"}, 1.1673173, {-0.1425384, -0.0716467, 0.1358582, 0.0783269}},
      {{.name = "ADRMSELoss"}, 0.4984303, {-0.169497, 0.0402018, 0.0527345, 0.0765607}},
  };
  Data data = lists();
  data.labels = {2, -1, 1, 0.5f, -2, 1, 1, 0, 0, 2, 1};
  for (const Reference& reference : references) {
    const Result result = compute(reference.options, data);
    const std::string name = reference.options.name + " " + reference.options.weighting_scheme;
    EXPECT_NEAR(result.loss, reference.loss, 1e-6) << name;
    for (std::size_t i = 0; i < reference.gradient.size(); ++i)
      EXPECT_NEAR(result.gradient[i], reference.gradient[i], 1e-6) << name << " document " << i;
  }
}

TEST(RerankingLosses, LongListsHaveFiniteWeights) {
  Data data;
  for (std::size_t i = 0; i < 1500; ++i) {
    data.logits.push_back(static_cast<float>(i % 17) / 8);
    data.labels.push_back(static_cast<float>(i % 3));
  }
  data.begin = {0, 1500};
  for (const LossNeeds& needs : losses()) {
    if (needs.sample != SampleKind::kList) continue;
    const Result result = compute({.name = std::string(needs.name)}, data);
    EXPECT_TRUE(std::isfinite(result.loss)) << needs.name;
  }
}

TEST(RerankingLosses, QueriesWithOneDocumentOrNoneHaveNoGradient) {
  const Data data{{0.5f, -1}, {1, 0}, {0, 1, 1, 2}};
  for (const LossNeeds& needs : losses()) {
    if (needs.sample != SampleKind::kList) continue;
    const Result result = compute({.name = std::string(needs.name)}, data);
    EXPECT_EQ(result.loss, 0) << needs.name;
    EXPECT_EQ(result.gradient, std::vector<float>(2, 0)) << needs.name;
  }
}

TEST(RerankingLosses, EqualScoresKeepTheOrderOfTheDocuments) {
  Data data = lists();
  std::fill(data.logits.begin(), data.logits.end(), 0.25f);
  for (const LossNeeds& needs : losses())
    if (needs.sample == SampleKind::kList) expect_finite(needs, data);
  const Result first = compute({.name = "LambdaLoss", .k = 1}, data);
  EXPECT_EQ(first.loss, 0);  // a document alone has no pair
  EXPECT_NEAR(compute({.name = "RankNetLoss"}, data).loss, 1, 1e-12);  // -log2(1/2)
}

TEST(RerankingLosses, NanScoresGiveANanLoss) {
  for (const LossNeeds& needs : losses()) {
    if (needs.sample == SampleKind::kTuple || needs.sample == SampleKind::kClassPair) continue;
    for (const std::size_t document : {0, 3, 4, 10}) {
      Data data = lists();
      data.logits[document] = std::nanf("");
      EXPECT_TRUE(std::isnan(compute({.name = std::string(needs.name)}, data).loss))
          << needs.name << " document " << document;
    }
  }
}

TEST(RerankingLosses, LargeScoresDoNotOverflow) {
  Data data = lists();
  for (float& logit : data.logits) logit *= 200;
  for (const LossNeeds& needs : losses()) {
    if (needs.sample == SampleKind::kList || needs.sample == SampleKind::kPair)
      expect_finite(needs, data);
  }
}

TEST(RerankingLosses, ABatchWithoutAPairHasNoGradient) {
  Data data = lists();
  std::fill(data.labels.begin(), data.labels.end(), 1.0f);
  for (const char* name : {"LambdaLoss", "RankNetLoss"}) {
    const Result result = compute({.name = name}, data);
    EXPECT_EQ(result.loss, 0);
    for (const float slope : result.gradient) EXPECT_EQ(slope, 0);
  }
}

TEST(RerankingLosses, NamesWhatIsWrong) {
  EXPECT_THROW(make_loss({.name = "BestLoss"}), ConfigError);
  EXPECT_THROW(make_loss({.activation_fn = "tanh"}), ConfigError);
  EXPECT_THROW(make_loss({.name = "LambdaLoss", .weighting_scheme = "NDCG"}), ConfigError);
  EXPECT_THROW(make_loss({.pos_weight = 0}), ConfigError);
  EXPECT_THROW(make_loss({.pos_weight = INFINITY}), ConfigError);
  EXPECT_THROW(make_loss({.name = "RankNetLoss", .k = 0}), ConfigError);
}

TEST(RerankingLosses, NamesTheDataThatALossNeeds) {
  const auto check = [](const char* name, SampleKind found, std::size_t labels,
                        std::size_t documents = 1) {
    check_data(loss_needs(name), found, labels, documents);
  };
  EXPECT_NO_THROW(check("BinaryCrossEntropyLoss", SampleKind::kPair, 1));
  EXPECT_NO_THROW(check("CrossEntropyLoss", SampleKind::kPair, 1));
  EXPECT_NO_THROW(check("MarginMSELoss", SampleKind::kTuple, 1, 2));
  EXPECT_NO_THROW(check("MarginMSELoss", SampleKind::kTuple, 3, 4));
  EXPECT_NO_THROW(check("MarginMSELoss", SampleKind::kTuple, 4, 4));
  EXPECT_NO_THROW(check("MultipleNegativesRankingLoss", SampleKind::kTuple, 0, 1));
  EXPECT_THROW(check("MarginMSELoss", SampleKind::kTuple, 2, 4), ConfigError);
  EXPECT_THROW(check("MarginMSELoss", SampleKind::kTuple, 0, 1), ConfigError);
  EXPECT_THROW(check("MSELoss", SampleKind::kPair, 0), ConfigError);
  EXPECT_THROW(check("BinaryCrossEntropyLoss", SampleKind::kList, 1, 4), ConfigError);
  try {
    check("LambdaLoss", SampleKind::kPair, 1);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "--loss LambdaLoss: found pairs of a query and a document with a number each, "
                 "expected a query with a list of documents and a list of as many labels; change "
                 "the columns or use another loss");
  }
  EXPECT_EQ(default_loss(1), "BinaryCrossEntropyLoss");
  EXPECT_EQ(default_loss(3), "CrossEntropyLoss");
  EXPECT_NO_THROW(check_outputs(loss_needs("CrossEntropyLoss"), 3));
  EXPECT_THROW(check_outputs(loss_needs("CrossEntropyLoss"), 1), ConfigError);
  EXPECT_THROW(check_outputs(loss_needs("LambdaLoss"), 2), ConfigError);
}

TEST(RerankingLosses, NamesLabelsOutsideTheirRange) {
  const auto found = [](const char* name, std::vector<float> labels, std::size_t outputs = 1) {
    return find_bad_label(loss_needs(name), labels, outputs);
  };
  EXPECT_FALSE(found("BinaryCrossEntropyLoss", {0, 0.3f, 1}));
  EXPECT_FALSE(found("CrossEntropyLoss", {0, 2}, 3));
  EXPECT_FALSE(found("LambdaLoss", {4, -1, 0.5f}));
  EXPECT_EQ(found("BinaryCrossEntropyLoss", {0, 1, 5})->index, 2u);
  EXPECT_EQ(found("BinaryCrossEntropyLoss", {0, 1, 5})->problem,
            "found the label 5, expected 0 to 1 for BinaryCrossEntropyLoss; change the labels or "
            "use another loss");
  EXPECT_EQ(found("CrossEntropyLoss", {0, 3}, 3)->index, 1u);
  EXPECT_EQ(found("CrossEntropyLoss", {-1, 2}, 3)->index, 0u);
  EXPECT_EQ(found("CrossEntropyLoss", {0.5f, 2}, 3)->index, 0u);
  EXPECT_EQ(found("ListNetLoss", {1, std::nanf("")})->index, 1u);
  EXPECT_TRUE(has_order(std::vector<float>{1, 1, 0}));
  EXPECT_FALSE(has_order(std::vector<float>{1, 1}));
  EXPECT_FALSE(has_order({}));
}

// sentence-transformers' own values (the README of ../shared/data/golden/next).
class RerankingLossGoldens : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto path = testing::shared_data() / "golden/next/rerankers/losses.json";
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "needs " << path;
    goldens_ = json::parse(std::ifstream(path));
  }

  // Logits and gradients of all calls, pair by pair of the data.
  struct Case {
    Data data;
    std::vector<double> gradient;
  };

  // Calls are columns of tuples: the positives of all rows, then each negative in turn.
  static Case tuples(const json& golden) {
    Case result;
    const json& calls = golden["calls"];
    const std::size_t rows = golden["rows"].size();
    for (std::size_t row = 0; row < rows; ++row) {
      for (const json& call : calls) {
        result.data.logits.push_back(call["logits_f64"][row][0].get<float>());
        result.gradient.push_back(call["gradient_f64"][row][0].get<double>());
      }
      result.data.begin.push_back(result.data.logits.size());
      if (golden["rows"][row].contains("score"))
        result.data.labels.push_back(golden["rows"][row]["score"].get<float>());
    }
    return result;
  }

  // Calls are pieces of the documents of all rows.
  static Case documents(const json& golden) {
    Case result;
    for (const json& call : golden["calls"])
      for (std::size_t row = 0; row < call["logits_f64"].size(); ++row) {
        result.data.outputs = call["logits_f64"][row].size();
        for (std::size_t i = 0; i < result.data.outputs; ++i) {
          result.data.logits.push_back(call["logits_f64"][row][i].get<float>());
          result.gradient.push_back(call["gradient_f64"][row][i].get<double>());
        }
      }
    for (const json& row : golden["rows"]) {
      const bool list = row.contains("docs");
      result.data.begin.push_back(result.data.begin.back() + (list ? row["docs"].size() : 1));
      if (list) {
        for (const json& label : row["labels"]) result.data.labels.push_back(label.get<float>());
      } else {
        result.data.labels.push_back(row.value("label", row.value("score", 0.0f)));
      }
    }
    return result;
  }

  void expect(const std::string& name, const LossOptions& options) {
    const json& golden = goldens_.at(name);
    const bool is_tuple = loss_needs(options.name).sample == SampleKind::kTuple;
    const Case of = is_tuple ? tuples(golden) : documents(golden);
    const Result result = compute(options, of.data);
    const double expected = golden["loss_f64"].get<double>();
    EXPECT_NEAR(result.loss, expected, 2e-7 * std::abs(expected)) << name;
    ASSERT_EQ(result.gradient.size(), of.gradient.size()) << name;
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < of.gradient.size(); ++i) {
      difference += std::pow(result.gradient[i] - of.gradient[i], 2);
      size += of.gradient[i] * of.gradient[i];
    }
    EXPECT_LE(std::sqrt(difference / size), 1e-6) << name;
  }

  json goldens_;
};

TEST_F(RerankingLossGoldens, ValuesAndGradients) {
  const std::vector<std::pair<std::string, LossOptions>> options = {
      {"bce", {}},
      {"bce_scores", {}},
      {"bce_pos_weight_3", {.pos_weight = 3}},
      {"cross_entropy", {.name = "CrossEntropyLoss"}},
      {"mse", {.name = "MSELoss"}},
      {"margin_mse", {.name = "MarginMSELoss"}},
      {"mnrl_all_negatives", {.name = "MultipleNegativesRankingLoss"}},
      {"list_net", {.name = "ListNetLoss"}},
      {"list_mle", {.name = "ListMLELoss"}},
      {"list_mle_sorted", {.name = "ListMLELoss", .respect_input_order = false}},
      {"p_list_mle", {.name = "PListMLELoss"}},
      {"lambda", {.name = "LambdaLoss"}},
      {"lambda_ndcg2_k3", {.name = "LambdaLoss", .weighting_scheme = "NDCGLoss2Scheme", .k = 3}},
      {"rank_net", {.name = "RankNetLoss"}},
      {"adr_mse", {.name = "ADRMSELoss"}},
  };
  for (const auto& [name, option] : options) expect(name, option);
  // Its value is that of mnrl_all_negatives; its calls are pieces of those.
  std::size_t unchecked = 0;
  for (const auto& [name, golden] : goldens_.items())
    unchecked += golden.is_object() && golden.contains("calls") ? 1 : 0;
  EXPECT_EQ(unchecked, options.size() + 1) << "a case of the goldens is not checked";
}

}  // namespace
}  // namespace tandem::tasks::reranking
