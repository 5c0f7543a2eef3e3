#include "apps/answering/token_scheduler.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/interruption.h"

namespace tandem::apps {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

// A text from its request to its end. `past` is the scheduler thread's; all else is read and
// written with the lock.
struct TokenScheduler::Text {
  explicit Text(const TokenRequest& given) : request(given) {
    if (request.time_limit.count() > 0) deadline = Clock::now() + request.time_limit;
  }

  std::size_t capacity() const { return request.prompt.size() + request.max_new_tokens; }
  // Tokens without keys and values.
  std::size_t missing_rows() const { return request.prompt.size() + tokens.size() - past->rows(); }
  // The next `count` of them: of the prompt, or the newest one.
  std::span<const std::int32_t> missing(std::size_t count) const {
    if (!tokens.empty()) return std::span(tokens).last(count);
    return std::span(request.prompt).subspan(past->rows(), count);
  }
  bool done() const { return ended || error; }

  const TokenRequest request;
  std::optional<Clock::time_point> deadline;
  std::optional<models::KeyValues> past;
  std::vector<std::int32_t> tokens;  // new ones
  std::optional<TextEnd> ended;
  std::exception_ptr error;
  bool unwanted = false;
  std::condition_variable_any changed;
};

// The rows of each text in one batch.
struct TokenScheduler::Step {
  struct Part {
    std::shared_ptr<Text> text;
    std::size_t rows = 0;
    bool reaches_end = false;  // the next token follows
  };
  std::vector<Part> parts;
};

TokenScheduler::TokenScheduler(TokenModel model, const TokenLimits& limits)
    : model_(std::move(model)), limits_(limits), thread_([this] { run(); }) {}

TokenScheduler::~TokenScheduler() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  work_.notify_all();
  thread_.join();
}

TextEnd TokenScheduler::continue_text(const TokenRequest& request,
                                      FunctionRef<bool(std::int32_t)> take,
                                      const std::stop_token& cancelled) {
  const auto text = std::make_shared<Text>(request);
  if (const std::size_t bytes = text->capacity() * model_.row_bytes;
      bytes > limits_.max_cache_bytes) {
    raise<DataError>(
        "keys and values of {} tokens take {} MiB; at most {} MiB are allowed: ask for fewer "
        "tokens",
        text->capacity(), bytes >> 20, limits_.max_cache_bytes >> 20);
  }
  std::unique_lock lock(mutex_);
  waiting_.push_back(text);
  work_.notify_all();
  try {
    const TextEnd end = follow(*text, lock, take, cancelled);
    if (!lock.owns_lock()) lock.lock();
    leave(text);
    return end;
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    leave(text);
    throw;
  }
}

std::size_t TokenScheduler::num_texts() const {
  const std::lock_guard lock(mutex_);
  return waiting_.size() + running_.size();
}

TextEnd TokenScheduler::follow(Text& text, std::unique_lock<std::mutex>& lock,
                               FunctionRef<bool(std::int32_t)> take,
                               const std::stop_token& cancelled) {
  std::size_t taken = 0;
  const auto has_news = [&] { return text.tokens.size() > taken || text.done(); };
  while (true) {
    const bool news = text.deadline
                          ? text.changed.wait_until(lock, cancelled, *text.deadline, has_news)
                          : text.changed.wait(lock, cancelled, has_news);
    if (cancelled.stop_requested()) raise<Interrupted>("the request was given up");
    if (!news) return TextEnd::kTime;
    if (taken == text.tokens.size()) {
      if (text.error) std::rethrow_exception(text.error);
      return *text.ended;
    }
    const std::int32_t token = text.tokens[taken++];
    lock.unlock();
    if (!take(token)) return TextEnd::kEnough;
    lock.lock();
  }
}

// A step of which every text is unwanted would only keep the others waiting.
void TokenScheduler::leave(const std::shared_ptr<Text>& text) {
  text->unwanted = true;
  std::erase(waiting_, text);
  const bool unwanted = std::all_of(running_.begin(), running_.end(),
                                    [](const auto& other) { return other->unwanted; });
  if (unwanted) interrupted_.store(true, std::memory_order_relaxed);
}

// Texts that wait join those that run, in their order, while there is room.
void TokenScheduler::admit() {
  std::erase_if(running_, [](const auto& text) { return text->unwanted || text->done(); });
  std::size_t tokens = 0;
  for (const auto& text : running_) tokens += text->capacity();
  while (!waiting_.empty() && running_.size() < limits_.max_texts) {
    const std::shared_ptr<Text> text = waiting_.front();
    tokens += text->capacity();
    if (tokens * model_.row_bytes > limits_.max_cache_bytes) return;
    waiting_.pop_front();
    try {
      text->past.emplace(model_.make_key_values(text->capacity()));
      running_.push_back(text);
    } catch (...) {
      text->error = std::current_exception();
      text->changed.notify_all();
    }
  }
}

// The newest token of each text, and parts of prompts in the order in which they came.
TokenScheduler::Step TokenScheduler::next_step() const {
  Step step;
  for (const auto& text : running_)
    if (text->missing_rows() == 1) step.parts.push_back({text, 1, true});
  std::size_t room = step.parts.empty() ? kRows : kRowsBeside;
  for (const auto& text : running_) {
    const std::size_t missing = text->missing_rows();
    if (missing == 1 || room == 0) continue;
    const std::size_t rows = std::min(missing, room);
    step.parts.push_back({text, rows, rows == missing});
    room -= rows;
  }
  return step;
}

void TokenScheduler::run() {
  std::vector<float> logits;
  std::unique_lock lock(mutex_);
  while (true) {
    admit();
    if (end_) return;
    if (running_.empty()) {
      work_.wait(lock, [&] { return end_ || !waiting_.empty(); });
      continue;
    }
    interrupted_.store(false, std::memory_order_relaxed);
    const Step step = next_step();
    lock.unlock();
    std::vector<std::int32_t> tokens;
    std::exception_ptr error;
    try {
      compute(step, logits);
      tokens = choose_tokens(step, logits);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (!error) {
      hand_out(step, tokens);
      continue;
    }
    for (const Step::Part& part : step.parts) {
      part.text->error = error;
      part.text->changed.notify_all();
    }
  }
}

void TokenScheduler::compute(const Step& step, std::vector<float>& logits) {
  nn::PackedBatch batch;
  std::vector<models::KeyValues*> past;
  std::vector<std::size_t> rows;
  for (const Step::Part& part : step.parts) {
    batch.append(part.text->missing(part.rows), {}, batch.num_sequences());
    past.push_back(&*part.text->past);
    if (part.reaches_end) rows.push_back(batch.rows() - 1);
  }
  logits.resize(rows.size() * model_.vocab_size);
  const InterruptionScope scope(interrupted_);
  model_.advance(batch, past, rows, logits);
}

// One for each part that reaches the end of its text.
std::vector<std::int32_t> TokenScheduler::choose_tokens(const Step& step,
                                                        std::span<const float> logits) const {
  std::vector<std::int32_t> tokens;
  for (const Step::Part& part : step.parts) {
    if (!part.reaches_end) continue;
    const Text& text = *part.text;
    const std::size_t position = text.request.prompt.size() + text.tokens.size();
    tokens.push_back(static_cast<std::int32_t>(
        choose_token(logits.first(model_.vocab_size), text.request.sampling, position)));
    logits = logits.subspan(model_.vocab_size);
  }
  return tokens;
}

void TokenScheduler::hand_out(const Step& step, std::span<const std::int32_t> tokens) {
  for (const Step::Part& part : step.parts) {
    if (!part.reaches_end) continue;
    Text& text = *part.text;
    const std::int32_t token = tokens.front();
    tokens = tokens.subspan(1);
    if (std::ranges::find(model_.end_tokens, token) != model_.end_tokens.end()) {
      text.ended = TextEnd::kEndToken;
    } else {
      text.tokens.push_back(token);
      if (text.tokens.size() == text.request.max_new_tokens) text.ended = TextEnd::kLength;
    }
    text.changed.notify_all();
  }
}

}  // namespace tandem::apps
