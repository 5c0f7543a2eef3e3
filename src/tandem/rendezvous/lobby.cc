#include "tandem/rendezvous/lobby.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace tandem::rendezvous {
namespace {

// Time for a handshake before a new connection may replace a pending one: many connections at once
// must not push out a rank that has just connected.
constexpr double kProtectedSeconds = 1;

// Reads up to `size` bytes in all; false when the connection has ended.
bool read_up_to(std::size_t size, Guest& guest) {
  char bytes[4096];
  while (guest.received.size() < size) {
    const std::size_t want = std::min(sizeof bytes, size - guest.received.size());
    const ssize_t count = ::recv(guest.socket.get(), bytes, want, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return true;
    if (count <= 0) return false;
    guest.received.append(bytes, static_cast<std::size_t>(count));
  }
  return true;
}

}  // namespace

bool Lobby::has_room() const {
  return waiting_.size() < capacity_ ||
         waiting_.front().limit.elapsed_seconds() > kProtectedSeconds;
}

void Lobby::accept_from(const FileDescriptor& listener,
                        const std::function<std::string()>& greeting) {
  while (has_room()) {
    FileDescriptor socket = accept_tcp(listener, 0);
    if (!socket) return;
    Guest guest{std::move(socket), greeting(), ""};
    // Little enough for an empty socket buffer.
    send_all(guest.socket, std::as_bytes(std::span(guest.greeting)),
             Deadline(std::chrono::milliseconds(0)));
    if (waiting_.size() >= capacity_) waiting_.erase(waiting_.begin());
    waiting_.push_back({std::move(guest), Deadline(patience_)});
  }
}

pollfd Lobby::door(const FileDescriptor& listener) const {
  return {listener.get(), static_cast<short>(has_room() ? POLLIN : 0), 0};
}

std::chrono::milliseconds Lobby::nap(std::chrono::milliseconds limit) const {
  if (has_room()) return limit;
  const double seconds = kProtectedSeconds - waiting_.front().limit.elapsed_seconds();
  return std::min(limit, std::chrono::milliseconds(static_cast<long>(seconds * 1e3) + 1));
}

void Lobby::add_to(std::vector<pollfd>& waits) const {
  for (const Waiting& entry : waiting_) waits.push_back({entry.guest.socket.get(), POLLIN, 0});
}

std::vector<Guest> Lobby::take_complete(
    const std::function<std::size_t(const std::string& received)>& wanted) {
  std::vector<Guest> complete;
  std::erase_if(waiting_, [&](Waiting& entry) {
    Guest& guest = entry.guest;
    bool alive = true;
    std::size_t size = wanted(guest.received);
    while (alive && size > guest.received.size()) {
      const std::size_t before = guest.received.size();
      alive = read_up_to(size, guest);
      size = wanted(guest.received);
      if (guest.received.size() == before) break;
    }
    if (alive && size != 0 && guest.received.size() >= size) {
      complete.push_back(std::move(guest));
      return true;
    }
    return !alive || size == 0 || entry.limit.passed();
  });
  return complete;
}

}  // namespace tandem::rendezvous
