#include "tandem/net/pending_connections.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace tandem::net {
namespace {

// Time for a handshake before a new connection may replace a pending one: many connections at once
// must not push out a rank that has just connected.
constexpr double kProtectedSeconds = 1;

// Reads up to `size` bytes in all; false when the connection has ended.
bool read_up_to(std::size_t size, PendingConnection& connection) {
  char bytes[4096];
  while (connection.received.size() < size) {
    const std::size_t want = std::min(sizeof bytes, size - connection.received.size());
    const ssize_t count = ::recv(connection.socket.get(), bytes, want, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return true;
    if (count <= 0) return false;
    connection.received.append(bytes, static_cast<std::size_t>(count));
  }
  return true;
}

}  // namespace

bool PendingConnections::has_room() const {
  return waiting_.size() < capacity_ ||
         waiting_.front().limit.elapsed_seconds() > kProtectedSeconds;
}

void PendingConnections::accept_from(const FileDescriptor& listener,
                                     const std::function<std::string()>& challenge) {
  while (has_room()) {
    FileDescriptor socket = accept_tcp(listener, 0);
    if (!socket) return;
    PendingConnection connection{std::move(socket), challenge(), ""};
    // Little enough for an empty socket buffer.
    send_all(connection.socket, std::as_bytes(std::span(connection.challenge)),
             Deadline(std::chrono::milliseconds(0)));
    if (waiting_.size() >= capacity_) waiting_.erase(waiting_.begin());
    waiting_.push_back({std::move(connection), Deadline(timeout_)});
  }
}

void PendingConnections::add_listener(const FileDescriptor& listener, EventLoop& loop) const {
  if (has_room()) return loop.read(listener);
  const double seconds = kProtectedSeconds - waiting_.front().limit.elapsed_seconds();
  loop.within(std::chrono::milliseconds(static_cast<long>(seconds * 1e3) + 1));
}

void PendingConnections::add_to(EventLoop& loop) const {
  for (const Waiting& entry : waiting_) loop.read(entry.connection.socket);
}

PendingConnections::State PendingConnections::read(
    Waiting& entry, const std::function<std::size_t(const std::string&)>& wanted) {
  PendingConnection& connection = entry.connection;
  bool alive = true;
  std::size_t size = wanted(connection.received);
  while (alive && size > connection.received.size()) {
    const std::size_t before = connection.received.size();
    alive = read_up_to(size, connection);
    size = wanted(connection.received);
    if (connection.received.size() == before) break;
  }
  if (!alive || size == 0) return State::closed;
  if (connection.received.size() >= size) return State::complete;
  return entry.limit.passed() ? State::closed : State::incomplete;
}

std::optional<PendingConnection> PendingConnections::take_complete(
    const std::function<std::size_t(const std::string& received)>& wanted) {
  for (auto entry = waiting_.begin(); entry != waiting_.end();) {
    const State state = read(*entry, wanted);
    if (state == State::incomplete) {
      ++entry;
      continue;
    }
    PendingConnection connection = std::move(entry->connection);
    entry = waiting_.erase(entry);
    if (state == State::complete) return connection;
  }
  return std::nullopt;
}

}  // namespace tandem::net
