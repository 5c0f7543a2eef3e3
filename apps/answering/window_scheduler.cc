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
  std::size_t tokens(std::size_t window) const { return sequences->num_real_tokens(window); }

  const std::shared_ptr<const tasks::TokenSequences> sequences;
  std::vector<std::size_t> begin;  // of each window's logits
  std::vector<float> logits;
  std::optional<CommonBegin> common;  // of all windows
  std::size_t next = 0;               // the first window that no batch held yet
  std::size_t missing;                // windows without logits
  std::exception_ptr error;
  bool abandoned = false;
};

WindowScheduler::WindowScheduler(NumLogits num_logits, Forward forward,
                                 ForwardBehind forward_behind)
    : num_logits_(std::move(num_logits)),
      forward_(std::move(forward)),
      forward_behind_(std::move(forward_behind)),
      thread_([this] { run(); }) {}

WindowScheduler::~WindowScheduler() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::shared_ptr<WindowScheduler::WindowRequest> WindowScheduler::request_of(
    std::shared_ptr<const tasks::TokenSequences> sequences) {
  const auto request = std::make_shared<WindowRequest>(std::move(sequences), num_logits_);
  if (forward_behind_) request->common = common_begin(*request->sequences);
  return request;
}

std::vector<float> WindowScheduler::logits_of(
    std::shared_ptr<const tasks::TokenSequences> sequences, const std::stop_token& cancelled) {
  const auto request = request_of(std::move(sequences));
  std::unique_lock lock(mutex_);
  std::size_t begin_rows = request->common ? request->common->tokens.size() : 0;
  if (begin_rows > kMostKeptRows - begin_rows_) {
    request->common.reset();
    begin_rows = 0;
  }
  begin_rows_ += begin_rows;
  if (!request->done()) {
    waiting_.push_back(request);
    changed_.notify_all();
  }
  const bool done = changed_.wait(lock, cancelled, [&] { return request->done(); });
  begin_rows_ -= begin_rows;
  if (!done) {
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
  const std::size_t most = waiting_.size() == 1 ? std::max(rows_limit_, kRowsAlone) : rows_limit_;
  if (waiting_.front()->common) return next_behind_begin(most);
  std::vector<Piece> pieces;
  std::size_t rows = 0;
  while (!waiting_.empty() && !waiting_.front()->common && pieces.size() < kMaxWindows) {
    std::shared_ptr<WindowRequest> request = waiting_.front();
    rows += request->tokens(request->next);
    if (!pieces.empty() && rows > most) break;
    waiting_.pop_front();
    pieces.push_back({request, request->next++});
    if (request->next < request->sequences->size()) waiting_.push_back(request);
  }
  return pieces;
}

// Windows of the first request alone, as many as there are lanes for.
std::vector<WindowScheduler::Piece> WindowScheduler::next_behind_begin(std::size_t most) {
  const std::shared_ptr<WindowRequest> request = waiting_.front();
  waiting_.pop_front();
  std::vector<Piece> pieces;
  std::size_t rows = 0, longest = 0;
  for (; request->next < request->sequences->size() && pieces.size() < kMaxWindows;
       ++request->next) {
    const std::size_t tokens = request->tokens(request->next);
    rows += tokens - request->common->tokens.size();
    longest = std::max(longest, tokens);
    const bool fits = rows <= most && (pieces.size() + 1) * lane_rows(longest) <= kMostKeptRows;
    if (!pieces.empty() && !fits) break;
    pieces.push_back({request, request->next});
  }
  if (request->next < request->sequences->size()) waiting_.push_back(request);
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

// The rows of a window, without those of a common begin.
void WindowScheduler::append_window(const Piece& piece, nn::PackedBatch& batch) {
  const WindowRequest& request = *piece.request;
  if (!request.common) return tasks::append_sequence(*request.sequences, piece.window, 0, batch);
  std::vector<std::int32_t> ids, types;
  request.sequences->append_tokens(piece.window, ids, types);
  const std::size_t begin = request.common->tokens.size();
  batch.append(std::span(ids).subspan(begin), std::span(types).subspan(begin), 0);
}

std::size_t WindowScheduler::longest_of(const std::vector<Piece>& pieces) {
  std::size_t longest = 0;
  for (const Piece& piece : pieces)
    longest = std::max(longest, piece.request->tokens(piece.window));
  return longest;
}

// Callers do not read their logits before the last window is there, so they are written without the
// lock.
void WindowScheduler::compute(const std::vector<Piece>& pieces) {
  WindowRequest& first = *pieces.front().request;
  nn::PackedBatch batch;
  for (const Piece& piece : pieces) append_window(piece, batch);
  std::vector<float> logits(num_logits_(batch.rows(), batch.num_sequences()));
  std::size_t rows = batch.rows();
  if (first.common && !first.common->kept) rows += first.common->tokens.size();
  const auto start = std::chrono::steady_clock::now();
  {
    const InterruptionScope scope(interrupted_);
    if (first.common) {
      forward_behind_(*first.common, batch, longest_of(pieces), logits);
    } else {
      forward_(batch, logits);
    }
  }
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  rows_limit_ =
      static_cast<std::size_t>(static_cast<double>(rows) * std::min(kBatchTime / time, 1e6));
  const float* from = logits.data();
  for (const Piece& piece : pieces) {
    WindowRequest& request = *piece.request;
    const std::size_t count = request.begin[piece.window + 1] - request.begin[piece.window];
    std::copy_n(from, count, request.logits.data() + request.begin[piece.window]);
    from += count;
  }
}

}  // namespace tandem::apps
