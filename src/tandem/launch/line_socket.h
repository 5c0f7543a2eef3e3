// A connection that carries lines of text, without waiting.
#pragma once

#include <poll.h>

#include <optional>
#include <string>

#include "tandem/rendezvous/socket.h"

namespace tandem::launch {

// The other side may be anybody: lines have at most 64 KiB, and a side that does not read is given
// up when 1 MiB waits for it. One thread.
class LineSocket {
 public:
  static constexpr std::size_t kMaxLine = 64 << 10;

  explicit LineSocket(rendezvous::FileDescriptor socket, std::string received = "")
      : socket_(std::move(socket)), received_(std::move(received)) {}

  // `line` without its end. Reads nothing: what has come meanwhile still wakes who waits for it.
  void send(const std::string& line);
  // The next whole line, if it has come.
  std::optional<std::string> take_line();
  bool has_line() const;
  // Moves what can be moved.
  void serve();
  pollfd wait() const;
  // Why nothing more comes or goes; empty while it does. Lines that have come can still be taken.
  const std::string& ended() const { return ended_; }
  bool all_sent() const { return unsent_.empty(); }
  const rendezvous::FileDescriptor& socket() const { return socket_; }

 private:
  void send_some();
  void receive();

  rendezvous::FileDescriptor socket_;
  std::string received_;
  std::string unsent_;
  std::string ended_;
};

}  // namespace tandem::launch
