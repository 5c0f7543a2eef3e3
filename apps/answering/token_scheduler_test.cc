// The scheduler without a model: which rows of which texts a batch has, and what becomes of them.
#include "apps/answering/token_scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <latch>
#include <numeric>

#include "tandem/core/error.h"
#include "tandem/core/interruption.h"

namespace tandem::apps {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::size_t kVocabulary = 50;
constexpr std::int32_t kEndToken = 49;

// Logits that depend on all tokens of the text so far, which it keeps instead of keys.
class Decoder {
 public:
  TokenModel model() {
    return {
        .make_key_values =
            [](std::size_t capacity) {
              return models::KeyValues({1}, capacity, nn::Precision::kFloat32);
            },
        .advance = [this](const nn::PackedBatch& batch, std::span<models::KeyValues* const> past,
                          std::span<const std::size_t> rows,
                          std::span<float> logits) { advance(batch, past, rows, logits); },
        .vocab_size = kVocabulary,
        .row_bytes = 4,
        .end_tokens = {kEndToken}};
  }

  std::vector<std::size_t> batch_rows;   // of each batch
  std::vector<std::size_t> batch_texts;  // the same
  std::function<void()> before = [] {};  // each batch
  std::size_t end_token_at = 1 << 20;    // in a text

 private:
  void advance(const nn::PackedBatch& batch, std::span<models::KeyValues* const> past,
               std::span<const std::size_t> rows, std::span<float> logits) {
    before();
    throw_if_interrupted();
    batch_rows.push_back(batch.rows());
    batch_texts.push_back(past.size());
    for (std::size_t i = 0; i < past.size(); ++i) {
      const std::span<float> kept = past[i]->of_layer<float>(0);
      for (std::size_t row = batch.row_begin[i]; row < batch.row_begin[i + 1]; ++row) {
        kept[past[i]->rows()] = static_cast<float>(batch.input_ids[row]);
        past[i]->keep(past[i]->rows() + 1);
        const auto found = std::ranges::find(rows, row);
        if (found == rows.end()) continue;
        const auto at = static_cast<std::size_t>(found - rows.begin());
        fill(kept.first(past[i]->rows()), logits.subspan(at * kVocabulary, kVocabulary));
      }
    }
  }
  void fill(std::span<const float> text, std::span<float> logits) const {
    float sum = 0;
    for (std::size_t i = 0; i < text.size(); ++i) sum += text[i] * static_cast<float>(i % 7 + 1);
    for (std::size_t token = 0; token < logits.size(); ++token)
      logits[token] = std::sin(sum * static_cast<float>(token + 1));
    logits[kEndToken] = text.size() >= end_token_at ? 9.0f : -9.0f;
  }
};

TokenRequest request_of(std::size_t prompt, std::size_t count, std::uint64_t seed = 0) {
  TokenRequest request{.prompt = std::vector<std::int32_t>(prompt), .max_new_tokens = count};
  std::iota(request.prompt.begin(), request.prompt.end(), static_cast<std::int32_t>(seed % 9));
  for (std::int32_t& token : request.prompt) token %= kEndToken;
  if (seed != 0) request.sampling = {.sample = true, .temperature = 0.5, .seed = seed};
  return request;
}

std::vector<std::int32_t> text_of(TokenScheduler& scheduler, const TokenRequest& request) {
  std::vector<std::int32_t> tokens;
  const auto take = [&](std::int32_t token) {
    tokens.push_back(token);
    return true;
  };
  EXPECT_EQ(scheduler.continue_text(request, take, {}), TextEnd::kLength);
  EXPECT_EQ(tokens.size(), request.max_new_tokens);
  return tokens;
}

// Texts of the requests, of which none has a batch before all are in the queue.
std::vector<std::vector<std::int32_t>> texts_side_by_side(Decoder& decoder,
                                                          const TokenLimits& limits,
                                                          std::span<const TokenRequest> requests) {
  std::latch all_there(1);
  decoder.before = [&] { all_there.wait(); };
  TokenScheduler scheduler(decoder.model(), limits);
  std::vector<std::future<std::vector<std::int32_t>>> futures;
  for (const TokenRequest& request : requests)
    futures.push_back(std::async(std::launch::async,
                                 [&scheduler, &request] { return text_of(scheduler, request); }));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (scheduler.num_texts() < requests.size() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(scheduler.num_texts(), requests.size());
  all_there.count_down();
  std::vector<std::vector<std::int32_t>> texts;
  for (auto& future : futures) texts.push_back(future.get());
  return texts;
}

TEST(TokenScheduler, ATextIsTheSameAloneAndBesideOthers) {
  std::vector<TokenRequest> requests;
  for (std::size_t i = 0; i < 9; ++i) requests.push_back(request_of(1 + 70 * i, 5 + 9 * i, i));
  std::vector<std::vector<std::int32_t>> want;
  Decoder alone;
  TokenScheduler one(alone.model(), {});
  for (const TokenRequest& request : requests) want.push_back(text_of(one, request));
  EXPECT_EQ(*std::ranges::max_element(alone.batch_texts), 1u);

  Decoder decoder;
  EXPECT_EQ(texts_side_by_side(decoder, {}, requests), want);
  EXPECT_GT(*std::ranges::max_element(decoder.batch_texts), 4u);
}

// A long prompt holds up the others for a short batch at a time only.
TEST(TokenScheduler, PromptsAreReadInParts) {
  Decoder first;
  TokenScheduler other(first.model(), {});
  text_of(other, request_of(2 * TokenScheduler::kRows + 7, 2));
  EXPECT_EQ(first.batch_rows,
            (std::vector<std::size_t>{TokenScheduler::kRows, TokenScheduler::kRows, 7, 1}));

  Decoder decoder;
  std::optional<TokenScheduler> scheduler(std::in_place, decoder.model(), TokenLimits{});
  std::promise<void> begun;
  std::atomic<bool> enough{false};
  std::future<void> running = std::async(std::launch::async, [&] {
    std::size_t count = 0;
    const auto take = [&](std::int32_t) {
      if (count++ == 0) begun.set_value();
      return !enough.load();
    };
    EXPECT_EQ(scheduler->continue_text(request_of(1, 1 << 19), take, {}), TextEnd::kEnough);
  });
  begun.get_future().wait();
  text_of(*scheduler, request_of(TokenScheduler::kRows, 1));
  enough = true;
  running.get();
  scheduler.reset();  // ends its last batch
  EXPECT_EQ(*std::ranges::max_element(decoder.batch_rows), TokenScheduler::kRowsBeside + 1);
}

TEST(TokenScheduler, ATextEndsForOneOfFourReasons) {
  Decoder decoder;
  decoder.end_token_at = 8;
  TokenScheduler scheduler(decoder.model(), {});
  std::vector<std::int32_t> tokens;
  const auto end_of = [&](std::size_t prompt, std::size_t count, std::size_t enough) {
    tokens.clear();
    const auto take = [&](std::int32_t token) {
      tokens.push_back(token);
      return tokens.size() < enough;
    };
    return scheduler.continue_text(request_of(prompt, count), take, {});
  };
  EXPECT_EQ(end_of(3, 20, 100), TextEnd::kEndToken);
  EXPECT_EQ(tokens.size(), 5u);
  EXPECT_EQ(end_of(3, 4, 100), TextEnd::kLength);
  EXPECT_EQ(tokens.size(), 4u);
  EXPECT_EQ(end_of(3, 20, 2), TextEnd::kEnough);
  EXPECT_EQ(tokens.size(), 2u);

  Decoder slow;
  std::promise<void> released;
  slow.before = [future = released.get_future().share()] { future.wait(); };
  TokenScheduler waiting(slow.model(), {});
  TokenRequest request = request_of(3, 20);
  request.time_limit = std::chrono::milliseconds(30);
  EXPECT_EQ(waiting.continue_text(request, [](std::int32_t) { return true; }, {}), TextEnd::kTime);
  released.set_value();
}

TEST(TokenScheduler, ARequestThatIsGivenUpHoldsUpNoOther) {
  Decoder decoder;
  TokenScheduler scheduler(decoder.model(), {.max_texts = 1});
  std::stop_source stop;
  const auto endless = [&] {
    scheduler.continue_text(
        request_of(1, 1 << 19),
        [&](std::int32_t) {
          stop.request_stop();
          return true;
        },
        stop.get_token());
  };
  EXPECT_THROW(endless(), Interrupted);
  EXPECT_THROW(endless(), Interrupted);  // at once
  text_of(scheduler, request_of(5, 3));
}

TEST(TokenScheduler, TextsWaitForRoomForTheirKeys) {
  Decoder decoder;
  const TokenLimits limits{.max_cache_bytes = 4 * 100};
  TokenScheduler scheduler(decoder.model(), limits);
  EXPECT_THAT([&] { text_of(scheduler, request_of(60, 41)); },
              ThrowsMessage<DataError>(HasSubstr("keys and values of 101 tokens")));
  const std::vector<TokenRequest> requests(3, request_of(20, 30));
  texts_side_by_side(decoder, limits, requests);
  EXPECT_EQ(*std::ranges::max_element(decoder.batch_texts), 2u);
}

TEST(TokenScheduler, AFailureOfTheModelReachesItsTextsAlone) {
  Decoder decoder;
  TokenScheduler scheduler(decoder.model(), {});
  decoder.before = [] { raise<DataError>("broken"); };
  EXPECT_THAT([&] { text_of(scheduler, request_of(3, 3)); },
              ThrowsMessage<DataError>(HasSubstr("broken")));
  decoder.before = [] {};
  text_of(scheduler, request_of(3, 3));
}

}  // namespace
}  // namespace tandem::apps
