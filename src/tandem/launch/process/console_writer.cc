#include "tandem/launch/process/console_writer.h"

#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "tandem/net/event_loop.h"

namespace tandem::launch {

void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {
      net::wait_writable(descriptor, net::Deadline(std::chrono::seconds(1)));
      continue;
    }
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

struct ConsoleWriter::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::pair<int, std::string>> texts;
  std::size_t bytes = 0;
  bool stop = false;

  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return stop || !texts.empty(); });
      if (stop) return;
      const auto [descriptor, text] = std::move(texts.front());
      texts.pop_front();
      lock.unlock();
      write_all(descriptor, text);
      lock.lock();
      bytes -= text.size();
      changed.notify_all();
    }
  }
};

ConsoleWriter::ConsoleWriter() : state_(std::make_shared<State>()) {
  std::thread([state = state_] { state->run(); }).detach();
}

ConsoleWriter::~ConsoleWriter() {
  const std::lock_guard lock(state_->mutex);
  state_->stop = true;
  state_->changed.notify_all();
}

void ConsoleWriter::write(int descriptor, std::string text) {
  if (text.empty()) return;
  const std::lock_guard lock(state_->mutex);
  state_->bytes += text.size();
  state_->texts.emplace_back(descriptor, std::move(text));
  state_->changed.notify_all();
}

std::size_t ConsoleWriter::backlog() const {
  const std::lock_guard lock(state_->mutex);
  return state_->bytes;
}

void ConsoleWriter::drain(std::chrono::milliseconds limit) {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, limit, [this] { return state_->bytes == 0; });
}

}  // namespace tandem::launch
