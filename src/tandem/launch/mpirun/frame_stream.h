// Frames between mpirun and its daemon on a host, over two pipes: ssh's, or a child's. No other
// process can reach them: ssh authenticates the peer and encrypts, so no port and no secret are
// needed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tandem/net/event_loop.h"
#include "tandem/net/socket.h"

namespace tandem::launch {

struct Frame {
  enum class Kind : std::uint8_t {
    kStart,       // → daemon: the ranks to start, JSON (rank_start.h)
    kSignal,      // → daemon: send the ranks this signal, a decimal number
    kInput,       // → daemon: bytes for the rank's stdin; empty: its end
    kStarted,     // → mpirun: the ranks run; payload: the rank's process id
    kFailed,      // → mpirun: the start failed, with the reason
    kEnded,       // → mpirun: the rank has ended: "<exit code> <signal>"
    kInputTaken,  // → mpirun: the bytes have been written
    kOut,         // → mpirun: bytes of the rank's stdout
    kErr,         // and of its stderr
    kPmi,         // either way: a line of PMI
    kAlive,       // either way: nothing else was sent for a second
  };
  Kind kind = Kind::kAlive;
  int rank = -1;
  std::string payload;
};

// A frame is a u32 length of the payload, a u8 kind, an i32 rank and the payload; all hosts of a
// job have one byte order. The peer may be faulty: lengths and kinds are checked before memory is
// allocated. One thread.
class FrameStream {
 public:
  static constexpr std::size_t kMaxPayload = 16 << 20;
  // The daemon's handshake. Output of a login shell before it is skipped.
  static constexpr std::string_view kHandshake = "tandem mpirun daemon 2\n";

  // Makes both non-blocking. `starts`: send the handshake; otherwise wait for it.
  FrameStream(net::FileDescriptor in, net::FileDescriptor out, bool starts);

  void send(const Frame& frame);
  // The next complete frame, if it has arrived.
  std::optional<Frame> take();
  // Moves as much as possible.
  void serve();
  void add_to(net::EventLoop& loop) const;
  bool greeted() const { return handshake_done_; }
  // The reason why the stream has ended; empty while it is open. Frames that have arrived can still
  // be taken.
  const std::string& ended() const { return ended_; }
  std::size_t unsent() const { return unsent_.size() - sent_; }

 private:
  void write_out();
  void read_in();
  void await_greeting();

  net::FileDescriptor in_, out_;
  std::string received_;
  std::size_t taken_ = 0;
  std::string unsent_;
  std::size_t sent_ = 0;
  bool handshake_done_ = false;
  std::string ended_;
};

}  // namespace tandem::launch
