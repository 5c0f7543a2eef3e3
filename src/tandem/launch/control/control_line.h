// Exchanges lines of text between a user's program and an agent (control.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tandem/launch/process/line_socket.h"
#include "tandem/net/event_loop.h"

namespace tandem::launch {

// Within a host the kernel identifies the peer's process. Over a network every line is preceded by
// the proof that its sender has the job's token. The proof covers the first messages of both sides
// (each with a random number), the sender, the line's number and the line. So no line can be
// changed, repeated, left out or reflected.
class ControlLine {
 public:
  enum class Side { kAgent, kVisitor };
  struct Proof {
    Side side = Side::kAgent;  // this one
    std::string token;
    std::string agents_challenge;
    std::string visitors_greeting;
  };

  explicit ControlLine(LineSocket socket) : socket_(std::move(socket)) {}
  ControlLine(LineSocket socket, Proof proof)
      : socket_(std::move(socket)), proof_(std::move(proof)) {}

  void send(const std::string& line);
  // The next complete line, if it has arrived. Throws CommError if its proof is invalid.
  std::optional<std::string> take_line();
  // Sent instead of a line on a connection that is closed; proves nothing to the peer.
  void refuse(std::string_view word);
  void serve() { socket_.serve(); }
  void add_to(net::EventLoop& loop) const { socket_.add_to(loop); }
  const std::string& ended() const { return socket_.ended(); }
  bool all_sent() const { return socket_.all_sent(); }

 private:
  std::string code(Side sender, std::uint64_t number, std::string_view line) const;

  LineSocket socket_;
  std::optional<Proof> proof_;
  std::uint64_t sent_ = 0;
  std::uint64_t taken_ = 0;
};

// Texts of refuse().
inline constexpr std::string_view kNoToken = "no-token";  // the job has none
inline constexpr std::string_view kOtherToken =
    "other-token";  // the peer's token differs from the job's

}  // namespace tandem::launch
