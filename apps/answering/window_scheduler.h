// Sequences of several requests (windows of a text for a question, texts to label) computed side by
// side: a request with a short text does not wait for the end of a long one.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

#include "tandem/nn/packed_batch.h"
#include "tandem/tasks/token_sequences.h"

namespace tandem::apps {

// One thread takes the windows of all requests in turn, one of each, computes a batch of
// them and hands out the logits. A batch has as few windows as the machine computes in about a
// tenth of a second (at least one), so that the next request waits no longer. Thread-safe.
class WindowScheduler {
 public:
  // Head::num_logits(): of rows, or of sequences.
  using NumLogits = std::function<std::size_t(std::size_t rows, std::size_t sequences)>;
  // Fills the logits of a batch; called on the scheduler's thread only, which may interrupt it
  // (InterruptionScope).
  using Forward = std::function<void(const nn::PackedBatch& batch, std::span<float> logits)>;
  static constexpr std::size_t kMaxWindows = 64;  // windows of one batch

  WindowScheduler(NumLogits num_logits, Forward forward);
  // No thread may be waiting in logits_of().
  ~WindowScheduler();
  WindowScheduler(const WindowScheduler&) = delete;
  WindowScheduler& operator=(const WindowScheduler&) = delete;

  // The logits of all sequences, one after another, without padding. Throws what forward threw, or
  // Interrupted soon after `cancelled` was requested; a batch that no request waits for any more is
  // interrupted, and may hold on to its sequences until then.
  std::vector<float> logits_of(std::shared_ptr<const tasks::TokenSequences> sequences,
                               const std::stop_token& cancelled);

 private:
  struct WindowRequest;
  struct Piece {  // a window of a batch
    std::shared_ptr<WindowRequest> request;
    std::size_t window;
  };

  void run();
  std::vector<Piece> next_batch();
  void compute(const std::vector<Piece>& pieces);
  void interrupt_if_unwanted();

  const NumLogits num_logits_;
  const Forward forward_;
  std::atomic<bool> interrupted_{false};  // the forward that runs
  std::mutex mutex_;
  std::condition_variable_any changed_;
  // Requests with windows that no batch holds yet.
  std::deque<std::shared_ptr<WindowRequest>> waiting_;
  std::vector<Piece> running_;
  std::size_t rows_limit_ = 512;  // rows of a batch of more than one window
  bool end_ = false;
  std::thread thread_;
};

}  // namespace tandem::apps
