// Tests of seqeval's scores: goldens of the package, and small cases that anyone can count.
#include "tandem/tasks/token_classification/seqeval.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/json.h"

namespace tandem::token_classification {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Sentences = std::vector<std::vector<std::string>>;

SeqevalScores score(const Sentences& expected, const Sentences& predicted) {
  std::vector<std::string> names;
  std::map<std::string, std::uint32_t> ids;
  std::vector<std::size_t> begins{0};
  std::vector<std::uint32_t> sides[2];
  for (std::size_t s = 0; s < expected.size(); ++s) {
    begins.push_back(begins.back() + expected[s].size());
    for (const int side : {0, 1}) {
      for (const std::string& tag : (side == 0 ? expected : predicted)[s]) {
        const auto [at, added] = ids.emplace(tag, static_cast<std::uint32_t>(names.size()));
        if (added) names.push_back(tag);
        sides[side].push_back(at->second);
      }
    }
  }
  return seqeval(names, {sides[0], sides[1], begins});
}

OrderedJson entity_level(const SeqevalScores& scores) {
  OrderedJson result = OrderedJson::object();
  const auto add = [&](const std::string& name, const EntityCounts& counts) {
    result[name + "_precision"] = counts.precision();
    result[name + "_recall"] = counts.recall();
    result[name + "_f1"] = counts.f1();
  };
  for (const auto& [type, counts] : scores.types) {
    add(type, counts);
    result[type + "_number"] = static_cast<double>(counts.expected);
  }
  add("overall", scores.overall);
  result["overall_accuracy"] = scores.accuracy();
  return result;
}

class SeqevalGolden : public tandem::testing::SharedDataTest {};

// Every case to the last bit, keys in their order.
TEST_F(SeqevalGolden, EveryCase) {
  std::ifstream file(tandem::testing::shared_data() / "golden/tasks/metric_cases_tasks.json");
  const OrderedJson cases = OrderedJson::parse(file)["seqeval"];
  ASSERT_EQ(cases.size(), 32u);
  for (const OrderedJson& one : cases) {
    const auto scores =
        score(one["references"].get<Sentences>(), one["predictions"].get<Sentences>());
    EXPECT_EQ(entity_level(scores).dump(), one["entity_level_result"].dump()) << one["note"];
  }
}

// The project's own cases, among them IOBES and tags of no scheme.
TEST(DemoSeqeval, EveryCase) {
  std::ifstream file(std::filesystem::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/ner.json");
  const OrderedJson cases = OrderedJson::parse(file)["seqeval"];
  ASSERT_EQ(cases.size(), 12u);
  for (const OrderedJson& one : cases) {
    const auto scores = score(one["expected"].get<Sentences>(), one["predicted"].get<Sentences>());
    EXPECT_EQ(entity_level(scores).dump(), one["scores"].dump());
  }
}

TEST(Seqeval, CountsEntitiesNotTags) {
  const auto scores = score({{"B-a", "I-a", "O", "B-b"}}, {{"B-a", "I-a", "O", "O"}});
  EXPECT_EQ(scores.overall.expected, 2u);
  EXPECT_EQ(scores.overall.predicted, 1u);
  EXPECT_EQ(scores.overall.correct, 1u);
  EXPECT_EQ(scores.overall.precision(), 1.0);
  EXPECT_EQ(scores.overall.recall(), 0.5);
  EXPECT_EQ(scores.accuracy(), 0.75);
}

TEST(Seqeval, AnEntityBeginsWithoutB) {
  EXPECT_EQ(score({{"I-a", "I-a", "I-b"}}, {{"B-a", "I-a", "B-b"}}).overall.correct, 2u);
}

TEST(Seqeval, SentencesStandApart) {
  EXPECT_EQ(score({{"B-a"}, {"I-a"}}, {{"B-a"}, {"B-a"}}).overall.correct, 2u);
}

TEST(Seqeval, WhatIsNotDefinedIsZero) {
  const auto scores = score({{"O"}}, {{"O"}});
  EXPECT_TRUE(scores.types.empty());
  EXPECT_EQ(scores.overall.f1(), 0.0);
  EXPECT_EQ(scores.accuracy(), 1.0);
  EXPECT_EQ(score({}, {}).accuracy(), 0.0);
}

TEST(Seqeval, ReadsPrefixAndType) {
  const auto type = [](const std::string& tag) {
    return score({{tag}}, {{tag}}).types.at(0).first;
  };
  EXPECT_EQ(type("B-creative-work"), "creative-work");
  EXPECT_EQ(type("NOUN"), "OUN");
  EXPECT_EQ(type("B"), "_");
  EXPECT_EQ(type("B-"), "_");
  EXPECT_EQ(type("Ä-x"), "x");
  EXPECT_THROW(score({{""}}, {{""}}), DataError);
}

}  // namespace
}  // namespace tandem::token_classification
