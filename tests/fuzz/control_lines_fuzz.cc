// Bytes at the port of a job's agents that replace a person's program, before and after its
// handshake: with the wrong token, and with the right one. The first byte chooses: 1: a line with
// the right proof; 2: frames with right checksums (frames.h); otherwise the bytes as they are.
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "fuzz/frames.h"
#include "fuzz/memory.h"
#include "fuzz/require.h"
#include "tandem/core/error.h"
#include "tandem/launch/control/control.h"
#include "tandem/net/agent_handshake.h"

namespace {

using namespace tandem;

std::pair<net::FileDescriptor, net::FileDescriptor> ends() {
  int both[2];
  fuzz::require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both) == 0);
  return {net::FileDescriptor(both[0]), net::FileDescriptor(both[1])};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0 || size > 100000) return 0;
  const bool proves = data[0] == 1;
  const std::string given(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string sent =
      data[0] == 2 ? fuzz::as_frames(launch::ControlLine::kProtocol, given) : given;
  static launch::ControlDesk desk(1, "a secret");  // listens at no agent's number
  // A line of 64 KB is kept as received, as taken, and 100 bytes of it in an answer. The desk
  // stays: it keeps 16 of the connections that are still open.
  const fuzz::MemoryLimit limit(16 * size + (std::size_t{256} << 10));
  auto [own, other] = ends();
  const std::string challenge = net::make_handshake(), visitor = net::make_visitor_handshake();
  using Side = launch::ControlLine::Side;
  launch::ControlLine line(std::move(other), "", {Side::kVisitor, "a secret", challenge, visitor});
  if (proves) {
    desk.welcome({std::move(own), challenge, visitor});
    line.send(sent);
  } else {
    desk.welcome({std::move(own), challenge, visitor + sent});
  }
  for (int i = 0; i < 3; ++i) {
    for (const auto& question : desk.serve()) {
      fuzz::require(proves);
      fuzz::require(to_line(launch::control_request_from(to_line(question.request))) ==
                    to_line(question.request));
      desk.finish(question.client);
    }
    line.serve();
  }
  try {
    while (line.take_line()) {
    }
  } catch (const CommError&) {  // it is disconnected, and gets the reason
  }
  return 0;
}
