// A connection for frames, without waiting: a part of an event loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "tandem/net/event_loop.h"
#include "tandem/net/frame.h"
#include "tandem/net/socket.h"

namespace tandem::net {

// A peer that does not read is dropped when more than `most_unsent` bytes wait for it.
struct FrameStreamLimits {
  std::size_t most_unsent = std::size_t{1} << 20;
  // Output of other programs before the first frame is skipped, up to this length: a login shell
  // may print a welcome.
  std::size_t most_noise = 0;
};

// The peer may be faulty or hostile. One thread.
class FrameStream {
 public:
  // A non-blocking socket. `reader` may have bytes that have been read from it.
  FrameStream(FrameReader reader, FileDescriptor socket, FrameStreamLimits limits = {});
  // Two pipes, which become non-blocking. The process ignores SIGPIPE.
  FrameStream(FrameReader reader, FileDescriptor in, FileDescriptor out, FrameStreamLimits limits);

  // Reads nothing: data that arrived meanwhile still wakes a waiting poll.
  void send(std::uint32_t kind, std::initializer_list<std::string_view> parts);
  // The next complete frame, if it has arrived.
  std::optional<Frame> take();
  // Moves as much as possible.
  void serve();
  void add_to(EventLoop& loop) const;
  // The reason why the stream has ended; empty while it is open. Frames that have arrived can still
  // be taken.
  const std::string& ended() const { return ended_; }
  std::size_t unsent() const { return unsent_.size() - sent_; }

 private:
  const FileDescriptor& out() const { return out_ ? out_ : in_; }
  void write_out();
  void read_in();
  void end(const std::string& reason);

  FrameReader reader_;
  FileDescriptor in_;
  FileDescriptor out_;  // none: `in_` is a socket
  FrameStreamLimits limits_;
  std::string unsent_;
  std::size_t sent_ = 0;     // bytes at the front of unsent_
  bool begun_ = false;       // a frame has been taken
  std::size_t skipped_ = 0;  // bytes before the first frame
  std::string ended_;
};

}  // namespace tandem::net
