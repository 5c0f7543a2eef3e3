// The scheduler without a model: the order of requests, their batches, and their results.
#include "apps/answering/window_scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <latch>
#include <set>
#include <string>

#include "tandem/core/interruption.h"

namespace tandem::apps {
namespace {

// Windows of 8 tokens.
class LetterWindows final : public tasks::TokenSequences {
 public:
  LetterWindows(char letter, std::size_t count) : token_(5 + (letter - 'a')), count_(count) {}
  std::size_t size() const override { return count_; }
  std::size_t num_real_tokens(std::size_t) const override { return 8; }
  std::size_t max_seq_length() const override { return 8; }
  std::int32_t pad_token_id() const override { return 0; }
  void append_tokens(std::size_t, std::vector<std::int32_t>& ids,
                     std::vector<std::int32_t>& types) const override {
    ids.insert(ids.end(), {2, 5 + ('q' - 'a'), 3, token_, token_, token_, token_, 3});
    types.insert(types.end(), {0, 0, 0, 1, 1, 1, 1, 1});
  }

 private:
  std::int32_t token_;
  std::size_t count_;
};

// Windows of [CLS] q [SEP], `letter` four times, [SEP].
std::shared_ptr<const tasks::TokenSequences> windows(char letter, std::size_t count) {
  return std::make_shared<const LetterWindows>(letter, count);
}

std::size_t two_of_a_row(std::size_t rows, std::size_t) { return 2 * rows; }

constexpr std::int32_t kQ = 5 + ('q' - 'a');

// Both logits of a row are its token.
void tokens_as_logits(const nn::PackedBatch& batch, std::span<float> logits) {
  for (std::size_t i = 0; i < logits.size(); ++i)
    logits[i] = static_cast<float>(batch.input_ids[i / 2]);
}

void expect_logits(const std::vector<float>& logits, char letter, std::size_t count) {
  const float token = static_cast<float>(5 + (letter - 'a'));
  const std::vector<float> window = {2, kQ, 3, token, token, token, token, 3};
  ASSERT_EQ(logits.size(), 16 * count);
  for (std::size_t i = 0; i < logits.size(); ++i) ASSERT_EQ(logits[i], window[i / 2 % 8]) << i;
}

TEST(WindowScheduler, EachRequestGetsItsOwnResult) {
  std::latch all_there(1);
  std::vector<std::string> batches;  // the letters of each
  WindowScheduler scheduler(
      two_of_a_row, [&](const nn::PackedBatch& batch, std::span<float> logits) {
        all_there.wait();
        std::string letters;
        for (std::size_t i = 0; i < batch.num_sequences(); ++i)
          letters += static_cast<char>('a' + batch.input_ids[batch.row_begin[i] + 3] - 5);
        batches.push_back(letters);
        tokens_as_logits(batch, logits);
      });
  const auto ask = [&](char letter, std::size_t count) {
    return std::async(std::launch::async, [&scheduler, letter, count] {
      expect_logits(scheduler.logits_of(windows(letter, count), {}), letter, count);
    });
  };
  std::vector<std::future<void>> questions;
  questions.push_back(ask('x', 500));
  for (const char letter : {'a', 'b', 'c'}) questions.push_back(ask(letter, 2));
  all_there.count_down();
  for (auto& question : questions) question.get();
  std::size_t total = 0;
  for (const std::string& letters : batches) {
    EXPECT_LE(letters.size(), WindowScheduler::kMaxWindows);
    total += letters.size();
  }
  EXPECT_EQ(total, 506u);
}

TEST(WindowScheduler, AFailureReachesOnlyTheRequestThatCausedIt) {
  bool fails = true;  // handed over by the scheduler's lock
  WindowScheduler scheduler(two_of_a_row,
                            [&](const nn::PackedBatch& batch, std::span<float> logits) {
                              if (std::exchange(fails, false)) raise<DataError>("broken");
                              tokens_as_logits(batch, logits);
                            });
  EXPECT_THROW(scheduler.logits_of(windows('a', 30), {}), DataError);
  expect_logits(scheduler.logits_of(windows('b', 3), {}), 'b', 3);
}

// A batch that would never end, ends when the last request that waits for it has gone.
TEST(WindowScheduler, InterruptsAbandonedRequests) {
  std::latch begun(1);
  bool endless = true;
  WindowScheduler scheduler(two_of_a_row,
                            [&](const nn::PackedBatch& batch, std::span<float> logits) {
                              if (std::exchange(endless, false)) {
                                begun.count_down();
                                while (true) {
                                  throw_if_interrupted();
                                  std::this_thread::yield();
                                }
                              }
                              tokens_as_logits(batch, logits);
                            });
  std::stop_source gone;
  auto first = std::async(std::launch::async, [&] {
    EXPECT_THROW(scheduler.logits_of(windows('a', 1), gone.get_token()), Interrupted);
  });
  begun.wait();
  auto second = std::async(
      std::launch::async, [&] { expect_logits(scheduler.logits_of(windows('b', 2), {}), 'b', 2); });
  gone.request_stop();
  first.get();
  second.get();
}

// A head of whole texts: one logit each, the number of its tokens.
TEST(WindowScheduler, LogitsMayBelongToSequences) {
  WindowScheduler scheduler([](std::size_t, std::size_t sequences) { return sequences; },
                            [](const nn::PackedBatch& batch, std::span<float> logits) {
                              for (std::size_t i = 0; i < logits.size(); ++i)
                                logits[i] = static_cast<float>(batch.key_count[i]);
                            });
  EXPECT_EQ(scheduler.logits_of(windows('a', 3), {}), (std::vector<float>{8, 8, 8}));
}

// The first three tokens of all windows are the same ones.
TEST(WindowScheduler, WindowsThatBeginAlikeAreComputedBehindTheirBegin) {
  std::latch all_there(1);
  std::vector<std::set<std::int32_t>> batches;  // the letters of each
  std::vector<std::size_t> begins;              // tokens of each, as often as they were computed
  const auto count_sequences = [](std::size_t, std::size_t sequences) { return sequences; };
  const auto forward = [&](const nn::PackedBatch& batch, std::span<float> logits) {
    all_there.wait();
    ASSERT_EQ(batch.num_sequences(), 1u);
    std::fill(logits.begin(), logits.end(), static_cast<float>(batch.input_ids[3]));
  };
  const auto behind = [&](CommonBegin& begin, const nn::PackedBatch& batch, std::size_t longest,
                          std::span<float> logits) {
    all_there.wait();
    EXPECT_EQ(longest, 8u);
    if (!begin.kept) {
      begins.push_back(begin.tokens.size());
      begin.kept = std::make_shared<const models::KeyValues>(std::vector<std::size_t>{1}, 8,
                                                             nn::Precision::kFloat32);
    }
    batches.emplace_back();
    for (std::size_t i = 0; i < batch.num_sequences(); ++i) {
      ASSERT_EQ(batch.key_count[i], 8 - begin.tokens.size());
      logits[i] = static_cast<float>(batch.input_ids[batch.row_begin[i]]);
      batches.back().insert(batch.input_ids[batch.row_begin[i]]);
    }
  };
  WindowScheduler scheduler(count_sequences, forward, behind);
  const auto ask = [&](char letter, std::size_t count) {
    return std::async(std::launch::async, [&scheduler, letter, count] {
      const float token = static_cast<float>(5 + (letter - 'a'));
      const float expected = count == 1 ? token : 3;  // windows alike end in their last token
      EXPECT_EQ(scheduler.logits_of(windows(letter, count), {}),
                std::vector<float>(count, expected));
    });
  };
  std::vector<std::future<void>> requests;
  requests.push_back(ask('a', 1));
  requests.push_back(ask('b', 200));
  requests.push_back(ask('c', 70));
  all_there.count_down();
  for (auto& request : requests) request.get();
  EXPECT_EQ(begins, (std::vector<std::size_t>{7, 7}));
  EXPECT_GE(batches.size(), 6u);  // up to 64 windows each
}

}  // namespace
}  // namespace tandem::apps
