#include "tandem/launch/process/output_relay.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <mutex>

#include "tandem/core/error.h"
#include "tandem/core/log_line.h"
#include "tandem/launch/process/console_writer.h"
#include "tandem/net/event_loop.h"

namespace tandem::launch {
namespace {

using net::FileDescriptor;

constexpr std::size_t kMaxLine = 64 << 10;

// One stream: bytes in, lines out.
class Pipe {
 public:
  Pipe(RelayedStream stream, FileDescriptor read_end)
      : stream_(std::move(stream)),
        file_(stream_.file.empty() ? FileDescriptor() : open_log(stream_.file)),
        read_end_(std::move(read_end)) {}

  void add_to(net::EventLoop& loop) {
    loop.read(read_end_, [this] { move_bytes(); });
  }
  bool ended() const { return !read_end_; }

 private:
  void move_bytes() {
    char bytes[16384];
    const ssize_t got = ::read(read_end_.get(), bytes, sizeof bytes);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
      if (!line_.empty()) end_line();
      flush();
      return read_end_.reset();
    }
    const std::string_view text(bytes, static_cast<std::size_t>(got));
    if (file_) write_all(file_.get(), text);
    if (stream_.console >= 0 || stream_.filtered) split(text);
  }

  void split(std::string_view text) {
    for (const char c : text) {
      if (c == '\n' && after_return_) {
        after_return_ = false;
        continue;
      }
      after_return_ = c == '\r';
      if (c == '\n' || c == '\r') {
        end_line();
      } else if (line_.size() < kMaxLine) {
        line_ += c;
      }
    }
    flush();
  }

  void end_line() {
    if (stream_.console >= 0) ready_ += console_line();
    line_ += '\n';
    if (stream_.filtered) {
      const auto& needles = stream_.filtered->needles;
      const bool wanted = std::any_of(needles.begin(), needles.end(), [&](const auto& needle) {
        return line_.find(needle) != std::string::npos;
      });
      if (wanted) write_all(stream_.filtered->file.get(), stream_.prefix + line_);
    }
    line_.clear();
    if (ready_.size() > kMaxLine) flush();
  }

  std::string console_line() const {
    if (!stream_.json_rank) return stream_.prefix + line_ + '\n';
    if (line_.empty()) return {};
    if (is_json_object(line_)) return line_ + '\n';
    return json_log_line({stream_.err ? "WARNING" : "INFO", "worker", line_, stream_.json_rank});
  }

  void flush() {
    if (!ready_.empty()) write_all(stream_.console, ready_);
    ready_.clear();
  }

  RelayedStream stream_;
  FileDescriptor file_;
  FileDescriptor read_end_;
  std::string line_;   // unfinished
  std::string ready_;  // lines on their way to the console, in one write
  bool after_return_ = false;
};

}  // namespace

FileDescriptor open_log(const std::filesystem::path& path) {
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file) throw io_error("cannot write", path.string(), errno);
  return file;
}

struct OutputRelay::State {
  std::mutex mutex;
  std::condition_variable empty;
  std::vector<Pipe> arrived;  // not yet taken by the thread
  std::size_t open = 0;       // streams that have not ended
  std::atomic<bool> stop{false};
  FileDescriptor wake{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};

  void run() {
    std::vector<Pipe> pipes;
    while (!stop.load()) {
      net::EventLoop loop;
      loop.read(wake);
      for (Pipe& pipe : pipes) pipe.add_to(loop);
      loop.run_once(std::chrono::seconds(1));
      take_arrived(pipes, std::erase_if(pipes, [](const Pipe& pipe) { return pipe.ended(); }));
    }
  }

  void take_arrived(std::vector<Pipe>& pipes, std::size_t ended) {
    const std::lock_guard lock(mutex);
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(wake.get(), &count, sizeof count);
    for (Pipe& pipe : arrived) pipes.push_back(std::move(pipe));
    arrived.clear();
    open -= ended;
    if (open == 0) empty.notify_all();
  }

  void ring() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake.get(), &one, sizeof one);
  }
};

OutputRelay::OutputRelay() : state_(std::make_unique<State>()) {
  thread_ = std::thread([state = state_.get()] { state->run(); });
}

OutputRelay::~OutputRelay() {
  state_->stop.store(true);
  state_->ring();
  thread_.join();
}

FileDescriptor OutputRelay::add(RelayedStream stream) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw io_error("cannot make", "a pipe", errno);
  FileDescriptor read_end(ends[0]);
  FileDescriptor write_end(ends[1]);
  ::fcntl(read_end.get(), F_SETFL, O_NONBLOCK);
  const std::lock_guard lock(state_->mutex);
  state_->arrived.emplace_back(std::move(stream), std::move(read_end));
  ++state_->open;
  state_->ring();
  return write_end;
}

void OutputRelay::drain(std::chrono::milliseconds limit) {
  std::unique_lock lock(state_->mutex);
  state_->empty.wait_for(lock, limit, [this] { return state_->open == 0; });
}

}  // namespace tandem::launch
