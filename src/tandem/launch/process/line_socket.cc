#include "tandem/launch/process/line_socket.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "tandem/core/error.h"

namespace tandem::launch {
namespace {

constexpr std::size_t kMaxUnsent = 1 << 20;

std::string reason_of(int error_number) {
  return error_number == ETIMEDOUT || error_number == EHOSTUNREACH
             ? std::string("its host is silent")
             : fmt::format("its connection broke ({})", std::strerror(error_number));
}

}  // namespace

void LineSocket::send(const std::string& line) {
  if (!ended_.empty()) return;
  unsent_ += line + '\n';
  if (unsent_.size() > kMaxUnsent) ended_ = "it does not read";
  send_some();
}

bool LineSocket::has_line() const { return received_.find('\n') != std::string::npos; }

std::optional<std::string> LineSocket::take_line() {
  const std::size_t end = received_.find('\n');
  if (end == std::string::npos) {
    if (received_.size() > kMaxLine && ended_.empty()) ended_ = "it sent a line without an end";
    return std::nullopt;
  }
  std::string line = received_.substr(0, end);
  received_.erase(0, end + 1);
  return line;
}

void LineSocket::send_some() {
  while (ended_.empty() && !unsent_.empty()) {
    const ssize_t sent = ::send(socket_.get(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) break;
    if (sent < 0) {
      const int reason = errno;
      receive();  // lines that the other side sent before it closed can still be taken
      if (ended_.empty()) ended_ = reason_of(reason);
      return;
    }
    if (sent > 0) unsent_.erase(0, static_cast<std::size_t>(sent));
  }
}

void LineSocket::serve() {
  send_some();
  receive();
}

void LineSocket::receive() {
  char bytes[4096];
  while (ended_.empty() && received_.size() <= kMaxLine) {
    const ssize_t got = ::recv(socket_.get(), bytes, sizeof bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got == 0) ended_ = "its connection ended";
    if (got < 0) ended_ = reason_of(errno);
    if (got > 0) received_.append(bytes, static_cast<std::size_t>(got));
  }
}

void LineSocket::add_to(net::EventLoop& loop) const {
  loop.read(socket_);
  if (!unsent_.empty()) loop.write(socket_);
}

}  // namespace tandem::launch
