// A connection for lines of text, without waiting.
#pragma once

#include <optional>
#include <string>

#include "tandem/net/event_loop.h"
#include "tandem/net/socket.h"

namespace tandem::launch {

// The peer may be hostile: lines have at most 64 KiB, and a peer that does not read is dropped when
// 1 MiB waits for it. One thread.
class LineSocket {
 public:
  static constexpr std::size_t kMaxLine = 64 << 10;

  explicit LineSocket(net::FileDescriptor socket, std::string received = "")
      : socket_(std::move(socket)), received_(std::move(received)) {}

  // `line` without its end. Reads nothing: data that arrived meanwhile still wakes a waiting poll.
  void send(const std::string& line);
  // The next complete line, if it has arrived.
  std::optional<std::string> take_line();
  bool has_line() const;
  // Moves as much as possible.
  void serve();
  void add_to(net::EventLoop& loop) const;
  // The reason why the connection has ended; empty while it is open. Lines that have arrived can
  // still be taken.
  const std::string& ended() const { return ended_; }
  bool all_sent() const { return unsent_.empty(); }
  const net::FileDescriptor& socket() const { return socket_; }

 private:
  void send_some();
  void receive();

  net::FileDescriptor socket_;
  std::string received_;
  std::string unsent_;
  std::string ended_;
};

}  // namespace tandem::launch
