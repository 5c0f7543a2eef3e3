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

#include "apps/answering/common_begin.h"
#include "tandem/nn/packed_batch.h"
#include "tandem/tasks/token_sequences.h"

namespace tandem::apps {

// One thread takes the windows of all requests in turn, one of each, computes a batch of
// them and hands out the logits. A batch has as few windows as the machine computes in about a
// tenth of a second (at least one), so that the next request waits no longer. A request that no
// other one waits beside has batches of kRowsAlone rows or more, however slow the model is. Windows
// of a request that begin alike have batches of their own. Thread-safe.
class WindowScheduler {
 public:
  // Head::num_logits(): of rows, or of sequences.
  using NumLogits = std::function<std::size_t(std::size_t rows, std::size_t sequences)>;
  // Fills the logits of a batch; called on the scheduler's thread only, which may interrupt it
  // (InterruptionScope).
  using Forward = std::function<void(const nn::PackedBatch& batch, std::span<float> logits)>;
  // The same for rows behind those of `begin`, which it computes if they are not kept. longest: of
  // the sequences of the batch, with the begin.
  using ForwardBehind = std::function<void(CommonBegin& begin, const nn::PackedBatch& batch,
                                           std::size_t longest, std::span<float> logits)>;
  static constexpr std::size_t kMaxWindows = 64;  // windows of one batch
  static constexpr std::size_t kRowsAlone = 512;

  // forward_behind: if logits depend on the first rows of a sequence only through what a decoder
  // keeps of them.
  WindowScheduler(NumLogits num_logits, Forward forward, ForwardBehind forward_behind = {});
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

  std::shared_ptr<WindowRequest> request_of(std::shared_ptr<const tasks::TokenSequences> sequences);
  void run();
  std::vector<Piece> next_batch();
  std::vector<Piece> next_behind_begin(std::size_t most);
  static void append_window(const Piece& piece, nn::PackedBatch& batch);
  static std::size_t longest_of(const std::vector<Piece>& pieces);
  void compute(const std::vector<Piece>& pieces);
  void interrupt_if_unwanted();

  const NumLogits num_logits_;
  const Forward forward_;
  const ForwardBehind forward_behind_;
  std::atomic<bool> interrupted_{false};  // the forward that runs
  std::mutex mutex_;
  std::condition_variable_any changed_;
  // Requests with windows that no batch holds yet.
  std::deque<std::shared_ptr<WindowRequest>> waiting_;
  std::vector<Piece> running_;
  std::size_t begin_rows_ = 0;           // that requests keep
  std::size_t rows_limit_ = kRowsAlone;  // rows of a batch of more than one window
  bool end_ = false;
  std::thread thread_;
};

}  // namespace tandem::apps
