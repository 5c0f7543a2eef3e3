// Exchanges lines of text between a user's program and an agent (control.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tandem/net/event_loop.h"
#include "tandem/net/frame_stream.h"
#include "tandem/net/job_token.h"

namespace tandem::launch {

// The peer may be hostile: lines have at most 64 KiB, and a peer that does not read is dropped when
// 1 MiB waits for it. A line is a frame.
//
// Within a host the kernel identifies the peer's process. Over a network every line is preceded by
// the proof that its sender has the job's token. The proof covers the first messages of both sides
// (each with a random number), the sender, the line's number and the line. So no line can be
// changed, repeated, left out or reflected.
class ControlLine {
 public:
  static constexpr net::FrameProtocol kProtocol{"a job's control socket", 0x43444e54, 2,
                                                (std::size_t{64} << 10)};
  enum class Side { kAgent, kVisitor };
  struct Proof {
    Side side = Side::kAgent;  // this one
    std::string token;
    std::string agents_challenge;
    std::string visitors_greeting;
  };

  explicit ControlLine(net::FileDescriptor socket)
      : stream_(net::FrameReader(kProtocol), std::move(socket)) {}
  // `received`: bytes that have been read from the socket.
  ControlLine(net::FileDescriptor socket, std::string_view received, Proof proof)
      : stream_(net::FrameReader(kProtocol, received), std::move(socket)),
        proof_(std::move(proof)) {}

  void send(const std::string& line);
  // The next complete line, if it has arrived. Throws CommError if its proof is invalid.
  std::optional<std::string> take_line();
  // Sent instead of a line on a connection that is closed; proves nothing to the peer.
  void refuse(std::string_view word);
  void serve() { stream_.serve(); }
  void add_to(net::EventLoop& loop) const { stream_.add_to(loop); }
  const std::string& ended() const { return stream_.ended(); }
  bool all_sent() const { return stream_.unsent() == 0; }

 private:
  enum Kind : std::uint32_t { kLine, kRefusal };
  net::ProofCode code(Side sender, std::uint64_t number, std::string_view line) const;

  net::FrameStream stream_;
  std::optional<Proof> proof_;
  std::uint64_t sent_ = 0;
  std::uint64_t taken_ = 0;
};

// Texts of refuse().
inline constexpr std::string_view kNoToken = "no-token";  // the job has none
inline constexpr std::string_view kOtherToken =
    "other-token";  // the peer's token differs from the job's

}  // namespace tandem::launch
