// Texts of several requests that a decoder continues side by side: a product reads the weights once
// for all of them, and a request does not wait for the end of another one.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

#include "apps/answering/sampling.h"
#include "tandem/core/thread_pool.h"
#include "tandem/models/encoder/key_values.h"
#include "tandem/nn/packed_batch.h"

namespace tandem::apps {

// A decoder, as the scheduler uses it: on its thread only, which may interrupt advance()
// (InterruptionScope).
struct TokenModel {
  std::function<models::KeyValues(std::size_t capacity)> make_key_values;
  // Computes the rows of the batch behind those that each of its texts has kept, and the logits
  // [rows, vocab_size] of these rows of the batch. No bit depends on the other texts.
  std::function<void(const nn::PackedBatch& batch, std::span<models::KeyValues* const> past,
                     std::span<const std::size_t> rows, std::span<float> logits)>
      advance;
  std::size_t vocab_size = 0;
  std::size_t row_bytes = 0;  // of the keys and values of a token
  std::vector<std::int32_t> end_tokens;
};

struct TokenLimits {
  std::size_t max_texts = 64;  // side by side; others wait in a queue
  // Keys and values of all texts, each with room for its prompt and its new tokens.
  std::size_t max_cache_bytes = std::size_t{4} << 30;
};

struct TokenRequest {
  std::vector<std::int32_t> prompt = {};
  std::size_t max_new_tokens = 0;
  SamplingOptions sampling = {};
  // Together with the wait in the queue; 0: no limit.
  std::chrono::milliseconds time_limit{0};
};

// Reasons why a text ends.
enum class TextEnd {
  kEndToken,  // of the model
  kLength,    // max_new_tokens
  kEnough,    // the caller's
  kTime,      // time_limit
};

// One thread computes a batch for all texts at a time: the newest token of each, and a part of the
// prompts that have not been read to their end. Thread-safe.
class TokenScheduler {
 public:
  static constexpr std::size_t kRows = 512;       // of a batch
  static constexpr std::size_t kRowsBeside = 64;  // of prompts, if texts wait for their next token

  TokenScheduler(TokenModel model, const TokenLimits& limits);
  // No thread may be waiting in continue_text().
  ~TokenScheduler();
  TokenScheduler(const TokenScheduler&) = delete;
  TokenScheduler& operator=(const TokenScheduler&) = delete;

  // take(token) is called on this thread with each new token but the end token, and returns whether
  // the text continues. Throws DataError for a text that exceeds max_cache_bytes alone, what the
  // model threw, or Interrupted soon after `cancelled` was requested.
  TextEnd continue_text(const TokenRequest& request, FunctionRef<bool(std::int32_t)> take,
                        const std::stop_token& cancelled);

  // Texts in the queue or side by side.
  std::size_t num_texts() const;

 private:
  struct Text;
  struct Step;

  TextEnd follow(Text& text, std::unique_lock<std::mutex>& lock,
                 FunctionRef<bool(std::int32_t)> take, const std::stop_token& cancelled);
  void leave(const std::shared_ptr<Text>& text);
  void run();
  void admit();
  Step next_step() const;
  void compute(const Step& step, std::vector<float>& logits);
  std::vector<std::int32_t> choose_tokens(const Step& step, std::span<const float> logits) const;
  void hand_out(const Step& step, std::span<const std::int32_t> tokens);

  const TokenModel model_;
  const TokenLimits limits_;
  std::atomic<bool> interrupted_{false};  // the step that runs
  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::deque<std::shared_ptr<Text>> waiting_;
  std::vector<std::shared_ptr<Text>> running_;
  bool end_ = false;
  std::thread thread_;
};

}  // namespace tandem::apps
