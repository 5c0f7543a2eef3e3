// Pending connections: accepted and not yet authenticated. Any program may connect to an open port,
// such as port scanners, web browsers, and programs that send nothing or a byte a minute. Until its
// timeout such a connection costs only a descriptor.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tandem/net/event_loop.h"
#include "tandem/net/socket.h"

namespace tandem::net {

struct PendingConnection {
  FileDescriptor socket;
  std::string challenge;  // bytes sent to it
  std::string received;   // bytes received from it, complete when it leaves the queue
};

class PendingConnections {
 public:
  // A connection that has not finished its handshake within `timeout` is closed. At `capacity`,
  // new connections stay in the listen backlog until the oldest pending one is a second old; then
  // it is closed to make room.
  PendingConnections(std::chrono::milliseconds timeout, std::size_t capacity)
      : timeout_(timeout), capacity_(capacity) {}

  // Accepts connections from `listener` while there is room. `challenge` makes the first message to
  // each (may be empty).
  void accept_from(const FileDescriptor& listener, const std::function<std::string()>& challenge);
  // Waits for what the pending connections send.
  void add_to(EventLoop& loop) const;
  // Waits for connections to `listener`; at `capacity`, until there is room.
  void add_listener(const FileDescriptor& listener, EventLoop& loop) const;
  // Reads from the pending connections until one has a complete handshake, and returns it; nothing
  // if all are incomplete. The others stay in the queue, so that an error of one connection's
  // handler closes no other. `wanted` computes the length of a handshake from the bytes so far (a
  // result above their number: still unknown); 0 closes the connection.
  std::optional<PendingConnection> take_complete(
      const std::function<std::size_t(const std::string& received)>& wanted);

 private:
  struct Waiting {
    PendingConnection connection;
    Deadline limit;
  };
  enum class State { incomplete, complete, closed };
  static State read(Waiting& entry, const std::function<std::size_t(const std::string&)>& wanted);
  bool has_room() const;

  std::chrono::milliseconds timeout_;
  std::size_t capacity_;
  std::vector<Waiting> waiting_;  // by time of arrival
};

}  // namespace tandem::net
