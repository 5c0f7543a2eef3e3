// Exact search for several requests at once.
#include "apps/answering/text_search.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>

namespace tandem::apps {
namespace {

constexpr std::size_t kWidth = 24;

std::vector<float> some_values(std::size_t texts, unsigned seed) {
  std::vector<float> values(texts * kWidth);
  for (float& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<float>(seed >> 16) / 65536.0f - 0.5f;
  }
  return values;
}

std::vector<std::pair<std::size_t, float>> pairs_of(const std::vector<tasks::ranking::Hit>& hits) {
  std::vector<std::pair<std::size_t, float>> pairs;
  for (const auto& hit : hits) pairs.emplace_back(hit.document, hit.score);
  return pairs;
}

TEST(TextSearch, ManyAtOnceGetTheAnswersOfEachAlone) {
  const auto& function = tasks::ranking::similarity_function("dot");
  TextSearch search(function, some_values(1500, 1), kWidth, 2, Environment::from_process());
  EXPECT_EQ(search.texts(), 1500u);
  constexpr std::size_t kClients = 100;
  std::vector<std::vector<std::pair<std::size_t, float>>> alone, together(kClients);
  const auto ask = [&](std::size_t client) {
    return pairs_of(
        search.find(some_values(1, static_cast<unsigned>(100 + client)), 1 + client % 7, {}));
  };
  for (std::size_t client = 0; client < kClients; ++client) {
    alone.push_back(ask(client));
    EXPECT_EQ(alone.back().size(), 1 + client % 7);
  }
  std::vector<std::thread> clients;
  for (std::size_t client = 0; client < kClients; ++client)
    clients.emplace_back([&, client] { together[client] = ask(client); });
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(together, alone);
}

TEST(TextSearch, TheBestComeFirstByEachSimilarity) {
  std::vector<float> corpus(3 * kWidth);
  corpus[0] = 1;
  corpus[kWidth] = 4;
  corpus[2 * kWidth] = 4;
  std::vector<float> query(kWidth);
  query[0] = 1.5f;
  const auto indices = [&](const char* name) {
    TextSearch search(tasks::ranking::similarity_function(name), corpus, kWidth, 1,
                      Environment::from_process());
    std::vector<std::size_t> found;
    for (const auto& hit : search.find(query, 3, {})) found.push_back(hit.document);
    return found;
  };
  EXPECT_EQ(indices("dot"), (std::vector<std::size_t>{1, 2, 0}));
  EXPECT_EQ(indices("euclidean"), (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_EQ(indices("manhattan"), (std::vector<std::size_t>{0, 1, 2}));
}

}  // namespace
}  // namespace tandem::apps
