#include "apps/answering/window_scheduler.h"

#include <algorithm>

#include "tandem/core/interruption.h"

namespace tandem::apps {
namespace {

constexpr std::chrono::duration<double> kBatchTime{0.1};

}  // namespace

// The windows of one caller.
struct WindowScheduler::WindowRequest {
  WindowRequest(std::shared_ptr<const tasks::TokenSequences> all, const NumLogits& num_logits)
      : sequences(std::move(all)), missing(sequences->size()) {
    begin.push_back(0);
    for (std::size_t i = 0; i < sequences->size(); ++i)
      begin.push_back(begin.back() + num_logits(sequences->num_real_tokens(i), 1));
    logits.resize(begin.back());
  }
  bool done() const { return missing == 0 || error; }

  const std::shared_ptr<const tasks::TokenSequences> sequences;
  std::vector<std::size_t> begin;  // begin of each window's logits
  std::vector<float> logits;
  std::size_t next = 0;  // the first window that no batch held yet
  std::size_t missing;   // windows without logits
  std::exception_ptr error;
  bool abandoned = false;
};

WindowScheduler::WindowScheduler(NumLogits num_logits, Forward forward)
    : num_logits_(std::move(num_logits)),
      forward_(std::move(forward)),
      thread_([this] { run(); }) {}

WindowScheduler::~WindowScheduler() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::vector<float> WindowScheduler::logits_of(
    std::shared_ptr<const tasks::TokenSequences> sequences, const std::stop_token& cancelled) {
  const auto request = std::make_shared<WindowRequest>(std::move(sequences), num_logits_);
  std::unique_lock lock(mutex_);
  if (!request->done()) {
    waiting_.push_back(request);
    changed_.notify_all();
  }
  if (!changed_.wait(lock, cancelled, [&] { return request->done(); })) {
    request->abandoned = true;
    std::erase(waiting_, request);
    interrupt_if_unwanted();
    raise<Interrupted>("the request was given up");
  }
  if (request->error) std::rethrow_exception(request->error);
  return std::move(request->logits);
}

// A batch of which every window was given up would only keep the others waiting.
void WindowScheduler::interrupt_if_unwanted() {
  const bool unwanted =
      !running_.empty() && std::all_of(running_.begin(), running_.end(),
                                       [](const Piece& piece) { return piece.request->abandoned; });
  if (unwanted) interrupted_.store(true, std::memory_order_relaxed);
}

// One window of each request in turn; a request that has more goes to the end of the queue.
std::vector<WindowScheduler::Piece> WindowScheduler::next_batch() {
  std::vector<Piece> pieces;
  std::size_t rows = 0;
  while (!waiting_.empty() && pieces.size() < kMaxWindows) {
    std::shared_ptr<WindowRequest> request = waiting_.front();
    rows += request->sequences->num_real_tokens(request->next);
    if (!pieces.empty() && rows > rows_limit_) break;
    waiting_.pop_front();
    pieces.push_back({request, request->next++});
    if (request->next < request->sequences->size()) waiting_.push_back(request);
  }
  return pieces;
}

void WindowScheduler::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return end_ || !waiting_.empty(); });
    if (end_) return;
    running_ = next_batch();
    interrupted_.store(false, std::memory_order_relaxed);
    const std::vector<Piece> pieces = running_;
    lock.unlock();
    std::exception_ptr error;
    try {
      compute(pieces);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    for (const Piece& piece : pieces) {
      if (error) {
        piece.request->error = error;
        std::erase(waiting_, piece.request);
      } else {
        --piece.request->missing;
      }
    }
    running_.clear();
    changed_.notify_all();
  }
}

// Callers do not read their logits before the last window is there, so they are written without the
// lock.
void WindowScheduler::compute(const std::vector<Piece>& pieces) {
  nn::PackedBatch batch;
  for (const Piece& piece : pieces)
    tasks::append_sequence(*piece.request->sequences, piece.window, 0, batch);
  std::vector<float> logits(num_logits_(batch.rows(), batch.num_sequences()));
  const auto start = std::chrono::steady_clock::now();
  {
    const InterruptionScope scope(interrupted_);
    forward_(batch, logits);
  }
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  rows_limit_ = static_cast<std::size_t>(static_cast<double>(batch.rows()) *
                                         std::min(kBatchTime / time, 1e6));
  const float* from = logits.data();
  for (const Piece& piece : pieces) {
    WindowRequest& request = *piece.request;
    const std::size_t count = request.begin[piece.window + 1] - request.begin[piece.window];
    std::copy_n(from, count, request.logits.data() + request.begin[piece.window]);
    from += count;
  }
}

}  // namespace tandem::apps
