#include "tandem/tasks/no_duplicates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <random>
#include <set>

#include "support/test_support.h"
#include "tandem/core/json.h"
#include "tandem/data/epoch_order.h"

namespace tandem::tasks {
namespace {

using nlohmann::json;

struct Texts {
  std::vector<std::uint32_t> values;  // [columns, rows]
  std::size_t columns = 0;

  std::size_t rows() const { return values.size() / columns; }
  std::set<std::uint32_t> of(std::uint32_t row) const {
    std::set<std::uint32_t> found;
    for (std::size_t column = 0; column < columns; ++column)
      found.insert(values[column * rows() + row]);
    return found;
  }
};

Texts random_texts(std::size_t rows, std::size_t columns, std::uint32_t different, unsigned seed) {
  std::mt19937 random(seed);
  Texts texts{.values = {}, .columns = columns};
  for (std::size_t i = 0; i < rows * columns; ++i) texts.values.push_back(random() % different);
  return texts;
}

// The rule as it is stated, in time rows · batches.
Batches plain(const Texts& texts, std::vector<std::uint32_t> left, std::size_t size) {
  Batches all;
  while (!left.empty()) {
    std::vector<std::uint32_t> batch, passed_over;
    std::set<std::uint32_t> taken;
    for (const std::uint32_t row : left) {
      const auto own = texts.of(row);
      const bool occurs = std::any_of(own.begin(), own.end(),
                                      [&](std::uint32_t text) { return taken.contains(text); });
      if (occurs || batch.size() == size) {
        passed_over.push_back(row);
        continue;
      }
      taken.insert(own.begin(), own.end());
      batch.push_back(row);
    }
    all.push_back(batch);
    left = passed_over;
  }
  return all;
}

TEST(NoDuplicates, BatchesAreThoseOfTheRule) {
  unsigned seed = 0;
  for (const std::size_t columns : {1u, 2u, 3u, 5u}) {
    for (const std::uint32_t different : {1u, 3u, 20u, 300u, 5000u}) {
      for (const std::size_t size : {1u, 2u, 16u, 200u}) {
        const Texts texts = random_texts(131, columns, different, ++seed);
        const Sampler sampler = no_duplicates(texts.values, columns, false);
        const auto order = data::epoch_permutation(texts.rows(), 0, 3);
        EXPECT_EQ(sampler.batches({.seed = 7, .epoch = 3, .batch_size = size, .shards = 2}),
                  plain(texts, order, size))
            << columns << " columns, " << different << " texts, batches of " << size;
      }
    }
  }
}

// One anchor for all rows: every batch has one row, and looking at the others each time would take
// hours.
TEST(NoDuplicates, ManyRowsWithOneTextTakeNoLonger) {
  constexpr std::uint32_t kRows = 1'000'000;
  std::vector<std::uint32_t> values(kRows, 0);
  for (std::uint32_t row = 0; row < kRows; ++row) values.push_back(1 + row);
  const Batches batches =
      no_duplicates(std::move(values), 2, false).batches({.seed = 0, .epoch = 0, .batch_size = 64});
  EXPECT_EQ(batches.size(), kRows);
}

TEST(NoDuplicates, NoTextIsTwiceInAStepOfSeveralShards) {
  const Texts texts = random_texts(400, 2, 250, 5);
  const Batches batches = no_duplicates(texts.values, 2, true)
                              .batches({.seed = 0, .epoch = 1, .batch_size = 8, .shards = 3});
  ASSERT_EQ(batches.size() % 3, 0u);
  for (std::size_t step = 0; step < batches.size() / 3; ++step) {
    std::set<std::uint32_t> taken;
    for (std::size_t shard = 0; shard < 3; ++shard) {
      const auto& batch = batches[3 * step + shard];
      EXPECT_LE(batch.size(), 8u);
      for (const std::uint32_t row : batch)
        for (const std::uint32_t text : texts.of(row)) EXPECT_TRUE(taken.insert(text).second);
    }
  }
}

// The rows that sentence-transformers trained (the README of ../shared/data/golden/next).
class NoDuplicatesGoldens : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::shared_data() / "golden/next";
    if (!std::filesystem::exists(directory_ / "embeddings"))
      GTEST_SKIP() << "needs " << directory_ / "embeddings";
  }

  Texts texts_of(const json& golden) const {
    const std::string file = golden["file"];
    std::vector<json> rows;
    std::ifstream lines(directory_ / "data" / std::filesystem::path(file).filename());
    for (std::string line; std::getline(lines, line);) rows.push_back(json::parse(line));
    std::map<std::string, std::uint32_t> numbers;
    Texts texts{.values = {}, .columns = golden["columns"].size()};
    for (const std::string name : golden["columns"]) {
      for (const json& row : rows) {
        const auto next = static_cast<std::uint32_t>(numbers.size());
        texts.values.push_back(numbers.emplace(row[name], next).first->second);
      }
    }
    return texts;
  }

  std::filesystem::path directory_;
};

TEST_F(NoDuplicatesGoldens, BatchesAreThoseOfSentenceTransformers) {
  int compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory_ / "embeddings")) {
    if (!entry.path().filename().string().starts_with("trajectory_")) continue;
    const json golden = json::parse(std::ifstream(entry.path()));
    if (golden["arguments"].value("batch_sampler", "") != "no_duplicates") continue;
    const Texts texts = texts_of(golden);
    const std::size_t size = golden["arguments"]["per_device_train_batch_size"];
    const std::size_t length = (texts.rows() + size - 1) / size;
    const Sampler sampler = no_duplicates(texts.values, texts.columns, false);
    const auto trained = golden["batches"].get<Batches>();
    for (std::size_t i = 0; i < trained.size(); ++i) {
      const Batches epoch = sampler.batches({.seed = 42, .epoch = i / length, .batch_size = size});
      EXPECT_EQ(trained[i], epoch[i % length]) << entry.path() << ", batch " << i;
    }
    ++compared;
  }
  EXPECT_GE(compared, 3);
}

}  // namespace
}  // namespace tandem::tasks
