// A line of text at a time between a person's program and an agent (control.h).
#pragma once

#include <poll.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tandem/launch/line_socket.h"

namespace tandem::launch {

// Within a host the kernel says whose process the other side is. Over a network every line has, in
// front of it, the proof that its sender knows the job's token, over what both sides said first
// (each with a random number), who speaks, the line's number and the line: so none can be changed,
// said again, left out or turned round.
class ControlLine {
 public:
  enum class Side { kAgent, kVisitor };
  struct Proof {
    Side side = Side::kAgent;  // this one
    std::string token;
    std::string agents_greeting;
    std::string visitors_greeting;
  };

  explicit ControlLine(LineSocket socket) : socket_(std::move(socket)) {}
  ControlLine(LineSocket socket, Proof proof)
      : socket_(std::move(socket)), proof_(std::move(proof)) {}

  void send(const std::string& line);
  // The next whole line, if it has come. Throws CommError when nothing proves where it is from.
  std::optional<std::string> take_line();
  // Instead of a line, to a visitor that is shown out; proves nothing to it.
  void refuse(std::string_view word);
  void serve() { socket_.serve(); }
  pollfd wait() const { return socket_.wait(); }
  const std::string& ended() const { return socket_.ended(); }
  bool all_sent() const { return socket_.all_sent(); }

 private:
  std::string code(Side sender, std::uint64_t number, std::string_view line) const;

  LineSocket socket_;
  std::optional<Proof> proof_;
  std::uint64_t sent_ = 0;
  std::uint64_t taken_ = 0;
};

// Words of refuse().
inline constexpr std::string_view kNoToken = "no-token";        // the job has none
inline constexpr std::string_view kOtherToken = "other-token";  // the visitor's is not the job's

}  // namespace tandem::launch
