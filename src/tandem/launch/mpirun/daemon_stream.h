// Messages between mpirun and its daemon on a host, over two pipes: ssh's, or a child's. No other
// process can reach them: ssh authenticates the peer and encrypts, so no port and no secret are
// needed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tandem/net/frame_stream.h"

namespace tandem::launch {

struct DaemonMessage {
  enum class Kind : std::uint32_t {
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
    kHandshake,   // → mpirun: the first frame; payload: the version
    kNumKinds
  };
  Kind kind = Kind::kAlive;
  int rank = -1;
  std::string payload;
};

// The payload of a frame is the rank (i32) and the message's payload. One thread.
class DaemonStream {
 public:
  static constexpr net::FrameProtocol kProtocol{
      "mpirun's daemon", 0x44444e54, static_cast<std::uint32_t>(DaemonMessage::Kind::kNumKinds),
      std::size_t{16} << 20};
  static constexpr std::string_view kVersion = "tandem mpirun daemon 3";

  // `starts`: this is the daemon, which sends the handshake; otherwise waits for it. Output of a
  // login shell before it is skipped.
  DaemonStream(net::FileDescriptor in, net::FileDescriptor out, bool starts);

  void send(const DaemonMessage& message);
  // The next complete message, if it has arrived.
  std::optional<DaemonMessage> take();
  void serve();
  void add_to(net::EventLoop& loop) const { stream_.add_to(loop); }
  bool greeted() const { return handshake_done_; }
  // The reason why the stream has ended; empty while it is open.
  const std::string& ended() const { return error_.empty() ? stream_.ended() : error_; }
  std::size_t unsent() const { return stream_.unsent(); }

 private:
  net::FrameStream stream_;
  bool handshake_done_;
  std::string error_;  // what the peer did wrong
};

}  // namespace tandem::launch
